"""Store records that could not become rows, so that they can be decoded again later.

The columns are those of lakehouse/pipeline/dead_letters/letter_columns.py.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from lakehouse.core.offsets.batch import Batch, Positions
from lakehouse.core.sql import SPARK
from lakehouse.core.tables import naming
from lakehouse.pipeline.engine_values import REASONS, Decoding, LetterOrigin, LetterSet, Target, WaitingLetters
from spark.decoding import framing_columns
from spark.decoding.conditions import some
from spark.decoding.decode import Codec
from spark.decoding.decoded import record
from spark.decoding.explain import message
from spark.derive import published
from spark.tables import commits
from spark.tables.observed_counts import digest

CODES = {reason: code for code, reason in enumerate(REASONS, start=1)}
"""Value of `error_code` by reason."""


def of_records(decoded: DataFrame, decoding: Decoding[Codec], origin: LetterOrigin) -> DataFrame:
    """Return the records that are dead letters, with unchanged bytes.

    Args:
        decoded: The decoded records, with headers.
        decoding: The instructions that they were decoded with.
        origin: Their origin.
    """
    is_dead_letter = record("check" if origin.only_quarantined else "reason").isNotNull()
    return decoded.filter(is_dead_letter & ~record("filtered")).select(*_columns(decoding, origin))


def letter_set(letters: DataFrame, batch: Batch) -> LetterSet:
    """Return the set of a batch's records in a table of dead letters."""
    source, recovered = F.col("source_record"), F.col("redriven_timestamp").isNotNull()
    [row] = (
        letters.filter(_is_of(batch.topic_id, batch.start, batch.end))
        .agg(
            F.count(F.lit(1)).alias("count"),
            digest(source["partition"], source["offset"], F.lit(True)).alias("digest"),
            F.count_if(recovered).alias("recovered"),
        )
        .collect()
    )
    return LetterSet(row["count"], row["digest"], row["recovered"])


def discard(spark: SparkSession, target: Target, batch: Batch) -> None:
    """Delete the dead letters of a batch's offsets from a branch of their table."""
    ranges = [(p, batch.start[p], end) for p, end in batch.end.items()]
    _discard(spark.createDataFrame(ranges, "partition int, first long, after long"), target, batch)


def discard_earlier(missing: DataFrame, target: Target, batch: Batch) -> None:
    """Delete the dead letters that `missing` replaces: their records were rows, and are dead letters again."""
    offset = F.col("source_record.offset")
    places = missing.select("source_record.partition", offset.alias("first"), (offset + 1).alias("after"))
    _discard(places, target, batch)


def _discard(offsets: DataFrame, target: Target, batch: Batch) -> None:
    offsets, letter = offsets.alias("offsets"), f"branch_{target.branch}"
    source = f"{letter}.source_record"
    inside = (
        (F.col(f"{letter}.topic_id") == batch.topic_id)
        & (F.col(f"{source}.partition") == F.col("offsets.partition"))
        & (F.col(f"{source}.offset") >= F.col("offsets.first"))
        & (F.col(f"{source}.offset") < F.col("offsets.after"))
    )
    merge = offsets.mergeInto(target.path, inside).whenMatched().delete()
    commits.merge(offsets.sparkSession, merge, target.deleting())


def append(letters: DataFrame, target: Target) -> None:
    """Append dead letters to a branch of their table."""
    commits.append(letters, target)


def missing(
    of_range: Sequence[DataFrame], letters: DataFrame, batch: Batch, table: DataFrame, partition: str, offset: str
) -> DataFrame:
    """Return the dead letters of a range that are neither waiting in their table nor rows, checkpointed: they are
    counted and written.

    Args:
        of_range: The dead letters of the range, as `of_records` returns them.
        letters: The rows of their table.
        batch: The range.
        table: The rows of the table, all of the batch's topic.
        partition: The table's column of Kafka partitions.
        offset: The table's column of Kafka offsets.
    """
    is_waiting = F.col("redriven_timestamp").isNull()
    existing = places(letters.filter(_is_of(batch.topic_id, batch.start, batch.end) & is_waiting))
    rows = table.select(F.col(partition).alias("kafka_partition"), F.col(offset).alias("kafka_offset"))
    new, old, source = reduce(DataFrame.unionByName, of_range), existing.unionByName(rows), F.col("new.source_record")
    same = (source["partition"] == F.col("old.kafka_partition")) & (source["offset"] == F.col("old.kafka_offset"))
    return new.alias("new").join(old.alias("old"), same, "left_anti").localCheckpoint()


def _is_of(topic_id: str, start: Positions, end: Positions) -> Column:
    """Return whether a dead letter is of a topic and has an offset in a range.

    The range is from `start` (inclusive) to `end` (exclusive) by partition. A recreated topic has the same offsets and
    another id.
    """
    source = F.col("source_record")
    inside = [
        (source["partition"] == p) & (source["offset"] >= start.get(p, 0)) & (source["offset"] < after)
        for p, after in end.items()
        if after > start.get(p, 0)
    ]
    return (F.col("topic_id") == topic_id) & some([F.lit(False), *inside])


