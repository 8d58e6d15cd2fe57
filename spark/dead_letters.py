"""Records that are no rows: kept with their bytes, reason and origin, and read again when the reason is gone.

The columns are those of Confluent's dead-letter queues (Confluent Cloud for Apache Flink, Error handling), with
headers as a list, since Kafka repeats keys, and with the schema id, the number of attempts and the time of redrive.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from lakehouse import naming
from lakehouse.batch import Positions
from lakehouse.topic import Topic
from spark.conditions import every, some
from spark.decode import REASONS
from spark.derive import published
from spark.write import Target, with_properties

if TYPE_CHECKING:
    import pyarrow as pa
    from pyiceberg.schema import Schema

CODES = {reason: code for code, reason in enumerate(REASONS, start=1)}
"""`error_code` by reason."""


def schema() -> Schema:
    """The columns of a dead-letter table; timestamps of Kafka are milliseconds."""
    from pyiceberg.schema import Schema, assign_fresh_schema_ids
    from pyiceberg.types import (
        BinaryType,
        IcebergType,
        IntegerType,
        ListType,
        LongType,
        MapType,
        NestedField,
        StringType,
        StructType,
        TimestamptzType,
    )

    def fields(*columns: tuple[str, IcebergType, str]) -> list[NestedField]:
        # The catalog gives ids of its own.
        return [NestedField(n, name, type_, required=False, doc=doc) for n, (name, type_, doc) in enumerate(columns, 1)]

    text, number, time = StringType(), IntegerType(), TimestamptzType()
    header = StructType(*fields(("key", text, "Name"), ("value", BinaryType(), "Value")))
    record = StructType(
        *fields(
            ("topic", text, "Kafka topic"),
            ("partition", number, "Kafka partition"),
            ("offset", LongType(), "Kafka offset"),
            ("timestamp", time, "Kafka timestamp"),
            ("timestamp_type", text, "CreateTime or LogAppendTime"),
            ("headers", ListType(1, header, element_required=False), "The record's headers, in order"),
            ("key", BinaryType(), "The message key's bytes"),
            ("value", BinaryType(), "The message value's bytes"),
        )
    )
    details = MapType(1, text, 2, text, value_required=False)
    columns = fields(
        ("error_timestamp", time, "When the record was set aside"),
        ("error_code", number, "Number of the reason"),
        ("error_reason", text, "Stable name of the reason"),
        ("error_message", text, "The reason as a sentence"),
        ("error_details", details, "More about it"),
        ("processor", text, "What set it aside"),
        ("statement_name", text, "The entry of lakehouse.yaml"),
        ("affected_type", text, "What lacks the record"),
        ("affected_catalog", text, "Its catalog"),
        ("affected_database", text, "Its namespace"),
        ("affected_name", text, "Its name"),
        ("source_record", record, "The record as the broker has it"),
        ("schema_id", number, "Registry id that the value names"),
        ("attempts", number, "How often decoding was tried"),
        ("redriven_timestamp", time, "When it became a row after all"),
    )
    return assign_fresh_schema_ids(Schema(*columns))


def new(decoded: DataFrame, namespace: str, table: str, topic: Topic, since: Positions, start: Positions) -> DataFrame:
    """The records that have a reason, bytes intact, as the dead letters that the table lacks.

    Args:
        decoded: the records of a batch, with headers.
        namespace: of the table of dead letters.
        table: its name.
        topic: the topic's entry in lakehouse.yaml, with the table that lacks the records.
        since: first offsets by partition of which the table has no letters at all. It may lack letters of earlier ones:
            what was a row in a batch that was not published may be none now.
        start: first offsets by partition of the batch.
    """
    # Without that policy, what does not decode is skipped, and quarantine is all there is to keep.
    kept = F.col("__reason" if topic.errors == "log" else "__check").isNotNull()
    records = decoded.filter(kept & ~F.col("__filtered"))
    if since != start:
        record = F.col("source_record")
        there = decoded.sparkSession.table(naming.spark_table(namespace, table)).filter(record["topic"] == topic.topic)
        # A topic that was made anew has the same offsets, but not at the same time.
        there = there.select(*(record[name].alias(name) for name in ("partition", "offset", "timestamp")))
        there = there.filter(_is_within(start, since))
        same = [F.col(f"kafka_{name}").eqNullSafe(there[name]) for name in there.columns]
        records = records.join(there, every(same), "left_anti")
    return records.select(*_columns(namespace, topic))


def append(letters: DataFrame, target: Target) -> None:
    """Append dead letters to a branch of their table."""
    with with_properties(letters.sparkSession, target):
        letters.writeTo(target.path).append()


def _is_within(start: Positions, end: Positions) -> Column:
    """Whether `partition` and `offset` are from `start` (inclusive) to `end` (exclusive)."""
    partition, offset = F.col("partition"), F.col("offset")
    inside = [(partition == p) & (offset >= start[p]) & (offset < o) for p, o in end.items() if o > start[p]]
    return some([F.lit(False), *inside])


def waiting(spark: SparkSession, namespace: str, table: str, snapshot_id: int, topic: Topic) -> DataFrame:
    """The dead letters of one snapshot that are no rows yet, as spark.records reads records."""
    letters = published(spark, namespace, table, snapshot_id, {}).filter(F.col("redriven_timestamp").isNull())
    record = letters.filter(F.col("source_record.topic") == topic.topic).select("source_record.*")
    codes = F.when(F.col("timestamp_type") == "CreateTime", 0).when(F.col("timestamp_type") == "LogAppendTime", 1)
    return record.withColumn("timestampType", codes)


def between(
    spark: SparkSession, namespace: str, table: str, topic: Topic, since: Positions, upto: Positions
) -> pa.Table:
    """The dead letters of offsets from `since` (inclusive) to `upto` (exclusive) by partition, in order, brought to
    this process."""
    letters = spark.table(naming.spark_table(namespace, table)).filter(F.col("source_record.topic") == topic.topic)
    partition, offset = F.col("source_record.partition"), F.col("source_record.offset")
    inside = [(partition == p) & offset.between(since.get(p, 0), upto[p] - 1) for p in upto]
    return letters.filter(some([F.lit(False), *inside])).orderBy(partition, offset).toArrow()


def places(letters: DataFrame) -> DataFrame:
    """Where in Kafka the letters are from, in the columns that tables have for it."""
    record = F.col("source_record")
    return letters.select(record["partition"].alias("kafka_partition"), record["offset"].alias("kafka_offset"))


def first_offsets(decoded: DataFrame) -> dict[int, int]:
    """The first offset by partition of records that decode."""
    good = decoded.filter(F.col("__reason").isNull())
    first = good.groupBy(F.col("kafka_partition").alias("p")).agg(F.min("kafka_offset").alias("o"))
    return {row["p"]: row["o"] for row in first.collect()}


def tally(decoded: DataFrame) -> tuple[int, int]:
    """How many records there are, and how many of them decode."""
    row = decoded.agg(F.count(F.lit(1)).alias("all"), F.count_if(F.col("__reason").isNull()).alias("good")).first()
    return row["all"], row["good"]


def mark(decoded: DataFrame, namespace: str, table: str, topic: Topic) -> None:
    """Note one more attempt at each letter, and for those that decode, that they are rows now."""
    tried = decoded.select("kafka_partition", "kafka_offset", F.col("__reason").isNull().alias("landed")).alias("tried")
    letter = naming.spark_identifier(table)
    record = f"{letter}.`source_record`"
    same = (
        (F.col(f"{record}.topic") == F.lit(topic.topic))
        & (F.col(f"{record}.partition") == F.col("tried.kafka_partition"))
        & (F.col(f"{record}.offset") == F.col("tried.kafka_offset"))
        & F.col(f"{letter}.redriven_timestamp").isNull()
    )
    attempts = F.col(f"{letter}.attempts") + 1
    (
        tried.mergeInto(naming.spark_table(namespace, table), same)
        .whenMatched(F.col("tried.landed"))
        .update({"attempts": attempts, "redriven_timestamp": F.current_timestamp()})
        .whenMatched()
        .update({"attempts": attempts})
        .merge()
    )


def _columns(namespace: str, topic: Topic) -> list[Column]:
    reason = F.col("__reason")
    record = F.struct(
        F.lit(topic.topic).alias("topic"),
        F.col("kafka_partition").alias("partition"),
        F.col("kafka_offset").alias("offset"),
        F.col("kafka_timestamp").alias("timestamp"),
        F.col("__timestamp_type").alias("timestamp_type"),
        F.col("__headers").alias("headers"),
        F.col("__key").alias("key"),
        F.col("__value").alias("value"),
    )
    details = F.create_map(F.lit("bytes"), F.octet_length("__value").cast("string"), F.lit("check"), F.col("__check"))
    framed = (F.octet_length("__value") >= 5) & (F.substring("__value", 1, 1) == F.lit(b"\x00"))
    named = F.conv(F.hex(F.substring("__value", 2, 4)), 16, 10).try_cast("int")
    return [
        F.current_timestamp().alias("error_timestamp"),
        _of(CODES)[reason].alias("error_code"),
        reason.alias("error_reason"),
        _of(REASONS)[reason].alias("error_message"),
        F.map_filter(details, lambda _, value: value.isNotNull()).alias("error_details"),
        F.lit("lakehouse").alias("processor"),
        F.lit(topic.name).alias("statement_name"),
        F.lit("table").alias("affected_type"),
        F.lit(naming.CATALOG).alias("affected_catalog"),
        F.lit(namespace).alias("affected_database"),
        F.lit(topic.table).alias("affected_name"),
        record.alias("source_record"),
        F.when(framed, named).alias("schema_id"),
        F.lit(1).alias("attempts"),
        F.lit(None).cast("timestamp").alias("redriven_timestamp"),
    ]


def _of(mapping: Mapping[str, object]) -> Column:
    return F.create_map(*[F.lit(part) for item in mapping.items() for part in item])
