"""Message bytes → rows, or the reason why not.

Decoding stays in the JVM. Each writer schema id decodes with its own writer schema into the table's schema; the frame
is Confluent's: a zero byte, the schema id as four bytes big endian, then the body (Schema Registry, Wire format).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import reduce
from typing import Protocol

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.avro.functions import from_avro

from lakehouse.avro import DECODED, field_names, reader_schema

FRAME_BYTES = 5

METADATA = (
    ("kafka_partition", "int", "Kafka partition of the record"),
    ("kafka_offset", "long", "Kafka offset of the record"),
    ("kafka_timestamp", "timestamptz", "Kafka timestamp of the record, milliseconds"),
    ("kafka_schema_id", "int", "Registry id of the schema the value was written with"),
)
"""Columns that every table has after its own, as (name, Iceberg type, comment)."""

REASONS = {
    "null_value": "The value is null, and an append table has no row for it",
    "not_framed": "The value is not in the Confluent wire format: a zero byte and a 4-byte schema id come first",
    "unknown_schema": "The registry knows no schema of the id in the value",
    "undecodable": "The value does not decode with the schema of its id",
    "bad_key": "A key column is missing: the message key cannot be read, or the value holds null",
}
"""Why a record is a dead letter: a stable code and a sentence."""


class Codec(Protocol):
    """How one side of a message, key or value, becomes columns. Every format is one of these."""

    @property
    def columns(self) -> list[str]:
        """The columns it yields, in order."""
        ...

    def decode(self, data: Column) -> Column:
        """A struct of `columns`, with DECODED true where `data` was decoded."""
        ...

    def schema_id(self, data: Column) -> Column:
        """The id of the writer's schema where it is known, else null."""
        ...

    def framed(self, data: Column) -> Column:
        """Whether `data` looks like this format at all."""
        ...


@dataclass(frozen=True)
class AvroCodec:
    """Avro records in the Confluent wire format.

    Parameters: `writers` are the schemas that records were written with, by registry id; `reader` is the schema all of
    them are resolved to (Avro specification, Schema Resolution).
    """

    writers: Mapping[int, str]
    reader: str

    @property
    def columns(self) -> list[str]:
        return field_names(self.reader)

    def decode(self, data: Column) -> Column:
        options = {"mode": "PERMISSIVE", "avroSchema": reader_schema(self.reader)}
        body = F.substring(data, F.lit(FRAME_BYTES + 1), F.octet_length(data))
        return self._by_writer(data, lambda id_: from_avro(body, self.writers[id_], options))

    def schema_id(self, data: Column) -> Column:
        return self._by_writer(data, F.lit)

    def framed(self, data: Column) -> Column:
        return (F.octet_length(data) > FRAME_BYTES) & (F.substring(data, 1, 1) == F.lit(b"\x00"))

    def _by_writer(self, data: Column, then) -> Column:
        frame = F.substring(data, 1, FRAME_BYTES)
        branches = [(frame == F.lit(b"\x00" + id_.to_bytes(4, "big")), then(id_)) for id_ in sorted(self.writers)]
        return reduce(lambda chain, branch: chain.when(*branch), branches, F)


@dataclass(frozen=True)
class StringCodec:
    """UTF-8 text as one column (Kafka's StringSerializer)."""

    column: str

    @property
    def columns(self) -> list[str]:
        return [self.column]

    def decode(self, data: Column) -> Column:
        text = F.try_validate_utf8(data.cast("string"))
        return F.when(text.isNotNull(), F.struct(text.alias(self.column), F.lit(True).alias(DECODED)))

    def schema_id(self, data: Column) -> Column:
        return F.lit(None).cast("int")

    def framed(self, data: Column) -> Column:
        return F.lit(True)


def decode(
    records: DataFrame, value: Codec, key: Codec | None, key_columns: tuple[str, ...], upsert: bool
) -> DataFrame:
    """Records → the table's columns beside the raw record, with `reason` null where the row is good.

    Parameters: `records` as spark.records reads them. `key` is the codec of the message key where the table needs it
    (upsert; a null value is then a tombstone, marked by `tombstone`), else None. `key_columns` must not be null.
    Returns: columns of `records`, the table's columns, `tombstone` and `reason` (a key of REASONS or null).
    """
    data = F.col("value")
    decoded = records.select(
        "*",
        value.decode(data).alias("v"),
        value.schema_id(data).alias("kafka_schema_id"),
        (key.decode(F.col("key")) if key else F.lit(None)).alias("k"),
    )
    null_value = data.isNull()
    faults = [
        (null_value, "null_value"),
        (~value.framed(data), "not_framed"),
        (F.col("kafka_schema_id").isNull(), "unknown_schema"),
        (F.col(f"v.{DECODED}").isNull(), "undecodable"),
    ]
    if upsert:
        faults = [(~null_value & fault, reason) for fault, reason in faults[1:]]
    columns = {name: F.col(f"v.`{name}`") for name in value.columns}
    for name in key.columns if key else ():
        from_key = F.col(f"k.`{name}`")
        columns[name] = F.coalesce(columns[name], from_key) if name in columns else from_key
    faults += [(columns[name].isNull(), "bad_key") for name in key_columns]
    reason = reduce(lambda chain, fault: chain.when(*fault), faults, F)
    return decoded.select(
        "key",
        "value",
        *(["headers"] if "headers" in records.columns else []),
        *(column.alias(name) for name, column in columns.items()),
        F.col("partition").alias("kafka_partition"),
        F.col("offset").alias("kafka_offset"),
        F.col("timestamp").alias("kafka_timestamp"),
        "kafka_schema_id",
        null_value.alias("tombstone"),
        reason.alias("reason"),
    )


def foreign_schema_ids(decoded: DataFrame) -> list[int]:
    """The schema ids of records whose reason is `unknown_schema`."""
    frame = F.substring(F.col("value"), 2, 4)
    unknown = decoded.filter(F.col("reason") == "unknown_schema").select(frame.alias("frame")).distinct()
    return [int.from_bytes(row["frame"], "big") for row in unknown.collect()]
