"""Records that are no rows: kept with their bytes, reason and origin, and read again when the reason is gone.

The columns are those of Confluent's dead-letter queues (Confluent Cloud for Apache Flink, Error handling), with
headers as a list, since Kafka repeats keys, and with the schema id, the number of attempts, the time of redrive and the
topic's id.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from lakehouse.config.topic import Topic
from lakehouse.core import naming
from lakehouse.core.batch import Batch, Positions
from lakehouse.core.sql import SPARK
from spark import framing
from spark.conditions import some
from spark.decision import Decision, digest
from spark.decode import REASONS, Decoding
from spark.decoded import record
from spark.derive import published
from spark.explain import message
from spark.write import Target, with_properties

if TYPE_CHECKING:
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
        ("topic_id", text, "Kafka's id of the topic"),
    )
    return assign_fresh_schema_ids(Schema(*columns))


def of_batch(decoded: DataFrame, how: Decoding, namespace: str, topic: Topic, batch: Batch) -> DataFrame:
    """The records of a batch that have a reason, bytes intact, as dead letters.

    Args:
        decoded: the batch's records, with headers.
        how: how they were decoded.
        namespace: of the table that lacks the records.
        topic: the topic's entry in lakehouse.yaml, with that table.
        batch: where the records are from.
    """
    # Without that policy, what does not decode is skipped, and quarantine is all there is to keep.
    kept = record("reason" if topic.errors == "log" else "check").isNotNull()
    return decoded.filter(kept & ~record("filtered")).select(*_columns(how, namespace, topic, batch.topic_id))


def decision(letters: DataFrame, batch: Batch) -> Decision:
    """Which records of a batch a table of dead letters holds."""
    source, landed = F.col("source_record"), F.col("redriven_timestamp").isNotNull()
    [row] = (
        letters.filter(_is_of(batch.topic_id, batch.start, batch.end))
        .agg(
            F.count(F.lit(1)).alias("count"),
            digest(source["partition"], source["offset"], F.lit(True)).alias("digest"),
            F.count_if(landed).alias("landed"),
        )
        .collect()
    )
    return Decision(row["count"], row["digest"], row["landed"])


def discard(spark: SparkSession, target: Target, batch: Batch) -> None:
    """Delete the letters of a batch's offsets from a branch of their table."""
    ranges = [(p, batch.start[p], end) for p, end in batch.end.items()]
    offsets = spark.createDataFrame(ranges, "partition int, first long, after long").alias("offsets")
    letter = f"branch_{target.branch}"
    source = f"{letter}.source_record"
    inside = (
        (F.col(f"{letter}.topic_id") == batch.topic_id)
        & (F.col(f"{source}.partition") == F.col("offsets.partition"))
        & (F.col(f"{source}.offset") >= F.col("offsets.first"))
        & (F.col(f"{source}.offset") < F.col("offsets.after"))
    )
    with with_properties(spark, target.deleting()):
        offsets.mergeInto(target.path, inside).whenMatched().delete().merge()


def append(letters: DataFrame, target: Target) -> None:
    """Append dead letters to a branch of their table."""
    with with_properties(letters.sparkSession, target):
        letters.writeTo(target.path).append()


def _is_of(topic_id: str, start: Positions, end: Positions) -> Column:
    """Whether a letter is of a topic, and of offsets from `start` (inclusive) to `end` (exclusive) by partition.

    A topic that was recreated has the same offsets and another id.
    """
    source = F.col("source_record")
    inside = [
        (source["partition"] == p) & (source["offset"] >= start.get(p, 0)) & (source["offset"] < after)
        for p, after in end.items()
        if after > start.get(p, 0)
    ]
    return (F.col("topic_id") == topic_id) & some([F.lit(False), *inside])


def waiting(spark: SparkSession, namespace: str, table: str, snapshot_id: int, position: Batch) -> DataFrame:
    """The dead letters of one snapshot that are no rows yet, as spark.records reads records.

    Args:
        spark: the session.
        namespace: the table's.
        table: the name of the table of dead letters.
        snapshot_id: the snapshot.
        position: the newest batch of the table that lacks the records. Letters of later offsets are of a batch that was
            not published: the next run decides about their records anew.
    """
    letters = published(spark, namespace, table, snapshot_id, {}).filter(F.col("redriven_timestamp").isNull())
    source = letters.filter(_is_of(position.topic_id, {}, position.end)).select("source_record.*")
    codes = F.when(F.col("timestamp_type") == "CreateTime", 0).when(F.col("timestamp_type") == "LogAppendTime", 1)
    return source.withColumn("timestampType", codes)


