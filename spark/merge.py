"""Rows by key into a branch, at the cost of the batch: of the table, only key columns are read and nothing is moved.

A MERGE that also inserts keeps all rows of the batch, matched or not. For such an outer join Spark cannot broadcast the
batch and shuffles every key of the table (Spark, RewriteMergeIntoTable). So what matches is found by an inner join, and
written apart from what is appended.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from functools import reduce
from operator import and_

from pyspark.sql import Column, DataFrame, Observation
from pyspark.sql import functions as F

from lakehouse.core.sql import SPARK
from spark.decoded import PREFIX, record
from spark.spans import SPANNED, bound, literal


def replace(
    rows: DataFrame,
    target: str,
    branch: str,
    key: tuple[str, ...],
    first: AbstractContextManager[None],
    last: AbstractContextManager[None],
) -> None:
    """Delete the table's rows whose key the batch has, then append the batch: two commits on the branch.

    Parameters: `rows` are one a key, in the columns of the table and `tombstone` of spark.decoded: that a row only
    deletes; `target` is the branch as Spark addresses it; `first` and `last` are entered around the one commit and the
    other, which completes the batch.
    """
    with _held(rows):
        table = f"branch_{branch}"
        matches = _same_key("source", table, key) & _in_span(rows, table, key)
        keys = rows.select(*[_column(c) for c in key]).alias("source")
        with first:
            keys.mergeInto(target, matches).whenMatched().delete().merge()
        with last:
            rows.filter(~record("tombstone")).drop(PREFIX + "tombstone").writeTo(target).append()


def add_missing(rows: DataFrame, target: str, key: tuple[str, ...]) -> int:
    """Append the rows whose key the table lacks; returns how many.

    Parameters: `rows` are one a key, in the columns of the table; `target` is the branch as Spark addresses it.
    """
    with _held(rows):
        table = rows.sparkSession.table(target).alias("table")
        known = table.filter(_in_span(rows, "table", key)).select(*[_column("table", c) for c in key])
        # Apart, because Spark Connect refuses rows that are observed on both sides of one join.
        present = known.join(rows.alias("source"), _same_key("source", "table", key), "leftsemi").localCheckpoint()
        missing = rows.alias("source").join(present.alias("present"), _same_key("source", "present", key), "leftanti")
        return add(missing, target)


def add(rows: DataFrame, target: str) -> int:
    """Append the rows; returns how many."""
    added = Observation()
    rows.observe(added, F.count(F.lit(1)).alias("rows")).writeTo(target).append()
    return added.get["rows"]


@contextmanager
def _held(rows: DataFrame) -> Iterator[None]:
    """Read, decode and reduce once, whatever is done with the rows inside."""
    rows.persist()
    try:
        yield
    finally:
        rows.unpersist()


def _same_key(one: str, other: str, key: tuple[str, ...]) -> Column:
    return reduce(and_, [_column(one, c) == _column(other, c) for c in key])


def _in_span(rows: DataFrame, table: str, key: tuple[str, ...]) -> Column:
    """Between the batch's least and greatest value of each key column: by that Iceberg skips files before it reads any.

    Finding them is also what fills the held rows: Spark knows from then on how small they are, and broadcasts them.
    """
    types = {field.name: field.dataType for field in rows.schema}
    spanned = [c for c in key if isinstance(types[c], SPANNED)]
    spans = [F.struct(bound(F.min(_column(c)), types[c]), bound(F.max(_column(c)), types[c])) for c in spanned]
    [(_, *found)] = rows.agg(F.count(F.lit(1)), *spans).collect()
    within = F.lit(True)
    for column, span in zip(spanned, found, strict=True):
        low, high = (literal(value, types[column]) for value in span)
        within &= _column(table, column).between(low, high)
    return within


def _column(*path: str) -> Column:
    return F.col(SPARK.identifier(*path))
