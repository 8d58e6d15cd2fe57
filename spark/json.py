"""JSON messages → rows, with Spark's own parser. What does not match its schema is not a row with nulls in it."""

from __future__ import annotations

import secrets
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import reduce

from pyspark.sql import Column
from pyspark.sql import functions as F
from pyspark.sql import types as T

from lakehouse.json_schema import Field, Kind
from spark.conditions import some
from spark.decode import FRAME_BYTES, Codec

OPTIONS = {
    "mode": "PERMISSIVE",
    "columnNameOfCorruptRecord": "__corrupt",
    # Spark reads more than JSON unless it is told not to.
    "allowSingleQuotes": "false",
    "allowNonNumericNumbers": "false",
    "prefersDecimal": "false",
}
"""Spark, JSON Files: data source options."""

VALUE, END = (f"{name}_{secrets.token_hex(8)}" for name in ("value", "end"))
"""Names that nobody can have written into a message: every process has others."""


def wrapped(text: Column) -> Column:
    """The text as the one item of a list inside of an object with a member behind it.

    Spark does not look behind the first JSON value of a text. Whatever is not one whole value, or has something behind
    it, breaks the list or makes it longer.
    """
    return F.concat(F.lit(f'{{"{VALUE}":['), text, F.lit(f'],"{END}":1}}'))


DATE = r"^\d{4}-\d\d-\d\d$"
MOMENT = r"^\d{4}-\d\d-\d\d[Tt ]\d\d:\d\d:\d\d(\.\d{1,6}0*)?([Zz]|[+-]\d\d:\d\d)$"
"""RFC 3339, 5.6; of a fraction, what a column of microseconds holds."""


@dataclass(frozen=True)
class JsonCodec(Codec):
    """JSON objects, in the Confluent wire format or, without `writers`, as bare text.

    Parameters: `writers` are the registry ids that messages may have; `fields` are the columns.
    """

    fields: tuple[Field, ...]
    writers: frozenset[int] | None = None

    @property
    def columns(self) -> list[str]:
        return [field.name for field in self.fields]

    def decode(self, data: Column) -> Column:
        body = data if self.writers is None else F.substring(data, F.lit(FRAME_BYTES + 1), F.octet_length(data))
        value = T.ArrayType(_parsed_type(Field("", "struct", self.fields)))
        members = {VALUE: value, END: T.IntegerType(), "__corrupt": T.StringType()}
        schema = T.StructType([T.StructField(name, type_) for name, type_ in members.items()])
        return F.from_json(wrapped(F.try_validate_utf8(body.cast("string"))), schema, OPTIONS)

    def finished(self, struct: Column) -> Column:
        value = F.try_element_at(struct[VALUE], F.lit(1))
        whole = (struct[END] == 1) & struct["__corrupt"].isNull() & (F.size(struct[VALUE]) == 1) & value.isNotNull()
        faulty = some([fault for field in self.fields for fault in _faults(value[field.name], field, value)])
        good = F.coalesce(whole, F.lit(False)) & ~(F.lit(False) if faulty is None else faulty)
        row = F.struct(*(_converted(value[field.name], field).alias(field.name) for field in self.fields))
        return F.struct(row.alias("row"), good.alias("good"))

    def schema_id(self, data: Column) -> Column:
        if not self.writers:
            return F.lit(None).cast("int")
        frame = F.substring(data, 1, FRAME_BYTES)
        known = [(frame == F.lit(b"\x00" + id_.to_bytes(4, "big")), F.lit(id_)) for id_ in sorted(self.writers)]
        return reduce(lambda chain, branch: chain.when(*branch), known, F)

    def framed(self, data: Column) -> Column:
        if self.writers is None:
            return F.lit(True)
        return (F.octet_length(data) > FRAME_BYTES) & (F.substring(data, 1, 1) == F.lit(b"\x00"))


def _parsed_type(field: Field) -> T.DataType:
    """What the parser is asked for: dates and times as they are written."""
    return _type(field, {})


def _column_type(field: Field) -> T.DataType:
    return _type(field, {"date": T.DateType(), "timestamp": T.TimestampType()})


def _type(field: Field, times: Mapping[Kind, T.DataType]) -> T.DataType:
    match field.kind:
        case "struct":
            return T.StructType([T.StructField(part.name, _type(part, times)) for part in field.fields])
        case "list":
            return T.ArrayType(_type(field.fields[0], times))
        case "map":
            return T.MapType(T.StringType(), _type(field.fields[0], times))
    scalars = {"long": T.LongType(), "double": T.DoubleType(), "boolean": T.BooleanType(), **times}
    return scalars.get(field.kind, T.StringType())


def _faults(value: Column, field: Field, within: Column) -> Iterator[Column]:
    """Conditions, never null, under which a parsed value is not what its schema says, or no column can hold it.

    Parameters: `within` is the struct, list or map that holds the value: where that is null, nothing is required.
    """
    if field.required:
        yield within.isNotNull() & value.isNull()
    match field.kind:
        case "date":
            yield value.isNotNull() & ~(value.rlike(DATE) & value.try_cast("date").isNotNull())
        case "timestamp":
            yield value.isNotNull() & ~(value.rlike(MOMENT) & value.try_cast("timestamp").isNotNull())
        case "double":
            # A number too large for a double is parsed as infinite.
            yield value.isNotNull() & value.isin(float("inf"), float("-inf"))
        case "struct":
            for part in field.fields:
                yield from _faults(value[part.name], part, value)
        case "list" | "map" if _is_checked(field):
            values = F.map_values(value) if field.kind == "map" else value
            yield value.isNotNull() & F.exists(values, lambda x: some(list(_faults(x, field.fields[0], value))))


def _is_checked(field: Field) -> bool:
    """Whether a value of the field can have faults."""
    return field.required or field.kind in ("date", "timestamp", "double") or any(map(_is_checked, field.fields))


def _converted(value: Column, field: Field) -> Column:
    """A parsed value in its column's type."""
    return value.try_cast(_column_type(field)) if _has_time(field) else value


def _has_time(field: Field) -> bool:
    return field.kind in ("date", "timestamp") or any(map(_has_time, field.fields))