def between(letters: DataFrame, topic_id: str, since: Positions, upto: Positions) -> DataFrame:
    """The dead letters of a topic's offsets from `since` (inclusive) to `upto` (exclusive) by partition, in order."""
    found = letters.filter(_is_of(topic_id, since, upto))
    return found.orderBy("source_record.partition", "source_record.offset")


def places(letters: DataFrame) -> DataFrame:
    """Where in Kafka the letters are from, in the columns that tables have for it."""
    source = F.col("source_record")
    return letters.select(source["partition"].alias("kafka_partition"), source["offset"].alias("kafka_offset"))


def tried(decoded: DataFrame) -> DataFrame:
    """Decide which letters decode now, once: by `kafka_partition` and `kafka_offset`, whether each has `landed`.

    The answer is held: asked again, Spark would decode again. Where it was lost, Spark stops.
    """
    place = record("partition").alias("kafka_partition"), record("offset").alias("kafka_offset")
    return decoded.select(*place, record("reason").isNull().alias("landed")).localCheckpoint()


def first_offsets(tried: DataFrame) -> dict[int, int]:
    """The first offset by partition of letters that decode."""
    first = tried.filter("landed").groupBy(F.col("kafka_partition").alias("p")).agg(F.min("kafka_offset").alias("o"))
    return {row["p"]: row["o"] for row in first.collect()}


def staying(tried: DataFrame) -> tuple[int, Decision]:
    """How many letters there are, and which of them do not decode."""
    stays = ~F.col("landed")
    places = digest(F.col("kafka_partition"), F.col("kafka_offset"), stays)
    [row] = tried.agg(F.count(F.lit(1)).alias("all"), F.count_if(stays).alias("n"), places.alias("digest")).collect()
    return row["all"], Decision(row["n"], row["digest"])


def mark(tried: DataFrame, namespace: str, table: str, topic_id: str) -> None:
    """Note one more attempt at each letter, and for those that landed, that they are rows now."""
    letter = SPARK.identifier(table)
    source = f"{letter}.`source_record`"
    same = (
        (F.col(f"{letter}.topic_id") == topic_id)
        & (F.col(f"{source}.partition") == F.col("tried.kafka_partition"))
        & (F.col(f"{source}.offset") == F.col("tried.kafka_offset"))
        & F.col(f"{letter}.redriven_timestamp").isNull()
    )
    attempts = F.col(f"{letter}.attempts") + 1
    (
        tried.alias("tried")
        .mergeInto(naming.spark_table(namespace, table), same)
        .whenMatched(F.col("tried.landed"))
        .update({"attempts": attempts, "redriven_timestamp": F.current_timestamp()})
        .whenMatched()
        .update({"attempts": attempts})
        .merge()
    )


def _columns(how: Decoding, namespace: str, topic: Topic, topic_id: str) -> list[Column]:
    reason, value = record("reason"), record("value")
    fields = ("partition", "offset", "timestamp", "timestamp_type", "headers", "key", "value")
    source_record = F.struct(F.lit(topic.topic).alias("topic"), *(record(field).alias(field) for field in fields))
    details = F.create_map(
        F.lit("bytes"), F.octet_length(value).cast("string"), F.lit("check"), record("check").cast("string")
    )
    codes = F.create_map(*[F.lit(part) for code in CODES.items() for part in code])
    named = F.conv(F.hex(framing.id_bytes(value)), 16, 10).try_cast("int")
    return [
        F.current_timestamp().alias("error_timestamp"),
        codes[reason].alias("error_code"),
        reason.alias("error_reason"),
        message(how).alias("error_message"),
        F.map_filter(details, lambda _, value: value.isNotNull()).alias("error_details"),
        F.lit("lakehouse").alias("processor"),
        F.lit(topic.name).alias("statement_name"),
        F.lit("table").alias("affected_type"),
        F.lit(naming.CATALOG).alias("affected_catalog"),
        F.lit(namespace).alias("affected_database"),
        F.lit(topic.table).alias("affected_name"),
        source_record.alias("source_record"),
        F.when(framing.is_framed(value, may_be_empty=True), named).alias("schema_id"),
        F.lit(1).alias("attempts"),
        F.lit(None).cast("timestamp").alias("redriven_timestamp"),
        F.lit(topic_id).alias("topic_id"),
    ]
