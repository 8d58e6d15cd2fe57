"""Format `avro`: columns of Avro schemas, and the reader type of all versions of a schema."""

import json
from collections.abc import Sequence

from lakehouse.core.errors import SchemaError
from lakehouse.formats.avro.avro_columns import columns
from lakehouse.formats.avro.avro_types import Type, parse, require_bounded
from lakehouse.formats.avro.avro_versions import merged
from lakehouse.formats.format import MessageSchema, RegisteredFormat
from lakehouse.formats.schema import RegisteredSchema, Shape


class AvroFormat(RegisteredFormat):
    """Avro records in the Confluent wire format."""

    name = "avro"
    decoder = "spark.codecs.avro_codec:decoder"
    schema_type = "AVRO"
    suffix = ".avsc"

    def reader(self, schema: MessageSchema) -> Type:
        """Return the reader type of records of every version."""
        return reader(schema.read_by)

    def columns(self, reader: Type) -> Shape:
        """Return one column per field."""
        return columns(reader)

    def names(self, schema: RegisteredSchema) -> tuple[str, ...]:
        """Return a record's full name, followed by its aliases."""
        parsed = self.parse(schema)
        if not isinstance(parsed, dict) or not isinstance(name := parsed.get("name"), str):
            return ()
        namespace, aliases = parsed.get("namespace"), parsed.get("aliases")
        namespace = name.rpartition(".")[0] if "." in name else namespace if isinstance(namespace, str) else ""
        others = [alias for alias in aliases if isinstance(alias, str)] if isinstance(aliases, list) else []
        return tuple(alias if "." in alias or not namespace else f"{namespace}.{alias}" for alias in (name, *others))

    def is_named(self, schema: RegisteredSchema, record: str) -> bool:
        """Return whether the schema's record has the name, with or without its namespace."""
        return any(record in (name, name.rpartition(".")[2]) for name in self.names(schema)[:1])


def reader(schemas: Sequence[RegisteredSchema]) -> Type:
    """Return the reader type of records of every version: the newest version merged with the older ones.

    Fields that the newest version dropped follow the others and are optional; enums have the symbols and unions the
    branches of all versions; a field that an older version lacks is null there unless it has a default. Fields renamed
    by alias, or in case only, are not dropped.

    Args:
        schemas: The subject's versions, newest last.

    Raises:
        SchemaError: The newest is not a record, or a version is recursive, not valid, or exceeds a limit.
    """
    type_, *older = (parse(schema) for schema in reversed(schemas))
    if type_.kind != "record":
        raise SchemaError("The Avro schema is not a record, so it has no columns. Wrap the value in a record")
    for version in older:
        type_ = merged(type_, version)
    require_bounded(type_)
    return type_


def field_names(schema: str) -> list[str]:
    """Return the names of the top-level fields of a record schema, in order.

    Raises:
        SchemaError: The schema is not a record, or a field has no name.
        ValueError: The schema is not JSON.
    """
    parsed = json.loads(schema)
    if not isinstance(parsed, dict) or parsed.get("type") != "record":
        raise SchemaError("The Avro schema is not a record, so it has no columns. Wrap the value in a record")
    try:
        return [field["name"] for field in parsed["fields"]]
    except (KeyError, TypeError) as error:
        raise SchemaError(f"The Avro schema is not valid: {type(error).__name__} {error}. Correct it") from error