def waiting(spark: SparkSession, letters: WaitingLetters) -> DataFrame:
    """Return dead letters that are not rows yet, in the columns of spark.records."""
    snapshot = published(spark, letters.ref, letters.snapshot_id, {})
    undecoded = snapshot.filter(F.col("redriven_timestamp").isNull())
    if not letters.poison:
        undecoded = undecoded.filter(F.col("error_reason") != "poison")
    position = letters.position
    source = undecoded.filter(_is_of(position.topic_id, letters.since, position.end)).select("source_record.*")
    codes = F.when(F.col("timestamp_type") == "CreateTime", 0).when(F.col("timestamp_type") == "LogAppendTime", 1)
    return source.withColumn("timestampType", codes)


def poisonous(letters: DataFrame, batch: Batch) -> list[tuple[int, int]]:
    """Return the partition and offset of each record of a batch whose decoding aborted a job, and that is no row."""
    is_waiting = F.col("redriven_timestamp").isNull() & (F.col("error_reason") == "poison")
    poison = letters.filter(_is_of(batch.topic_id, batch.start, batch.end) & is_waiting)
    return [tuple(row) for row in poison.select("source_record.partition", "source_record.offset").collect()]


def without(records: DataFrame, places: Sequence[tuple[int, int]]) -> DataFrame:
    """Return the records, in the columns of spark.records, that have none of these partitions and offsets."""
    left_out = ((F.col("partition") == p) & (F.col("offset") == o) for p, o in places)
    return records.filter(~some([F.lit(False), *left_out]))


def between(letters: DataFrame, topic_id: str, since: Positions, upto: Positions) -> DataFrame:
    """Return the dead letters with offsets from `since` (inclusive) to `upto` (exclusive) by partition, in order."""
    selected = letters.filter(_is_of(topic_id, since, upto))
    return selected.orderBy("source_record.partition", "source_record.offset")


def places(letters: DataFrame) -> DataFrame:
    """Return the partitions and offsets of dead letters, in the columns that tables have for them."""
    source = F.col("source_record")
    return letters.select(source["partition"].alias("kafka_partition"), source["offset"].alias("kafka_offset"))


def attempt(decoded: DataFrame, key: Sequence[str] = ()) -> DataFrame:
    """Decide once which dead letters decode now, or belong to another table: `recovered` by `kafka_partition` and
    `kafka_offset`. The result is checkpointed, because Spark would decode again for each query. If the checkpoint is
    lost, queries fail.

    Args:
        decoded: The decoded dead letters.
        key: The columns that identify a row of the table if a record replaces the row of its key.
    """
    recovered, filtered = record("reason").isNull().alias("recovered"), record("filtered").alias("filtered")
    return decoded.select(*_place(), *_key(key), recovered, filtered).localCheckpoint()


def replaced(
    attempted: DataFrame,
    pieces: Sequence[DataFrame],
    table: DataFrame,
    key: Sequence[str],
    partition: str,
    offset: str,
) -> DataFrame:
    """Return the attempts, recovered only if the key has its row, or a later row or record, and whether they decode.

    A record that the broker deleted was not read again. Without a later record of its key that decodes, it must
    remain a dead letter, unless it belongs to another table.

    Args:
        attempted: The dead letters, as `attempt` returns them with the key.
        pieces: The decoded records that were written.
        table: The rows of the table afterwards.
        key: The columns that identify a row.
        partition: The table's column of Kafka partitions.
        offset: The table's column of Kafka offsets.
    """
    states = table.select(F.col(partition).alias("kafka_partition"), F.col(offset).alias("kafka_offset"), *_key(key))
    for piece in pieces:
        good = piece.filter(record("reason").isNull() & ~record("filtered"))
        states = states.unionByName(good.select(*_place(), *_key(key)))
    letter, state = attempted.alias("letter"), states.alias("state")
    later = (F.col("letter.kafka_partition") == F.col("state.kafka_partition")) & (
        F.col("letter.kafka_offset") <= F.col("state.kafka_offset")
    )
    for column in _key_names(key):
        later &= F.col(f"letter.{column}").eqNullSafe(F.col(f"state.{column}"))
    place = ["kafka_partition", "kafka_offset"]
    has_state = letter.join(state, later, "left_semi").select(*place, F.lit(True).alias("has_state"))
    decodes, recovered = F.col("recovered"), F.col("recovered") & (F.col("has_state").isNotNull() | F.col("filtered"))
    attempts = attempted.join(has_state, place, "left")
    return attempts.select(*place, decodes.alias("decodes"), recovered.alias("recovered")).localCheckpoint()


def without_record(attempted: DataFrame, most: int) -> list[tuple[int, int]]:
    """Return the first partitions and offsets of the dead letters that decode, and remain because the broker deleted
    their records.

    Args:
        attempted: The dead letters, as `replaced` returns them.
        most: Maximum number of places.
    """
    gone = attempted.filter("decodes AND NOT recovered").orderBy("kafka_partition", "kafka_offset").limit(most)
    return [(row["kafka_partition"], row["kafka_offset"]) for row in gone.collect()]


