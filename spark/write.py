"""Decoded rows → one commit on a branch, in one pass, counting on the way."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pyspark.sql import DataFrame, Observation, SparkSession
from pyspark.sql import functions as F

from lakehouse import naming
from lakehouse.batch import TOKEN, Batch
from spark import merge
from spark.decode import REASONS
from spark.records import is_new

if TYPE_CHECKING:
    from pyiceberg.schema import Schema


@dataclass(frozen=True)
class Counts:
    """What one batch held, in records: each is counted once, so `consumed` is the sum of the rest.

    `superseded` records were followed by a newer one for the same key in the same batch.
    """

    consumed: int = 0
    rows: int = 0
    tombstones: int = 0
    superseded: int = 0
    dead_letters: int = 0
    unknown_schema: int = 0
    """Dead letters whose schema id was not among the writers given; part of `dead_letters`."""


def create_branch(spark: SparkSession, namespace: str, table: str, branch: str) -> None:
    """A branch at main's head; on a table without snapshots, at an empty one."""
    target = naming.spark_table(namespace, table)
    spark.sql(f"ALTER TABLE {target} CREATE BRANCH {naming.spark_identifier(branch)}")


def append(decoded: DataFrame, namespace: str, table: str, branch: str, batch: Batch) -> Counts:
    """Append the good rows to the branch."""
    target = naming.spark_table(namespace, table, branch=branch)
    observation, observed = _observe(decoded)
    rows = _table_rows(observed.filter(F.col("reason").isNull()), target)
    with _token(decoded.sparkSession, batch):
        rows.writeTo(target).append()
    counts = observation.get
    return Counts(**counts, rows=counts["consumed"] - counts["dead_letters"])


def upsert(
    decoded: DataFrame, namespace: str, table: str, branch: str, batch: Batch, key: tuple[str, ...], empty: bool
) -> Counts:
    """Merge the newest good record of each key into the branch; a tombstone deletes its row.

    Parameters: `key` are the columns that identify a row; `empty` says that the table has no rows to merge with.
    """
    target = naming.spark_table(namespace, table, branch=branch)
    observation, observed = _observe(decoded)
    # A key stays in one partition, where offsets order its records. Only where somebody changed the partition count
    # can one batch hold a key from two; the rest of the order then makes the choice the same in every run.
    newest = F.struct("kafka_offset", "kafka_timestamp", "kafka_partition")
    columns = [c for c in decoded.columns if c not in (*key, "key", "value", "headers", "reason")]
    latest = (
        observed.filter(F.col("reason").isNull())
        .groupBy(*key)
        .agg(F.max_by(F.struct(*columns), newest).alias("newest"))
        .select(*key, "newest.*")
    )
    kept = Observation()
    latest = latest.observe(kept, F.count(F.lit(1)).alias("kept"), F.count_if("tombstone").alias("tombstones"))
    token = _token(decoded.sparkSession, batch)
    if empty:
        with token:
            _table_rows(latest.filter(~F.col("tombstone")), target).writeTo(target).append()
    else:
        merge.replace(_table_rows(latest, target, "tombstone"), target, branch, key, token)
    counts, last = observation.get, kept.get
    return Counts(
        **counts,
        rows=last["kept"] - last["tombstones"],
        tombstones=last["tombstones"],
        superseded=counts["consumed"] - counts["dead_letters"] - last["kept"],
    )


def dead_letter_schema() -> Schema:
    """The columns of a dead-letter table: why, from where, and the record's bytes as they were."""
    from pyiceberg.schema import Schema
    from pyiceberg.types import (
        BinaryType,
        IntegerType,
        ListType,
        LongType,
        NestedField,
        StringType,
        StructType,
        TimestamptzType,
    )

    header = StructType(
        NestedField(12, "key", StringType(), required=False), NestedField(13, "value", BinaryType(), required=False)
    )
    columns = (
        ("error_timestamp", TimestamptzType(), "When the record was set aside"),
        ("error_reason", StringType(), "Stable code of the reason"),
        ("error_message", StringType(), "The reason as a sentence"),
        ("topic", StringType(), "Kafka topic of the record"),
        ("kafka_partition", IntegerType(), "Kafka partition of the record"),
        ("kafka_offset", LongType(), "Kafka offset of the record"),
        ("kafka_timestamp", TimestamptzType(), "Kafka timestamp of the record, milliseconds"),
        ("key", BinaryType(), "The message key's bytes"),
        ("value", BinaryType(), "The message value's bytes"),
        ("headers", ListType(11, header, element_required=False), "The record's headers, in order"),
    )
    return Schema(
        *[NestedField(i, name, type_, required=False, doc=doc) for i, (name, type_, doc) in enumerate(columns, start=1)]
    )


def append_dead_letters(decoded: DataFrame, namespace: str, table: str, branch: str, batch: Batch) -> None:
    """Append the records that have a reason, bytes intact.

    Parameters: `decoded` with headers; records before `batch` are left out.
    """
    target = naming.spark_table(namespace, table, branch=branch)
    explained = F.create_map(*[F.lit(part) for item in REASONS.items() for part in item])
    letters = decoded.filter(F.col("reason").isNotNull() & is_new(batch.start)).select(
        F.current_timestamp().alias("error_timestamp"),
        F.col("reason").alias("error_reason"),
        explained[F.col("reason")].alias("error_message"),
        F.lit(batch.topic).alias("topic"),
        *("kafka_partition", "kafka_offset", "kafka_timestamp", "key", "value", "headers"),
    )
    with _token(decoded.sparkSession, batch):
        letters.writeTo(target).append()


def _observe(decoded: DataFrame) -> tuple[Observation, DataFrame]:
    """Counts taken while rows pass by. It also keeps Spark from decoding twice, to filter and to write."""
    observation = Observation()
    dead = F.col("reason").isNotNull()
    return observation, decoded.observe(
        observation,
        F.count(F.lit(1)).alias("consumed"),
        F.count_if(dead).alias("dead_letters"),
        F.count_if(F.col("reason") == "unknown_schema").alias("unknown_schema"),
    )


def _table_rows(rows: DataFrame, target: str, *extra: str) -> DataFrame:
    """The table's columns in the table's types; a column that the newest schema dropped is null from now on."""
    schema = rows.sparkSession.table(target).schema
    columns = [
        F.col(f"`{field.name}`").cast(field.dataType).alias(field.name)
        if field.name in rows.columns
        else F.lit(None).cast(field.dataType).alias(field.name)
        for field in schema
    ]
    return rows.select(*columns, *extra)


@contextmanager
def _token(spark: SparkSession, batch: Batch) -> Iterator[None]:
    """Every commit inside carries the batch in its snapshot summary (Iceberg, Spark writes: snapshot properties)."""
    property_ = f"spark.sql.iceberg.snapshot-property.{TOKEN}"
    spark.conf.set(property_, batch.to_json())
    try:
        yield
    finally:
        spark.conf.unset(property_)
