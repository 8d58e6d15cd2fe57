"""Table columns of message schemas, with one or a few modules per format, and the rules by which columns may change.

To add a format, write a module with a Format here and its decoder in spark/, and add it to FORMATS. Another
distribution declares its class as an entry point of the group `lakehouse.formats`.
"""

from collections.abc import Mapping, Sequence
from functools import cache

from lakehouse.core.registry import by_name, implementations
from lakehouse.formats.avro.avro_format import AvroFormat
from lakehouse.formats.format import Format, RegisteredFormat
from lakehouse.formats.json.json_format import JsonFormat, JsonSchemaFormat
from lakehouse.formats.primitive_formats import BytesFormat, IntFormat, LongFormat, StringFormat
from lakehouse.formats.protobuf.protobuf_format import ProtobufFormat
from lakehouse.formats.schema import RegisteredSchema

FORMATS: Sequence[type[Format]] = (
    AvroFormat,
    JsonSchemaFormat,
    ProtobufFormat,
    JsonFormat,
    StringFormat,
    IntFormat,
    LongFormat,
    BytesFormat,
)
"""Formats of this project."""


@cache
def registered() -> Mapping[str, Format]:
    """Return all formats by name: this project's and those of installed distributions."""
    return {name: format_() for name, format_ in implementations(FORMATS, "lakehouse.formats").items()}


def format_of(name: str) -> Format:
    """Return the format with the name."""
    return by_name(registered(), name, f"'{name}' is not a format of keys or values.")


def with_schemas() -> Sequence[RegisteredFormat]:
    """Return the formats with schemas in the schema registry."""
    return [format_ for format_ in registered().values() if isinstance(format_, RegisteredFormat)]


def of_type(type_: str) -> RegisteredFormat | None:
    """Return the format of a schema type of the registry; None if there is none."""
    return next((format_ for format_ in with_schemas() if format_.schema_type == type_), None)


def is_named(schema: RegisteredSchema, record: str) -> bool:
    """Return whether a schema describes the record type that an entry in lakehouse.yaml names.

    Args:
        record: The full name of an Avro record or Protobuf message, the name of an Avro record without its namespace,
            or the title of a JSON Schema.
    """
    format_ = of_type(schema.type)
    return format_ is not None and format_.is_named(schema, record)


def is_same(schema: RegisteredSchema, versions: Sequence[RegisteredSchema], record: str = "") -> bool:
    """Return whether a schema of another subject describes the record type of a topic."""
    format_ = of_type(schema.type)
    return format_ is not None and format_.is_same(schema, versions, record)
