"""The protocol of a format: how one side of a topic's messages, key or value, is encoded."""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from lakehouse.core.errors import SchemaError
from lakehouse.formats.schema import RegisteredSchema, SchemaType, Shape


@dataclass(frozen=True)
class MessageSchema:
    """What is known of one side of a topic's messages.

    `versions` are the schemas that messages may be written with, oldest first, and `read_by` those of them that say
    what the columns are. `record` is the record type that the topic's entry names, if it does. `column` is the name of
    the column where a message is one value.
    """

    versions: tuple[RegisteredSchema, ...] = ()
    read_by: tuple[RegisteredSchema, ...] = ()
    record: str = ""
    column: str = "value"


class Format(ABC):
    """How messages are encoded: the columns that they become, and the decoder that makes rows of them."""

    name: ClassVar[str]
    """What lakehouse.yaml calls it."""

    decoder: ClassVar[str]
    """`module:function` of what takes a MessageSchema and its reader and returns a codec (spark.decode.Codec). It is
    named, not imported: only where records are decoded is there PySpark."""

    is_scalar: ClassVar[bool] = False
    """Whether a message is one value, which is no more than one column of a key."""

    file_type: ClassVar[SchemaType | None] = None
    """The type of the schema in `value_schema_file`; None where the format takes none."""

    @abstractmethod
    def reader(self, schema: MessageSchema) -> Any:
        """Return what messages of every version are read as, in the format's own terms.

        Raises:
            SchemaError: The schema cannot become columns.
        """

    @abstractmethod
    def columns(self, reader: Any) -> Shape:
        """Return the columns that messages become.

        Args:
            reader: What `reader` returned.

        Raises:
            SchemaError: There are no such columns.
        """

    def shape(self, schema: MessageSchema) -> Shape:
        """Return the columns of messages of a schema.

        Raises:
            SchemaError: The schema cannot become columns.
        """
        return self.columns(self.reader(schema))


class RegisteredFormat(Format):
    """A format whose schemas are in the schema registry."""

    schema_type: ClassVar[SchemaType]
    """What the registry calls its schemas."""

    suffix: ClassVar[str]
    """How the name of a schema's file ends."""

    names_are_optional: ClassVar[bool] = False
    """Whether a schema may leave its record type without a name."""

    @abstractmethod
    def names(self, schema: RegisteredSchema) -> tuple[str, ...]:
        """Return the names of the record type that a schema describes, its own first; none where it has none."""

    def parse(self, schema: RegisteredSchema) -> Any:
        """Read a schema's text, which is JSON unless a format says otherwise.

        Raises:
            SchemaError: The text is no schema.
            ValueError: The text is no JSON.
        """
        return json.loads(schema.text)

    def is_readable(self, schema: RegisteredSchema) -> bool:
        """Return whether the record type of a schema can be determined."""
        try:
            self.parse(schema)
        except (SchemaError, ValueError, RecursionError):
            return False
        return True

    def is_named(self, schema: RegisteredSchema, record: str) -> bool:
        """Return whether a schema is of the record type that an entry of lakehouse.yaml names."""
        return record in self.names(schema)[:1]

    def is_same(self, schema: RegisteredSchema, versions: Sequence[RegisteredSchema], record: str) -> bool:
        """Return whether a schema of another subject is of the record type of a topic's own.

        Args:
            schema: The schema.
            versions: The versions of the topic's own schema.
            record: The record type that the topic's entry names, if it does.
        """
        own = {name for version in versions if version.type == schema.type for name in self.names(version)}
        return not own.isdisjoint(self.names(schema)[:1])
