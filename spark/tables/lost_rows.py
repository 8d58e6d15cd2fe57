"""Find rows that a replay would remove because the broker compacts the topic while its records are read."""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from lakehouse.core.offsets.batch import Batch
from lakehouse.core.sql import SPARK
from lakehouse.pipeline.engine_values import Place, Target
from spark.decoding.conditions import some
from spark.decoding.decoded import record
from spark.derive import published

MOST_NAMED = 3
"""Maximum number of rows to return."""


def lost_rows(
    spark: SparkSession,
    base: int | None,
    target: Target,
    pieces: Sequence[DataFrame],
    batch: Batch,
    key: Sequence[str],
    partition: str,
    offset: str,
) -> list[Place]:
    """Return the first rows of main that a branch lacks, although no record that was read replaces or removes them.

    A replay first writes an older record of a key, then the newest one. If the broker deletes the latter in between
    (Kafka, Log compaction), a newer record of the key may not decode, or not be in the range yet: the key would have
    the older row, or none.

    Args:
        spark: The Spark session.
        base: The snapshot of main at which the branch begins; None if main had none.
        target: The branch, after the records were written.
        pieces: The decoded records that were written.
        batch: The range of the records.
        key: The columns that identify a row.
        partition: The table's column of Kafka partitions.
        offset: The table's column of Kafka offsets.
    """
    if base is None:
        return []
    of_rows = F.col(SPARK.identifier(partition)), F.col(SPARK.identifier(offset))
    before, after = published(spark, target.ref, base, {}), spark.table(target.path)
    is_read = some([F.lit(False), *(_is_within(*of_rows, p, batch) for p in batch.end)])
    absent = _without_newer(_states(before.filter(is_read), key, *of_rows), _states(after, key, *of_rows))
    absent = absent.localCheckpoint()
    if absent.isEmpty():
        return []
    of_records = record("partition"), record("offset")
    places = reduce(DataFrame.unionByName, (_states(piece, (), *of_records) for piece in pieces))
    good = (piece.filter(record("reason").isNull() & ~record("filtered")) for piece in pieces)
    states = reduce(DataFrame.unionByName, (_states(piece, key, *of_records) for piece in good))
    lost = _without_newer(absent.join(places, ["partition", "offset"], "left_anti"), states)
    first = lost.orderBy("partition", "offset").limit(MOST_NAMED).collect()
    return [(row["partition"], row["offset"]) for row in first]


def _is_within(partition: Column, offset: Column, number: int, batch: Batch) -> Column:
    return (partition == number) & (offset >= batch.start.get(number, 0)) & (offset < batch.end[number])


def _states(rows: DataFrame, key: Sequence[str], partition: Column, offset: Column) -> DataFrame:
    columns = [F.col(SPARK.identifier(name)).alias(f"key_{number}") for number, name in enumerate(key)]
    return rows.select(partition.alias("partition"), offset.alias("offset"), *columns)


def _without_newer(states: DataFrame, others: DataFrame) -> DataFrame:
    """Return the states whose key has no state as new as theirs among others. Partitions are not compared."""
    state, other = states.alias("state"), others.alias("other")
    is_newer = (F.col("state.partition") != F.col("other.partition")) | (F.col("state.offset") <= F.col("other.offset"))
    keys = [name for name in states.columns if name.startswith("key_")]
    same_key = reduce(Column.__and__, (F.col(f"state.{k}").eqNullSafe(F.col(f"other.{k}")) for k in keys))
    return state.join(other, same_key & is_newer, "left_anti")
