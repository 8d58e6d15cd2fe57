"""Protocol of a format, the encoding of one side (key or value) of a topic's messages."""

import json
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

from lakehouse.core.errors import SchemaError
from lakehouse.formats.schema import RegisteredSchema, SchemaType, Shape

WideDecimals = Literal["refuse", "limit"]
"""Reactions to decimals of more digits than Iceberg has."""


@dataclass(frozen=True)
class Conversions:
    """Settings of a topic that decide the columns of some Avro types.

    `wide_decimals` is the topic's setting. `times` is whether Debezium's dates and times are converted, and
    `decimal_scale` the number of digits after the point of its decimals of variable scale; None if they are not.
    """

    wide_decimals: WideDecimals = "refuse"
    times: bool = False
    decimal_scale: int | None = None


@dataclass(frozen=True)
class MessageSchema:
    """Schemas of one side of a topic's messages.

    `versions` are the schemas that messages may be written with, oldest first, and `read_by` those of them that define
    the columns. `record` is the record type that the topic's entry names; empty if it names none. `column` is the name
    of the column of a message that is one value; empty if messages have several columns. `conversions` are those of the
    topic.
    """

    versions: tuple[RegisteredSchema, ...] = ()
    read_by: tuple[RegisteredSchema, ...] = ()
    record: str = ""
    column: str = ""
    conversions: Conversions = Conversions()


class Format(ABC):
    """Encoding of messages: their columns, and the decoder that turns them into rows."""

    name: ClassVar[str]
    """Name in lakehouse.yaml."""

    decoder: ClassVar[str]
    """`module:function` that returns a codec (spark.decoding.decode.Codec) for a MessageSchema and its reader. It is
    not imported here, because PySpark is available only where records are decoded."""

    is_scalar: ClassVar[bool] = False
    """Whether a message is a single value, so that a key has only one column."""

    file_type: ClassVar[SchemaType | None] = None
    """Type of the schema in `value_schema_file`; None if the format does not support one."""

    @abstractmethod
    def reader(self, schema: MessageSchema) -> Any:
        """Return the reader schema that messages of every version decode into, as an object of this format.

        Raises:
            SchemaError: The schema cannot become columns.
        """

    @abstractmethod
    def columns(self, reader: Any) -> Shape:
        """Return the columns of a reader schema.

        Raises:
            SchemaError: The schema cannot become columns.
        """

    def shape(self, schema: MessageSchema) -> Shape:
        """Return the columns of messages of a schema."""
        return self.columns(self.reader(schema))


class RegisteredFormat(Format):
    """A format with schemas in the schema registry."""

    schema_type: ClassVar[SchemaType]
    """Type of its schemas in the registry."""

    suffix: ClassVar[str]
    """Suffix of the name of a schema file."""

    names_are_optional: ClassVar[bool] = False
    """Whether the record type of a schema may have no name."""

    @abstractmethod
    def names(self, schema: RegisteredSchema) -> tuple[str, ...]:
        """Return the name and then the aliases of the record type that a schema describes; may be empty."""

    def parse(self, schema: RegisteredSchema) -> Any:
        """Parse a schema's text, by default as JSON.

        Raises:
            SchemaError: The text is not a schema.
            ValueError: The text is not JSON.
        """
        return json.loads(schema.text)

    def as_record(self, schema: RegisteredSchema, column: str) -> RegisteredSchema:
        """Return a schema of single values as one of records with one field, if both encode a value in the same way.

        Other schemas are returned as they are.
        """
        return schema

    def is_readable(self, schema: RegisteredSchema) -> bool:
        """Return whether the record type of a schema can be determined."""
        try:
            self.parse(schema)
        except (SchemaError, ValueError, RecursionError):
            return False
        return True

    def is_named(self, schema: RegisteredSchema, record: str) -> bool:
        """Return whether a schema describes the record type that an entry of lakehouse.yaml names."""
        return record in self.names(schema)[:1]

    def is_same(self, schema: RegisteredSchema, versions: Sequence[RegisteredSchema], record: str) -> bool:
        """Return whether a schema of another subject describes the record type of a topic.

        Args:
            record: The record type that the topic's entry names; empty if it names none.
        """
        names = {name for version in versions if version.type == schema.type for name in self.names(version)}
        return not names.isdisjoint(self.names(schema)[:1])
