"""Merge rows by key into a branch at the cost of the batch.

Of the table, only key columns are read, and nothing is moved. A MERGE that also inserts keeps all rows of the batch,
matched or not. For such an outer join Spark cannot broadcast the batch and shuffles every key of the table (Spark,
RewriteMergeIntoTable). Matching rows are therefore determined by an inner join and written separately from appended
ones.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import reduce
from operator import and_
from typing import NamedTuple

from pyspark.sql import Column, DataFrame, Observation
from pyspark.sql import functions as F

from lakehouse.core.sql import SPARK
from lakehouse.pipeline.engine_values import Target
from spark.decoding.decoded import PREFIX, record
from spark.tables import commits
from spark.tables.observed_counts import observed_counts
from spark.tables.spans import SPANNED, bound, literal


class LateRecords(NamedTuple):
    """The number of records that came after a newer one of their key from another partition."""

    rows: int = 0
    tombstones: int = 0


def replace(
    rows: DataFrame,
    target: Target,
    key: tuple[str, ...],
    origin: tuple[str, str] | None = None,
    *,
    truncated: bool = False,
) -> LateRecords:
    """Delete the table's rows with keys of the batch, then append the batch, in two commits on the branch.

    Args:
        rows: One row per key, from a cache, in the columns of the table and `tombstone` of spark.decoding.decoded,
            which is true for rows to delete only.
        target: The branch.
        key: The key columns.
        origin: The columns of Kafka partitions and timestamps. A row of another partition with a later timestamp
            remains; if None, there is none.
        truncated: Whether to delete all rows of the table.

    Returns:
        The records that were left out because of such rows.
    """
    late = LateRecords()
    if origin and (newer := _newer(rows, target, key, origin)):
        is_late = _same_key("source", "newer", key)
        left_out = rows.alias("source").join(newer, is_late, "leftsemi")
        counts = F.count_if(~record("tombstone")), F.count_if(record("tombstone"))
        [late] = (LateRecords(*numbers) for numbers in left_out.agg(*counts).collect())
        rows = rows.alias("source").join(newer, is_late, "leftanti").select("source.*")
    table = f"branch_{target.branch}"
    if truncated:
        keys, matches = rows.sparkSession.range(1).alias("source"), F.lit(True)
    else:
        matches = _same_key("source", table, key) & in_span(rows, table, key)
        keys = rows.select(*[_column(c) for c in key]).alias("source")
    commits.merge(
        rows.sparkSession, keys.mergeInto(commits.path(target), matches).whenMatched().delete(), target.deleting()
    )
    add_living(rows, target.completing())
    return late


def add_living(rows: DataFrame, target: Target) -> None:
    """Append the rows that are no tombstones."""
    commits.append(rows.filter(~record("tombstone")).drop(PREFIX + "tombstone"), target)


def _newer(rows: DataFrame, target: Target, key: tuple[str, ...], origin: tuple[str, str]) -> DataFrame | None:
    """Return the keys of the batch whose row is of another partition and has a later timestamp; None if there are none.

    Only files with timestamps after the first one of the batch are read: most often none, or the newest ones.
    """
    partition, timestamp = origin
    types = {field.name: field.dataType for field in rows.schema}
    [(first,)] = rows.agg(bound(F.min(_column(timestamp)), types[timestamp])).collect()
    table = rows.sparkSession.table(commits.path(target)).alias("table")
    later = table.filter(_column("table", timestamp) > literal(first, types[timestamp]))
    is_newer = (
        _same_key("source", "table", key)
        & (_column("table", partition) != _column("source", partition))
        & (_column("table", timestamp) > _column("source", timestamp))
    )
    newer = later.join(rows.alias("source"), is_newer, "leftsemi").select(*[_column("table", c) for c in key])
    newer = newer.localCheckpoint()
    return None if newer.isEmpty() else newer.alias("newer")


def add_missing(rows: DataFrame, target: Target, key: tuple[str, ...]) -> int:
    """Append the rows whose key the table lacks, and return their number.

    Args:
        rows: One row per key, from a cache, in the columns of the table.
        target: The branch.
        key: The key columns.
    """
    table = rows.sparkSession.table(commits.path(target)).alias("table")
    keys = table.filter(in_span(rows, "table", key)).select(*[_column("table", c) for c in key])
    # In separate queries, because Spark Connect refuses rows that are observed on both sides of one join.
    present = keys.join(rows.alias("source"), _same_key("source", "table", key), "leftsemi").localCheckpoint()
    missing = rows.alias("source").join(present.alias("present"), _same_key("source", "present", key), "leftanti")
    return add(missing, target)


def add(rows: DataFrame, target: Target) -> int:
    """Append the rows, and return their number."""
    added = Observation()
    commits.append(rows.observe(added, F.count(F.lit(1)).alias("rows")), target)
    return observed_counts(added)["rows"]


@contextmanager
def cached(rows: DataFrame) -> Iterator[DataFrame]:
    """Cache the rows, so that the batch is read, decoded and reduced once."""
    rows.persist()
    try:
        yield rows
    finally:
        rows.unpersist()


def _same_key(one: str, other: str, key: tuple[str, ...]) -> Column:
    return reduce(and_, [_column(one, c) == _column(other, c) for c in key])


def in_span(rows: DataFrame, table: str, key: tuple[str, ...]) -> Column:
    """Return whether a key is between the batch's minimum and maximum of each key column, by which Iceberg skips files.

    Computing them also fills the cache, whose size lets Spark broadcast the rows.
    """
    types = {field.name: field.dataType for field in rows.schema}
    spanned = [c for c in key if isinstance(types[c], SPANNED)]
    spans = [F.struct(bound(F.min(_column(c)), types[c]), bound(F.max(_column(c)), types[c])) for c in spanned]
    [(_, *bounds)] = rows.agg(F.count(F.lit(1)), *spans).collect()
    is_in_span = F.lit(True)
    for column, span in zip(spanned, bounds, strict=True):
        low, high = (literal(value, types[column]) for value in span)
        is_in_span &= _column(table, column).between(low, high)
    return is_in_span


def _column(*path: str) -> Column:
    return F.col(SPARK.identifier(*path))
