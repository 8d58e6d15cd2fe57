"""Find rows that a replay would remove because the broker compacts the topic while its records are read."""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce

from pyspark.sql import DataFrame, SparkSession

from lakehouse.pipeline.engine_values import LostRows, Place
from spark.decoding.decoded import record
from spark.derive import published
from spark.tables import places
from spark.tables.commits import path

MOST_NAMED = 3
"""Maximum number of rows to return."""


def lost_rows(spark: SparkSession, question: LostRows, pieces: Sequence[DataFrame]) -> list[Place]:
    """Return the first rows of main that a branch lacks, although no record that was read replaces or removes them.

    A replay first writes an older record of a key, then the newest one. If the broker deletes the latter in between
    (Kafka, Log compaction), a newer record of the key may not decode, or not be in the range yet: the key would have
    the older row, or none.

    Args:
        spark: The Spark session.
        question: The branch, the range and the columns.
        pieces: The decoded records that were written.
    """
    if question.base is None:
        return []
    batch, key = question.batch, question.key
    of_rows, of_records = places.in_rows(question.place), places.in_decoded()
    before, after = published(spark, question.target.ref, question.base, {}), spark.table(path(question.target))
    read_before = before.filter(of_rows.is_within(batch.start, batch.end)).select(*places.with_key(of_rows, key))
    absent = _without_newer(read_before, after.select(*places.with_key(of_rows, key)), key).localCheckpoint()
    if absent.isEmpty():
        return []
    read = reduce(DataFrame.unionByName, (piece.select(*of_records.named()) for piece in pieces))
    good = (piece.filter(record("reason").isNull() & ~record("filtered")) for piece in pieces)
    states = reduce(DataFrame.unionByName, (piece.select(*places.with_key(of_records, key)) for piece in good))
    lost = _without_newer(absent.join(read, places.NAMES, "left_anti"), states, key)
    first = lost.orderBy(*places.NAMES).limit(MOST_NAMED).select(*places.NAMES)
    return [tuple(row) for row in first.collect()]


def _without_newer(states: DataFrame, others: DataFrame, key: Sequence[str]) -> DataFrame:
    """Return the states whose key has no state as new as theirs among others. Partitions are not compared."""
    state, other = places.in_query("state"), places.in_query("other")
    is_newer = (state.partition != other.partition) | (state.offset <= other.offset)
    same_key = places.same_key("state", "other", key)
    return states.alias("state").join(others.alias("other"), same_key & is_newer, "left_anti")
