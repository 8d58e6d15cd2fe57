"""The record type that a schema describes, and whether it is a topic's.

Records name their schema by its id, which may be any in the registry, and decoding goes by structure: an invoice would
become an order with nulls. Only a schema of the same record type may decode a topic's records.
"""

from __future__ import annotations

import json
from collections.abc import Sequence

from lakehouse.core.errors import SchemaError
from lakehouse.formats import protobuf
from lakehouse.formats.schema import RegisteredSchema


def names(schema: RegisteredSchema) -> tuple[str, ...]:
    """Return the names of the record type that a schema describes.

    Returns:
        Of an Avro schema the full name and then its aliases, of a Protobuf schema the full name of its first message,
        of a JSON Schema the title. Empty where it has none.
    """
    if schema.type == "PROTOBUF":
        try:
            return (protobuf.message(schema).full_name,)
        except SchemaError:
            return ()
    parsed = json.loads(schema.text)
    if not isinstance(parsed, dict):
        return ()
    if schema.type == "JSON":
        title = parsed.get("title")
        return (title,) if isinstance(title, str) and title else ()
    name, namespace, aliases = parsed.get("name"), parsed.get("namespace"), parsed.get("aliases")
    if not isinstance(name, str):
        return ()
    namespace = name.rpartition(".")[0] if "." in name else namespace if isinstance(namespace, str) else ""
    others = [alias for alias in aliases if isinstance(alias, str)] if isinstance(aliases, list) else []
    return tuple(one if "." in one or not namespace else f"{namespace}.{one}" for one in (name, *others))


def is_named(schema: RegisteredSchema, record: str) -> bool:
    """Return whether a schema is of the record type that an entry in lakehouse.yaml names.

    Args:
        schema: The schema.
        record: The full name of the record or message, the name of a record without its namespace, or a title.
    """
    if schema.type == "PROTOBUF":
        return protobuf.has(schema, record)
    found = names(schema)[:1]
    return record in found or schema.type == "AVRO" and record in [name.rpartition(".")[2] for name in found]


def is_same(schema: RegisteredSchema, versions: Sequence[RegisteredSchema], record: str = "") -> bool:
    """Return whether a schema of another subject is of the record type of a topic's own.

    Args:
        schema: The schema.
        versions: The versions of the topic's own schema.
        record: The record type that the topic's entry names, if it does.
    """
    if record and schema.type == "PROTOBUF":
        return protobuf.has(schema, record)
    own = {name for version in versions if version.type == schema.type for name in names(version)}
    return not own.isdisjoint(names(schema)[:1])
