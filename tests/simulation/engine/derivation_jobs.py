"""Simulated derivation: the functions of spark.derive, spark.avro_schema and spark.column_lineage.

A message is the place of a row, or those of all rows of a group.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

import pyarrow as pa

import spark.avro_schema
import spark.column_lineage
import spark.derive
from lakehouse.core.offsets.batch import Positions
from lakehouse.core.tables.naming import TableRef
from tests.simulation.engine.memory_spark import MemorySpark
from tests.simulation.oracles.oracle import Place, place_of
from tests.simulation.systems.kafka import Record


@dataclass(frozen=True)
class SourceRows:
    """A lazy DataFrame of rows of the source's table.

    Attributes:
        spark: The engine.
        ref: The table.
        snapshot_id: The snapshot.
        includes: Which rows it has.
        is_grouped: Whether they are all rows of some groups.
        others: Further rows, possibly of other snapshots.
    """

    spark: MemorySpark
    ref: TableRef
    snapshot_id: int
    includes: Callable[[Record], bool] = lambda record: True
    is_grouped: bool = False
    others: Sequence[SourceRows] = ()

    columns = ("id",)
    schema = None

    def read(self) -> list[Record]:
        """Read the rows."""
        records = (row.record for row in self.spark.rows(self.ref, snapshot_id=self.snapshot_id))
        rows = [*filter(self.includes, records), *(record for other in self.others for record in other.read())]
        return sorted(rows, key=lambda record: (record.partition, record.offset))

    def where(self, condition: Callable[[Record], bool]) -> SourceRows:
        """Return the rows that also fulfil a condition."""
        return replace(self, includes=lambda record: self.includes(record) and condition(record))

    def select(self, *columns: str) -> SourceRows:
        """Return the rows: their columns have no meaning here."""
        return self


def published(spark: MemorySpark, ref: TableRef, snapshot_id: int, names: Mapping[str, str]) -> SourceRows:
    """Return one snapshot of a table."""
    return SourceRows(spark, ref, snapshot_id)


def groups(rows: Sequence[SourceRows], group_by: tuple[str, ...]) -> SourceRows:
    """Return all rows: their columns have no meaning here."""
    first, *others = rows
    return replace(first, others=others)


def rows_of_touched_groups(source: SourceRows, new: SourceRows, group_by: tuple[str, ...]) -> SourceRows:
    """Return all rows of each group that has a new row."""
    touched = {record.key for record in source.spark.job("touched groups", new.read)}
    return replace(source.where(lambda record: record.key in touched), is_grouped=True)


def changed_columns(rows: SourceRows, earlier: SourceRows) -> list[str]:
    """Return no columns: the transform reads none whose type changes."""
    return []


def as_rows_of(rows: SourceRows, earlier: SourceRows) -> SourceRows:
    """Return the rows of an earlier table: their columns have no meaning here."""
    return earlier


def union(rows: SourceRows, others: SourceRows) -> SourceRows:
    """Return all rows of both."""
    return replace(rows, others=[*rows.others, others])


def rows_between(source: SourceRows, start: Positions, end: Positions) -> SourceRows:
    """Return the rows of a range of offsets."""
    return source.where(lambda r: start.get(r.partition, 0) <= r.offset < end.get(r.partition, 0))


def late_rows(source: SourceRows, derived: Iterable[tuple[SourceRows, Positions]], since: Positions) -> SourceRows:
    """Return the rows before a position that none of some snapshots has before its position."""
    snapshots = list(derived)

    @cache
    def had() -> set[tuple[int, int]]:
        return {(row.partition, row.offset) for rows, end in snapshots for row in rows_between(rows, {}, end).read()}

    def is_late(record: Record) -> bool:
        return record.offset < since.get(record.partition, 0) and (record.partition, record.offset) not in had()

    return source.where(is_late)


def first_rows(rows: SourceRows, number: int) -> SourceRows:
    """Return the first rows."""

    @cache
    def first() -> set[Place]:
        return {place_of(record) for record in rows.read()[:number]}

    return rows.where(lambda record: place_of(record) in first())


def ends(rows: SourceRows) -> Positions:
    """Return the offset after the last one of the rows, by partition."""
    records = rows.spark.job("ends", rows.read)
    return {p: max(r.offset + 1 for r in records if r.partition == p) for p in {r.partition for r in records}}


def own_columns(result: SourceRows) -> SourceRows:
    """Return the rows."""
    return result


def messages(result: SourceRows, key: Any, value: Any) -> pa.Table:
    """Return a message for each row or group."""
    records = result.spark.job("derive", result.read)
    places = [(str(r.key).encode(), [r.topic_id, r.partition, r.offset]) for r in records]
    groups: dict[bytes, list[Any]] = {}
    for name, place in places:
        groups.setdefault(name, []).append(place)
    pairs = groups.items() if result.is_grouped else [(name, [place]) for name, place in places]
    rows = [{"key": name, "value": json.dumps(value).encode()} for name, value in pairs]
    return pa.Table.from_pylist(rows, schema=pa.schema([("key", pa.binary()), ("value", pa.binary())]))


def transform(rows: SourceRows) -> SourceRows:
    """Return the rows: the transform of the derived topic."""
    return rows


DERIVATION: dict[Any, dict[str, Any]] = {
    spark.derive: {
        "published": published,
        "groups": groups,
        "rows_of_touched_groups": rows_of_touched_groups,
        "changed_columns": changed_columns,
        "as_rows_of": as_rows_of,
        "union": union,
        "rows_between": rows_between,
        "late_rows": late_rows,
        "first_rows": first_rows,
        "ends": ends,
        "own_columns": own_columns,
        "messages": messages,
    },
    spark.avro_schema: {"avro_schema": lambda schema, name: "schema"},
    spark.column_lineage: {"columns_read": lambda result, columns: {}},
}
"""The functions that are simulated, by module."""
