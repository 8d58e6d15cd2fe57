"""Schemas of messages as columns of tables, one format a module or a few; and how the columns of a table may change.

To add a format, write a module with a Format and its decoder in spark/, and add it to FORMATS. A separate distribution
names its class as an entry point of the group `lakehouse.formats`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache

from lakehouse.core.errors import ConfigError
from lakehouse.core.registry import implementations
from lakehouse.core.words import did_you_mean
from lakehouse.formats.avro import AvroFormat
from lakehouse.formats.format import Format, RegisteredFormat
from lakehouse.formats.json import JsonFormat
from lakehouse.formats.json_schema import JsonSchemaFormat
from lakehouse.formats.primitive import BytesFormat, IntFormat, LongFormat, StringFormat
from lakehouse.formats.protobuf import ProtobufFormat

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
"""The formats of this project."""


@cache
def registered() -> Mapping[str, Format]:
    """Return all formats by name: this project's and those of installed distributions.

    Raises:
        ConfigError: Two formats have the same name.
    """
    return {name: format_() for name, format_ in implementations(FORMATS, "lakehouse.formats").items()}


def format_of(name: str) -> Format:
    """Return the format of that name.

    Raises:
        ConfigError: No format has the name.
    """
    if name not in registered():
        hint = did_you_mean(name, registered())
        raise ConfigError(f"'{name}' is no format of keys or values.{hint} Known formats: {', '.join(registered())}")
    return registered()[name]


def with_schemas() -> Sequence[RegisteredFormat]:
    """Return the formats whose schemas are in the schema registry."""
    return [format_ for format_ in registered().values() if isinstance(format_, RegisteredFormat)]


def of_type(type_: str) -> RegisteredFormat | None:
    """Return the format whose schemas are of a type, as the registry calls it; None where there is none."""
    return next((format_ for format_ in with_schemas() if format_.schema_type == type_), None)
