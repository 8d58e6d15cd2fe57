"""Avro schemas as Iceberg columns, and the one type that reads what every version of a schema wrote."""

from __future__ import annotations

import json
from collections.abc import Sequence

from lakehouse.core.errors import SchemaError
from lakehouse.formats.avro_columns import columns
from lakehouse.formats.avro_types import Type, parse, require_bounded
from lakehouse.formats.avro_versions import merged
from lakehouse.formats.format import MessageSchema, RegisteredFormat
from lakehouse.formats.schema import RegisteredSchema, Shape


class AvroFormat(RegisteredFormat):
    """Avro records in the Confluent wire format."""

    name = "avro"
    decoder = "spark.avro:decoder"
    schema_type = "AVRO"
    suffix = ".avsc"

    def reader(self, schema: MessageSchema) -> Type:
        """Return the type that reads records of every version."""
        return reader(schema.read_by)

    def columns(self, reader: Type) -> Shape:
        """Return a column a field."""
        return columns(reader)

    def names(self, schema: RegisteredSchema) -> tuple[str, ...]:
        """Return a record's full name, and then its aliases."""
        parsed = self.parse(schema)
        if not isinstance(parsed, dict) or not isinstance(name := parsed.get("name"), str):
            return ()
        namespace, aliases = parsed.get("namespace"), parsed.get("aliases")
        namespace = name.rpartition(".")[0] if "." in name else namespace if isinstance(namespace, str) else ""
        others = [alias for alias in aliases if isinstance(alias, str)] if isinstance(aliases, list) else []
        return tuple(one if "." in one or not namespace else f"{namespace}.{one}" for one in (name, *others))

    def is_named(self, schema: RegisteredSchema, record: str) -> bool:
        """Return whether a schema is of a record of that name, with or without its namespace."""
        return any(record in (name, name.rpartition(".")[2]) for name in self.names(schema)[:1])


def shape(schemas: Sequence[RegisteredSchema]) -> Shape:
    """The columns of a subject's records: those of `reader(schemas)`.

    Args:
        schemas: the subject's versions, newest last.

    Raises:
        SchemaError: The newest is no record, one is recursive or not valid, has a type that Iceberg lacks, two columns
            of one name (upper and lower case are one), or more of anything than the limits.
    """
    return columns(reader(schemas))


def reader(schemas: Sequence[RegisteredSchema]) -> Type:
    """The type that reads records of every version: the newest, and what older versions had besides.

    Fields that the newest dropped follow the others, optional; an enum has the symbols of all versions, and a union the
    branches; a field that an older version lacks is null there unless it has a default. A field renamed by alias, or by
    upper and lower case only, is not a dropped one.

    Args:
        schemas: the subject's versions, newest last.

    Raises:
        SchemaError: See `shape`.
    """
    found, *older = (parse(schema) for schema in reversed(schemas))
    if found.kind != "record":
        raise SchemaError("The Avro schema is not a record, so it has no columns. Wrap the value in a record")
    for version in older:
        found = merged(found, version)
    require_bounded(found)
    return found


def field_names(schema: str) -> list[str]:
    """The top-level fields of a record schema, in order.

    Raises: SchemaError when the schema is not a record, the only shape that has columns.
    """
    parsed = json.loads(schema)
    if not isinstance(parsed, dict) or parsed.get("type") != "record":
        raise SchemaError("The Avro schema is not a record, so it has no columns. Wrap the value in a record")
    return [field["name"] for field in parsed["fields"]]
