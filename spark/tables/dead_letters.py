"""Store records that could not become rows, so that they can be decoded again later."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from functools import reduce

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from lakehouse.core.offsets.batch import Batch, Positions
from lakehouse.core.tables import letter_columns
from lakehouse.pipeline.engine_values import Decoding, LetterOrigin, LetterSet, Target, WaitingLetters
from spark.decoding import framing_columns
from spark.decoding.conditions import is_true
from spark.decoding.decode import Codec
from spark.decoding.decoded import record
from spark.decoding.explain import message
from spark.derive import published
from spark.tables import commits, places
from spark.tables.observed_counts import digest


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
    [row] = (
        letters.filter(_is_of(batch.topic_id, batch.start, batch.end))
        .agg(
            F.count(F.lit(1)).alias("count"),
            digest(*places.in_letters(), F.lit(True)).alias("digest"),
            F.count_if(~_is_waiting()).alias("recovered"),
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
    partition, offset = places.in_letters()
    ranges = missing.select(partition.alias("partition"), offset.alias("first"), (offset + 1).alias("after"))
    _discard(ranges, target, batch)


def _discard(offsets: DataFrame, target: Target, batch: Batch) -> None:
    offsets, letter = offsets.alias("offsets"), f"branch_{target.branch}"
    place = places.in_letters(letter)
    inside = (
        (F.col(f"{letter}.topic_id") == batch.topic_id)
        & (place.partition == F.col("offsets.partition"))
        & (place.offset >= F.col("offsets.first"))
        & (place.offset < F.col("offsets.after"))
    )
    merge = offsets.mergeInto(commits.path(target), inside).whenMatched().delete()
    commits.merge(offsets.sparkSession, merge, target.deleting())


def append(letters: DataFrame, target: Target) -> None:
    """Append dead letters to a branch of their table."""
    commits.append(letters, target)


def missing(
    of_range: Sequence[DataFrame], letters: DataFrame, batch: Batch, table: DataFrame, place: Sequence[str]
) -> DataFrame:
    """Return the dead letters of a range that are neither waiting in their table nor rows, checkpointed: they are
    counted and written.

    Args:
        of_range: The dead letters of the range, as `of_records` returns them.
        letters: The rows of their table.
        batch: The range.
        table: The rows of the table, all of the batch's topic.
        place: The table's columns of Kafka partitions and offsets.
    """
    waiting = letters.filter(_is_of(batch.topic_id, batch.start, batch.end) & _is_waiting())
    old = waiting.select(*places.in_letters().named()).unionByName(table.select(*places.in_rows(place).named()))
    new, same = reduce(DataFrame.unionByName, of_range), places.in_letters("new").equals(places.in_query("old"))
    return new.alias("new").join(old.alias("old"), same, "left_anti").localCheckpoint()


def _is_of(topic_id: str, start: Positions, end: Positions) -> Column:
    """Return whether a dead letter is of a topic and has an offset in a range.

    The range is from `start` (inclusive) to `end` (exclusive) by partition. A recreated topic has the same offsets and
    another id.
    """
    return (F.col("topic_id") == topic_id) & places.in_letters().is_within(start, end)


def _is_waiting() -> Column:
    """Return whether a dead letter is no row yet."""
    return F.col("redriven_timestamp").isNull()


def waiting(spark: SparkSession, letters: WaitingLetters) -> DataFrame:
    """Return dead letters that are not rows yet, in the columns of spark.records."""
    snapshot = published(spark, letters.ref, letters.snapshot_id, {})
    undecoded = snapshot.filter(_is_waiting())
    if not letters.poison:
        undecoded = undecoded.filter(~is_true(F.col("error_reason") == "poison"))
    position = letters.position
    return source_records(undecoded.filter(_is_of(position.topic_id, letters.since, position.end)))


def earlier(letters: DataFrame, batch: Batch) -> DataFrame:
    """Return the dead letters before the end of a batch that are not rows yet, in the columns of spark.records."""
    return source_records(letters.filter(_is_waiting() & _is_of(batch.topic_id, {}, batch.end)))


def source_record(topic: str) -> Column:
    """Return a decided record, with its headers, as dead letters have it.

    Args:
        topic: The Kafka topic.
    """
    fields = [record(field.name).alias(field.name) for field in letter_columns.RECORD if field.name != "topic"]
    return F.struct(F.lit(topic).alias("topic"), *fields)


def source_records(rows: DataFrame, column: str = "source_record") -> DataFrame:
    """Return the records in a column, as dead letters have them, in the columns of spark.records."""
    codes = F.when(F.col("timestamp_type") == "CreateTime", 0).when(F.col("timestamp_type") == "LogAppendTime", 1)
    return rows.select(f"{column}.*").withColumn("timestampType", codes)


def poisonous(letters: DataFrame, batch: Batch) -> list[tuple[int, int]]:
    """Return the partition and offset of each record of a batch whose decoding aborted a job, and that is no row."""
    is_poison = _is_waiting() & (F.col("error_reason") == "poison")
    poison = letters.filter(_is_of(batch.topic_id, batch.start, batch.end) & is_poison)
    return [tuple(row) for row in poison.select(*places.in_letters()).collect()]


def between(letters: DataFrame, topic_id: str, since: Positions, upto: Positions) -> DataFrame:
    """Return the dead letters with offsets from `since` (inclusive) to `upto` (exclusive) by partition, in order."""
    return letters.filter(_is_of(topic_id, since, upto)).orderBy(*places.in_letters())


def of_topics(letters: DataFrame, topic_ids: Collection[str]) -> DataFrame:
    """Return the places of the dead letters of some topics."""
    return letters.filter(F.col("topic_id").isin(*topic_ids)).select(*places.in_letters().named())


def attempt(decoded: DataFrame, key: Sequence[str] = ()) -> DataFrame:
    """Decide once which dead letters decode now, or belong to another table: `recovered` by place. The result is
    checkpointed, because Spark would decode again for each query. If the checkpoint is lost, queries fail.

    Args:
        decoded: The decoded dead letters.
        key: The columns that identify a row of the table if a record replaces the row of its key.
    """
    recovered, filtered = record("reason").isNull().alias("recovered"), record("filtered").alias("filtered")
    return decoded.select(*places.with_key(places.in_decoded(), key), recovered, filtered).localCheckpoint()


def replaced(
    attempted: DataFrame,
    pieces: Sequence[DataFrame],
    table: DataFrame,
    key: Sequence[str],
    place: Sequence[str],
) -> DataFrame:
    """Return the attempts, recovered only if the key has its row, or a later row or record, and whether they decode.

    A record that the broker deleted was not read again. Without a later record of its key that decodes, it must
    remain a dead letter, unless it belongs to another table.

    Args:
        attempted: The dead letters, as `attempt` returns them with the key.
        pieces: The decoded records that were written.
        table: The rows of the table afterwards.
        key: The columns that identify a row.
        place: The table's columns of Kafka partitions and offsets.
    """
    states = table.select(*places.with_key(places.in_rows(place), key))
    for piece in pieces:
        good = piece.filter(record("reason").isNull() & ~record("filtered"))
        states = states.unionByName(good.select(*places.with_key(places.in_decoded(), key)))
    letter, state = places.in_query("letter"), places.in_query("state")
    later = (letter.partition == state.partition) & (letter.offset <= state.offset)
    later &= places.same_key("letter", "state", key)
    with_state = attempted.alias("letter").join(states.alias("state"), later, "left_semi")
    has_state = with_state.select(*places.NAMES, F.lit(True).alias("has_state"))
    decodes, recovered = F.col("recovered"), F.col("recovered") & (F.col("has_state").isNotNull() | F.col("filtered"))
    attempts = attempted.join(has_state, places.NAMES, "left")
    return attempts.select(*places.NAMES, decodes.alias("decodes"), recovered.alias("recovered")).localCheckpoint()


def without_record(attempted: DataFrame, most: int) -> list[tuple[int, int]]:
    """Return the first partitions and offsets of the dead letters that decode, and remain because the broker deleted
    their records.

    Args:
        attempted: The dead letters, as `replaced` returns them.
        most: Maximum number of places.
    """
    gone = attempted.filter("decodes AND NOT recovered").orderBy(*places.NAMES).limit(most)
    return [tuple(row) for row in gone.select(*places.NAMES).collect()]


def existing_rows(waiting: DataFrame, table: DataFrame, place: Sequence[str]) -> DataFrame:
    """Return the dead letters whose records are rows, in the columns of `attempt`: a redrive published them, and was
    interrupted before it marked the dead letters.

    Args:
        waiting: The dead letters, as `waiting` returns them.
        table: The rows of the table, all of the topic that the dead letters come from.
        place: The table's columns of Kafka partitions and offsets.
    """
    letters, rows = waiting.select(*places.in_log().named()), table.select(*places.in_rows(place).named())
    existing = letters.join(rows, places.NAMES, "left_semi")
    return existing.withColumn("recovered", F.lit(True)).localCheckpoint()


def first_offsets(attempted: DataFrame) -> dict[int, int]:
    """Return the first offset by partition of the dead letters that decode."""
    partition, offset = places.in_query()
    return dict(map(tuple, attempted.filter("recovered").groupBy(partition).agg(F.min(offset)).collect()))


def remaining(attempted: DataFrame) -> tuple[int, LetterSet]:
    """Return the number of dead letters, and the set of those that do not decode."""
    stays = ~F.col("recovered")
    totals = F.count(F.lit(1)), F.count_if(stays), digest(*places.in_query(), stays)
    [(count, *stay)] = attempted.agg(*totals).collect()
    return count, LetterSet(*stay)


def mark(attempted: DataFrame, target: Target, topic_id: str) -> None:
    """Count one more attempt at each dead letter on a branch of their table, and mark those that recovered as redriven.

    Args:
        attempted: The dead letters, as `attempt` returns them.
        target: The branch.
        topic_id: Id of the Kafka topic that they come from.
    """
    letter = f"branch_{target.branch}"
    same = (
        (F.col(f"{letter}.topic_id") == topic_id)
        & places.in_letters(letter).equals(places.in_query("attempted"))
        & F.col(f"{letter}.redriven_timestamp").isNull()
    )
    attempts = F.col(f"{letter}.attempts") + 1
    marks = (
        attempted.alias("attempted")
        .mergeInto(commits.path(target), same)
        .whenMatched(F.col("attempted.recovered"))
        .update({"attempts": attempts, "redriven_timestamp": F.current_timestamp()})
        .whenMatched()
        .update({"attempts": attempts})
    )
    commits.merge(attempted.sparkSession, marks, target)


def _columns(decoding: Decoding[Codec], origin: LetterOrigin) -> list[Column]:
    """Return the columns of dead letters, each paired with its declaration by name."""
    reason, value, framed = record("reason"), record("value"), record("framed_value")
    details = F.create_map(
        F.lit("bytes"), F.octet_length(value).cast("string"), F.lit("check"), record("check").cast("string")
    )
    numbers = F.create_map(*[F.lit(part) for number in letter_columns.REASON_NUMBERS.items() for part in number])
    named = F.conv(F.hex(framing_columns.id_bytes(framed)), 16, 10).try_cast("int")
    values = {name: F.lit(value) for name, value in origin.columns.items()} | {
        "error_timestamp": F.current_timestamp(),
        "error_code": numbers[reason],
        "error_reason": reason,
        "error_message": message(decoding),
        "error_details": F.map_filter(details, lambda _, value: value.isNotNull()),
        "source_record": source_record(origin.topic),
        "schema_id": F.when(framing_columns.is_framed(framed, may_be_empty=True), named),
        "attempts": F.lit(1),
        "redriven_timestamp": F.lit(None).cast("timestamp"),
    }
    return [values[column.name].alias(column.name) for column in letter_columns.COLUMNS]
