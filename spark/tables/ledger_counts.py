"""Count what a table, its dead letters and the topic's log have of the ranges in a ledger, in one query each."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F

from lakehouse.core.offsets.ledger import NAMED, LogContents, OffsetRange, RangeContents
from lakehouse.core.sql import SPARK
from spark.decoding.conditions import is_true
from spark.decoding.decoded import record
from spark.tables import places

TIMESTAMP = "kafka_timestamp"
"""The column of a record's timestamp in queries."""


def of_rows(table: DataFrame, names: Mapping[str, str], key: Sequence[str] = ()) -> DataFrame:
    """Return the places of a table's rows and, of those with a key, `key`, a struct of its columns, and TIMESTAMP.

    Args:
        table: One snapshot of a table.
        names: The table's names of metadata columns by their internal names.
        key: The names of the key columns.
    """
    place = places.in_rows([names[name] for name in places.NAMES])
    columns = [F.col(SPARK.identifier(name)) for name in key]
    timestamp = F.col(SPARK.identifier(names[TIMESTAMP])) if TIMESTAMP in names else F.lit(None).cast("timestamp")
    return table.select(*place.named(), *([F.struct(*columns).alias("key"), timestamp.alias(TIMESTAMP)] if key else []))


def held(table: DataFrame, ranges: Sequence[OffsetRange]) -> dict[OffsetRange | None, RangeContents]:
    """Return the number of rows and distinct offsets, and the first and last offset, in each range; None for no range.

    Args:
        table: One snapshot of a table with places.
        ranges: The ranges.
    """
    counts = (
        _in_ranges(_places(table), ranges, "left")
        .groupBy("range")
        .agg(
            F.sum("n").alias("rows"),
            F.count("*").alias("distinct"),
            F.min("kafka_offset").alias("first"),
            F.max("kafka_offset").alias("last"),
        )
    )
    return {
        None if i is None else ranges[i]: RangeContents(rows, distinct, first, last)
        for i, rows, distinct, first, last in counts.collect()
    }


def duplicates(table: DataFrame, allowed: int = 1) -> list[tuple[int, int, int]]:
    """Return the first records that occur more often than `allowed`, as (partition, offset, occurrences)."""
    repeated = _places(table).filter((F.col("n") > allowed) & F.col("kafka_offset").isNotNull())
    return [tuple(row) for row in repeated.orderBy(*places.NAMES).limit(NAMED).collect()]


def duplicate_keys(table: DataFrame, key: Sequence[str], shown: Collection[str]) -> list[tuple[str, int]]:
    """Return the first keys with more than one row, as (key, rows).

    Args:
        table: The result of `of_rows`.
        key: The names of the key columns.
        shown: The columns whose values may be returned; others are hidden.
    """
    repeated = table.groupBy("key").agg(F.count("*").alias("n")).filter("n > 1")
    texts = [F.col("key")[name].cast("string") if name in shown else F.lit("(sensitive)") for name in key]
    text = F.concat_ws(", ", *texts)
    return [tuple(row) for row in repeated.select(text.alias("key"), "n").orderBy("key").limit(NAMED).collect()]


def logged(
    records: DataFrame, ranges: Sequence[OffsetRange], outcomes: DataFrame | None
) -> tuple[dict[int, LogContents], list[tuple[int, int, int]]]:
    """Return the number of records in the log for each snapshot's ranges, and the first records without an outcome.

    Args:
        records: The records in the columns of spark.records.
        ranges: The ranges.
        outcomes: Rows and dead letters with places; None to count records only.

    Returns:
        The numbers by snapshot id, and (snapshot id, partition, offset) of the records to report.
    """
    logged_places = _in_ranges(records.select(*places.in_log().named()), ranges, "inner")
    missing = logged_places.withColumn("missing", F.lit(False))
    if outcomes is not None:
        joined = logged_places.join(outcomes.distinct().withColumn("has_outcome", F.lit(True)), places.NAMES, "left")
        missing = joined.withColumn("missing", F.col("has_outcome").isNull())
    counts = missing.groupBy("snapshot").agg(F.count("*"), F.count_if("missing"))
    by_snapshot = {snapshot: LogContents(records, lost) for snapshot, records, lost in counts.collect()}
    if not any(numbers.missing for numbers in by_snapshot.values()):
        return by_snapshot, []
    rank = F.row_number().over(Window.partitionBy("snapshot").orderBy(*places.NAMES))
    reported = missing.filter("missing").withColumn("rank", rank).filter(F.col("rank") <= NAMED)
    return by_snapshot, [
        tuple(row) for row in reported.select("snapshot", *places.NAMES).orderBy("snapshot", *places.NAMES).collect()
    ]


