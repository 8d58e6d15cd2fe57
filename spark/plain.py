"""Messages that are one value: text, a number, or bytes (Apache Kafka, the serializers of its clients)."""

from __future__ import annotations

from dataclasses import dataclass
from decimal import Decimal
from typing import Literal

from pyspark.sql import Column
from pyspark.sql import functions as F

from spark.decode import Codec
from spark.json import END, VALUE, wrapped

Kind = Literal["string", "json", "int", "long", "bytes"]
LENGTHS = {"int": 4, "long": 8}
"""Bytes of a number, big endian."""


@dataclass(frozen=True)
class PlainCodec(Codec):
    """One column. `json` is text that has no schema, kept as it is."""

    kind: Kind
    column: str

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

    def explain(self, data: bytes) -> str | None:
        if self.kind in LENGTHS:
            return f"'{self.column}': {self.kind} takes {LENGTHS[self.kind]} bytes, and there are {len(data)}"
        try:
            data.decode()
        except UnicodeDecodeError as error:
            return f"'{self.column}': text is not UTF-8 (byte {error.start})"
        return f"'{self.column}': text is not one JSON value" if self.kind == "json" else None

    def _fits(self, data: Column) -> Column:
        if self.kind in LENGTHS:
            return F.octet_length(data) == LENGTHS[self.kind]
        if self.kind == "bytes":
            return data.isNotNull()
        text = F.try_validate_utf8(data.cast("string"))
        if self.kind == "string":
            return text.isNotNull()
        parsed = F.try_parse_json(wrapped(text))
        items = F.try_variant_get(parsed, f"$.{VALUE}", "array<variant>")
        return F.try_variant_get(parsed, f"$.{END}", "int").isNotNull() & (F.size(items) == 1)

    def _value(self, data: Column) -> Column:
        match self.kind:
            case "bytes":
                return data
            case "int" | "long":
                # Two's complement: what conv reads is unsigned.
                bits = 8 * LENGTHS[self.kind]
                unsigned = F.conv(F.hex(data), 16, 10).cast("decimal(20,0)")
                half, whole = F.lit(Decimal(2 ** (bits - 1))), F.lit(Decimal(2**bits))
                return F.when(unsigned >= half, unsigned - whole).otherwise(unsigned).cast(self.kind)
        return data.cast("string")
