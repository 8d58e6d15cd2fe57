"""Decode messages that are one value: text, a number, or bytes (the serializers of Apache Kafka's clients)."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, ClassVar, Self

from pyspark.sql import Column
from pyspark.sql import functions as F

from lakehouse.formats.format import MessageSchema
from lakehouse.formats.mistaken_format import frame_fault
from spark.codecs.json_codec import JsonCodec, is_one_value
from spark.decoding.decode import Codec


def json(schema: MessageSchema, reader: Any) -> Codec:
    """Return the codec of JSON text: into its properties if there is a schema, else into one column of text."""
    return JsonCodec(reader) if schema.versions else JsonTextCodec.of(schema, reader)


@dataclass(frozen=True)
class PlainCodec(Codec):
    """Codec of a single column."""

    column: str

    @classmethod
    def of(cls, schema: MessageSchema, column: str) -> Self:
        """Return the codec of a column."""
        return cls(column)

    @property
    def columns(self) -> list[str]:
        return [self.column]

    def decode(self, data: Column) -> Column:
        row = F.struct(self._value(data).alias(self.column))
        return F.when(self._fits(data), F.struct(row.alias("row"), F.lit(True).alias("good")))

    def schema_id(self, data: Column) -> Column:
        return F.lit(None).cast("int")

    def framed(self, data: Column) -> Column:
        return F.lit(True)

    @abstractmethod
    def _value(self, data: Column) -> Column:
        """Return the column's value, for bytes that fit."""

    @abstractmethod
    def _fits(self, data: Column) -> Column:
        """Return whether the bytes are a value."""


@dataclass(frozen=True)
class BytesCodec(PlainCodec):
    """Any bytes."""

    def _value(self, data: Column) -> Column:
        return data

    def _fits(self, data: Column) -> Column:
        return data.isNotNull()


@dataclass(frozen=True)
class IntegerCodec(PlainCodec):
    """A signed number of 4 bytes, big endian."""

    type: ClassVar[str] = "int"
    length: ClassVar[int] = 4

    def explain(self, data: bytes) -> str | None:
        return f"'{self.column}': {self.type} has {self.length} bytes, but the message has {len(data)}"

    def _value(self, data: Column) -> Column:
        # conv reads unsigned numbers; convert them to two's complement.
        bits = 8 * self.length
        unsigned = F.conv(F.hex(data), 16, 10).cast("decimal(20,0)")
        half, whole = F.lit(Decimal(2 ** (bits - 1))), F.lit(Decimal(2**bits))
        return F.when(unsigned >= half, unsigned - whole).otherwise(unsigned).cast(self.type)

    def _fits(self, data: Column) -> Column:
        return F.octet_length(data) == self.length


@dataclass(frozen=True)
class LongCodec(IntegerCodec):
    """A signed number of 8 bytes, big endian."""

    type = "long"
    length = 8


@dataclass(frozen=True)
class TextCodec(PlainCodec):
    """Text in UTF-8."""

    @property
    def is_text(self) -> bool:
        return True

    def explain(self, data: bytes) -> str | None:
        try:
            data.decode()
        except UnicodeDecodeError as error:
            return f"'{self.column}': text is not UTF-8 (byte {error.start})"
        return None

    def _value(self, data: Column) -> Column:
        return data.cast("string")

    def _fits(self, data: Column) -> Column:
        return F.try_validate_utf8(data.cast("string")).isNotNull()


@dataclass(frozen=True)
class JsonTextCodec(TextCodec):
    """JSON text without a schema, stored unchanged."""

    @property
    def json_columns(self) -> frozenset[str]:
        return frozenset({self.column})

    def explain(self, data: bytes) -> str | None:
        fault = frame_fault(data) or super().explain(data)
        return fault or f"'{self.column}': text is not one JSON value"

    def _fits(self, data: Column) -> Column:
        return is_one_value(F.try_validate_utf8(data.cast("string")))
