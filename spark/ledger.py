"""What a table, its dead letters and the topic's log hold of the ranges in a ledger, each counted in one query."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from functools import reduce

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F

from lakehouse.core.ledger import NAMED, Held, Logged, Range
from lakehouse.core.sql import SPARK
from spark.decoded import record

PLACE = ["kafka_partition", "kafka_offset"]
"""What identifies a record within its topic."""


def places(table: DataFrame, names: Mapping[str, str], key: Sequence[str] = ()) -> DataFrame:
    """Return PLACE of a table's rows, and `key`, a struct of the columns that identify a row.

    Args:
        table: One snapshot of a table.
        names: The table's names of metadata columns, by their internal ones.
        key: The names of the columns.
    """
    place = [F.col(SPARK.identifier(names[name])).alias(name) for name in PLACE]
    columns = [F.col(SPARK.identifier(name)) for name in key]
    return table.select(*place, *([F.struct(*columns).alias("key")] if key else []))


def held(table: DataFrame, ranges: Sequence[Range]) -> dict[Range | None, Held]:
    """Rows, distinct offsets, and the first and last of them, in each range; None for offsets of no range.

    Parameters: one snapshot of a table with the columns PLACE.
    """
    counted = (
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
        None if i is None else ranges[i]: Held(rows, distinct, first, last)
        for i, rows, distinct, first, last in counted.collect()
    }


def duplicates(table: DataFrame, allowed: int = 1) -> list[tuple[int, int, int]]:
    """The first records that are there more often than `allowed`, as (partition, offset, how often)."""
    found = _places(table).filter((F.col("n") > allowed) & F.col("kafka_offset").isNotNull())
    return [tuple(row) for row in found.orderBy(*PLACE).limit(NAMED).collect()]


def duplicate_keys(table: DataFrame, key: Sequence[str], shown: Collection[str]) -> list[tuple[str, int]]:
    """The first keys that have more than one row, as (key, rows). Values of columns that are not `shown` are hidden.

    Parameters: `table` as `places` answers it.
    """
    found = table.groupBy("key").agg(F.count("*").alias("n")).filter("n > 1")
    texts = [F.col("key")[name].cast("string") if name in shown else F.lit("(sensitive)") for name in key]
    text = F.concat_ws(", ", *texts)
    return [tuple(row) for row in found.select(text.alias("key"), "n").orderBy("key").limit(NAMED).collect()]


def together(tables: Sequence[DataFrame | None]) -> DataFrame:
    """The columns PLACE of all tables that there are."""
    return reduce(DataFrame.unionAll, [table.select(*PLACE) for table in tables if table is not None])


def logged(
    records: DataFrame, ranges: Sequence[Range], outcomes: DataFrame | None
) -> tuple[dict[int, Logged], list[tuple[int, int, int]]]:
    """What the log holds of each snapshot's ranges, and the first records of each that have no outcome.

    Parameters: `records` as spark.records reads them; `outcomes` has the columns PLACE, and without it none is missing.
    Returns: what was found by snapshot id, and (snapshot id, partition, offset) of the records to name.
    """
    places = _in_ranges(records.selectExpr("partition AS kafka_partition", "offset AS kafka_offset"), ranges, "inner")
    missing = places.withColumn("missing", F.lit(False))
    if outcomes is not None:
        found = places.join(outcomes.distinct().withColumn("found", F.lit(True)), PLACE, "left")
        missing = found.withColumn("missing", F.col("found").isNull())
    counted = missing.groupBy("snapshot").agg(F.count("*"), F.count_if("missing"))
    by_snapshot = {snapshot: Logged(records, gone) for snapshot, records, gone in counted.collect()}
    if not any(seen.missing for seen in by_snapshot.values()):
        return by_snapshot, []
    rank = F.row_number().over(Window.partitionBy("snapshot").orderBy(*PLACE))
    named = missing.filter("missing").withColumn("rank", rank).filter(F.col("rank") <= NAMED)
    return by_snapshot, [tuple(row) for row in named.select("snapshot", *PLACE).orderBy("snapshot", *PLACE).collect()]


def wrong_newest(
    decoded: DataFrame, letters: DataFrame | None, table: DataFrame, key: Sequence[str]
) -> list[tuple[int, int, bool]]:
    """The first newest records of their keys that an upsert table does not show.

    Keys that were in several partitions are left out: nothing orders their records.

    Parameters: `decoded` as spark.decode gives it, up to where the table is; `letters` and `table` as `places` answers
    them.
    Returns: (partition, offset, tombstone) of each; where a tombstone is the newest, the table has an older row.
    """
    good = decoded.filter(record("reason").isNull() & ~record("filtered")).select(
        record("partition").alias("kafka_partition"),
        record("offset").alias("kafka_offset"),
        record("tombstone").alias("tombstone"),
        F.struct(*(F.col(SPARK.identifier(name)) for name in key)).alias("key"),
    )
    if letters is not None:
        good = good.join(letters.select(*PLACE).distinct(), PLACE, "left_anti")
    newest = (
        good.groupBy("key")
        .agg(
            F.max_by(F.struct(*PLACE, "tombstone"), "kafka_offset").alias("newest"),
            F.count_distinct("kafka_partition").alias("partitions"),
        )
        .filter("partitions = 1")
        .select("key", "newest.*")
    )
    row = table.select(
        "key", F.col("kafka_partition").alias("row_partition"), F.col("kafka_offset").alias("row_offset")
    )
    older = (F.col("row_partition") == F.col("kafka_partition")) & (F.col("row_offset") < F.col("kafka_offset"))
    no_row = F.col("row_offset").isNull() & ~F.col("tombstone")
    wrong = newest.join(row, "key", "left").filter(older | no_row).select(*PLACE, "tombstone")
    return [tuple(found) for found in wrong.orderBy(*PLACE).limit(NAMED).collect()]


def _places(table: DataFrame) -> DataFrame:
    """Each record once, with how often it is there as `n`."""
    return table.groupBy(*PLACE).agg(F.count("*").alias("n"))


def _in_ranges(places: DataFrame, ranges: Sequence[Range], how: str) -> DataFrame:
    """Records with the number of their range and its snapshot as `range` and `snapshot`.

    A join on a condition alone compares each record with each range. Offsets are therefore cut into bins about as
    wide as the average range: there are at most twice as many bins as ranges, and a record meets those of its bin.
    """
    width = max(1, sum(r.end - r.start for r in ranges) // max(1, len(ranges)))
    bins = [
        (i, r.snapshot_id, r.partition, r.start, r.end, bin_)
        for i, r in enumerate(ranges)
        for bin_ in range(r.start // width, (r.end - 1) // width + 1)
    ]
    schema = "range INT, snapshot LONG, of INT, low LONG, high LONG, bin LONG"
    known = F.broadcast(places.sparkSession.createDataFrame(bins, schema))
    inside = (
        (F.col("kafka_partition") == F.col("of"))
        & (F.expr(f"kafka_offset div {width}") == F.col("bin"))
        & (F.col("kafka_offset") >= F.col("low"))
        & (F.col("kafka_offset") < F.col("high"))
    )
    return places.join(known, inside, how).drop("of", "low", "high", "bin")