def _place() -> tuple[Column, Column]:
    return record("partition").alias("kafka_partition"), record("offset").alias("kafka_offset")


def _key_names(key: Sequence[str]) -> list[str]:
    return [f"key_{number}" for number in range(len(key))]


def _key(key: Sequence[str]) -> list[Column]:
    names = zip(key, _key_names(key), strict=True)
    return [F.col(SPARK.identifier(name)).alias(alias) for name, alias in names]


def existing_rows(waiting: DataFrame, table: DataFrame, partition: str, offset: str) -> DataFrame:
    """Return the dead letters whose records are rows, in the columns of `attempt`: a redrive published them, and was
    interrupted before it marked the dead letters.

    Args:
        waiting: The dead letters, as `waiting` returns them.
        table: The rows of the table, all of the topic that the dead letters come from.
        partition: The table's column of Kafka partitions.
        offset: The table's column of Kafka offsets.
    """
    places = table.select(F.col(partition).alias("kafka_partition"), F.col(offset).alias("kafka_offset"))
    letters = waiting.select(F.col("partition").alias("kafka_partition"), F.col("offset").alias("kafka_offset"))
    existing = letters.join(places, ["kafka_partition", "kafka_offset"], "left_semi")
    return existing.withColumn("recovered", F.lit(True)).localCheckpoint()


def first_offsets(attempted: DataFrame) -> dict[int, int]:
    """Return the first offset by partition of the dead letters that decode."""
    first = attempted.filter("recovered").groupBy("kafka_partition").agg(F.min("kafka_offset").alias("first"))
    return {row["kafka_partition"]: row["first"] for row in first.collect()}


def remaining(attempted: DataFrame) -> tuple[int, LetterSet]:
    """Return the number of dead letters, and the set of those that do not decode."""
    stays = ~F.col("recovered")
    places = digest(F.col("kafka_partition"), F.col("kafka_offset"), stays)
    [(count, *stay)] = attempted.agg(F.count(F.lit(1)), F.count_if(stays), places).collect()
    return count, LetterSet(*stay)


def mark(attempted: DataFrame, target: Target, topic_id: str) -> None:
    """Count one more attempt at each dead letter on a branch of their table, and mark those that recovered as redriven.

    Args:
        attempted: The dead letters, as `attempt` returns them.
        target: The branch.
        topic_id: Id of the Kafka topic that they come from.
    """
    letter = f"branch_{target.branch}"
    source = f"{letter}.source_record"
    same = (
        (F.col(f"{letter}.topic_id") == topic_id)
        & (F.col(f"{source}.partition") == F.col("attempted.kafka_partition"))
        & (F.col(f"{source}.offset") == F.col("attempted.kafka_offset"))
        & F.col(f"{letter}.redriven_timestamp").isNull()
    )
    attempts = F.col(f"{letter}.attempts") + 1
    marks = (
        attempted.alias("attempted")
        .mergeInto(target.path, same)
        .whenMatched(F.col("attempted.recovered"))
        .update({"attempts": attempts, "redriven_timestamp": F.current_timestamp()})
        .whenMatched()
        .update({"attempts": attempts})
    )
    commits.merge(attempted.sparkSession, marks, target)


def _columns(decoding: Decoding[Codec], origin: LetterOrigin) -> list[Column]:
    reason, value = record("reason"), record("value")
    fields = ("partition", "offset", "timestamp", "timestamp_type", "headers", "key", "value")
    source_record = F.struct(F.lit(origin.topic).alias("topic"), *(record(field).alias(field) for field in fields))
    details = F.create_map(
        F.lit("bytes"), F.octet_length(value).cast("string"), F.lit("check"), record("check").cast("string")
    )
    codes = F.create_map(*[F.lit(part) for code in CODES.items() for part in code])
    named = F.conv(F.hex(framing_columns.id_bytes(value)), 16, 10).try_cast("int")
    return [
        F.current_timestamp().alias("error_timestamp"),
        codes[reason].alias("error_code"),
        reason.alias("error_reason"),
        message(decoding).alias("error_message"),
        F.map_filter(details, lambda _, value: value.isNotNull()).alias("error_details"),
        F.lit("lakehouse").alias("processor"),
        F.lit(origin.entry).alias("statement_name"),
        F.lit("table").alias("affected_type"),
        F.lit(naming.CATALOG).alias("affected_catalog"),
        F.lit(origin.ref.namespace).alias("affected_database"),
        F.lit(origin.ref.name).alias("affected_name"),
        source_record.alias("source_record"),
        F.when(framing_columns.is_framed(value, may_be_empty=True), named).alias("schema_id"),
        F.lit(1).alias("attempts"),
        F.lit(None).cast("timestamp").alias("redriven_timestamp"),
        F.lit(origin.topic_id).alias("topic_id"),
    ]