def wrong_newest(
    decoded: DataFrame, letters: DataFrame | None, table: DataFrame, key: Sequence[str]
) -> list[tuple[int, int, bool]]:
    """Return the first records that are the newest of their key but are not what an upsert table has.

    The newest of several partitions is the one with the latest timestamp among the last records of each. Keys with
    several such records are left out, because these have no order.

    Args:
        decoded: The decoded records up to the table's offsets.
        letters: The dead letters, as `of_topics` of spark.tables.dead_letters returns them; None if there are none.
        table: The rows, as `of_rows` returns them.
        key: The names of the key columns.

    Returns:
        (partition, offset, tombstone) of each record; for a tombstone, the table still has an older row.
    """
    is_effective = ~record("truncate") & ~record("truncated")
    good = decoded.filter(record("reason").isNull() & ~record("filtered") & is_effective).select(
        *places.in_decoded().named(),
        record("tombstone").alias("tombstone"),
        record("timestamp").alias(TIMESTAMP),
        F.struct(*(F.col(SPARK.identifier(name)) for name in key)).alias("key"),
    )
    if letters is not None:
        good = good.join(letters.select(*places.NAMES).distinct(), places.NAMES, "left_anti")
    last = F.max_by(F.struct(TIMESTAMP, *places.NAMES, "tombstone"), "kafka_offset").alias("last")
    newest = (
        good.groupBy("key", "kafka_partition")
        .agg(last)
        .groupBy("key")
        .agg(F.max("last").alias("newest"), F.sort_array(F.collect_list(f"last.{TIMESTAMP}"), asc=False).alias("times"))
        .filter((F.size("times") == 1) | (F.get("times", 0) > F.get("times", 1)))
        .select("key", "newest.*")
    )
    newest_place, row_place = places.in_query(), places.in_query("row")
    rows = table.select("key", F.struct(*places.NAMES, TIMESTAMP).alias("row"))
    is_same = row_place.partition == newest_place.partition
    older = (is_same & (row_place.offset < newest_place.offset)) | (
        ~is_same & is_true(F.col(f"row.{TIMESTAMP}") < F.col(TIMESTAMP))
    )
    no_row = row_place.offset.isNull() & ~F.col("tombstone")
    wrong = newest.join(rows, "key", "left").filter(older | no_row).select(*places.NAMES, "tombstone")
    return [tuple(rows) for rows in wrong.orderBy(*places.NAMES).limit(NAMED).collect()]


def _places(table: DataFrame) -> DataFrame:
    """Return each record once, with its number of occurrences as `n`."""
    return table.groupBy(*places.NAMES).agg(F.count("*").alias("n"))


def _in_ranges(records: DataFrame, ranges: Sequence[OffsetRange], join_type: str) -> DataFrame:
    """Add the number of the range that contains a record, and its snapshot, as `range` and `snapshot`.

    A join on a condition alone compares each record with each range. Offsets are therefore divided into bins about as
    wide as the average range: there are at most twice as many bins as ranges, and a record is only compared within its
    bin.
    """
    width = max(1, sum(r.end - r.start for r in ranges) // max(1, len(ranges)))
    bins = [
        (i, r.snapshot_id, r.partition, r.start, r.end, bin_)
        for i, r in enumerate(ranges)
        for bin_ in range(r.start // width, (r.end - 1) // width + 1)
    ]
    schema = "range INT, snapshot LONG, of INT, low LONG, high LONG, bin LONG"
    known = F.broadcast(records.sparkSession.createDataFrame(bins, schema))
    partition, offset = places.in_query()
    inside = (
        (partition == F.col("of"))
        & (F.expr(f"kafka_offset div {width}") == F.col("bin"))
        & (offset >= F.col("low"))
        & (offset < F.col("high"))
    )
    return records.join(known, inside, join_type).drop("of", "low", "high", "bin")
