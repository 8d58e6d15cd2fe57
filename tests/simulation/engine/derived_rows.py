"""Rows and messages of derived topics in the simulated engine; see lakehouse.pipeline.engine.DerivedRows.

A message is the place of a row, or those of all rows of a group, with the name of the transform.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, partial
from typing import Any

import pyarrow as pa

from lakehouse.core.offsets.batch import Positions
from lakehouse.pipeline.engine_values import (
    FirstRows,
    GroupRows,
    LateRows,
    Rows,
    RowsBetween,
    RowsInColumnsOf,
    SnapshotRows,
    Transform,
)
from tests.simulation.engine.tables import MemoryTables
from tests.simulation.oracles.oracle import Place, place_of
from tests.simulation.systems.kafka import Record

Read = Callable[[], list[Record]]
"""Reads rows, by partition and offset, within a job."""


def transform(rows: Any) -> Any:
    """Return the rows: the transform of the derived topic."""
    return rows


def another(rows: Any) -> Any:
    """Return the rows: the transform that an operator declares later."""
    return rows


def parsed(value: bytes | None) -> tuple[str, list[Place]]:
    """Return the name of the transform that made a message, and the places of its rows."""
    name, places = json.loads(value or b"")
    return name, [tuple(place) for place in places]


@dataclass(frozen=True)
class MemoryDerived:
    """The result of the transform; see lakehouse.pipeline.engine.DerivedRows."""

    tables: MemoryTables
    read: Read
    is_grouped: bool
    transform: str
    """The name of the transform."""

    def avro_schema(self, name: str, columns: Sequence[str] | None = None) -> str:
        return "schema"

    def messages(self, key: tuple[int, str] | None, value: tuple[int, str]) -> pa.Table:
        records = self.tables.job("derive", self.read)
        places = [(str(r.key).encode(), [r.topic_id, r.partition, r.offset]) for r in records]
        groups: dict[bytes, list[Any]] = {}
        for name, place in places:
            groups.setdefault(name, []).append(place)
        pairs = groups.items() if self.is_grouped else [(name, [place]) for name, place in places]
        rows = [{"key": name, "value": json.dumps([self.transform, value]).encode()} for name, value in pairs]
        return pa.Table.from_pylist(rows, schema=pa.schema([("key", pa.binary()), ("value", pa.binary())]))

    def lineage(self) -> Mapping[str, list[str]]:
        return {}

    def reads(self, columns: Sequence[str]) -> bool:
        return False


@dataclass(frozen=True)
class MemoryDerivation:
    """Rows from which topics are derived, and the messages. Their columns have no meaning here."""

    tables: MemoryTables

    def ends(self, rows: Rows) -> Positions:
        """Return the offset after the last one of the rows, by partition."""
        records: list[Record] = self.tables.job("ends", self._reading(rows))
        return {p: max(r.offset + 1 for r in records if r.partition == p) for p in {r.partition for r in records}}

    def is_empty(self, rows: Rows) -> bool:
        """Return whether there are no rows."""
        return not self.tables.job("is empty", self._reading(rows))

    def derive(self, rows: Rows, transform: Transform) -> MemoryDerived:
        """Return the messages of the rows."""
        return MemoryDerived(self.tables, self._reading(rows), isinstance(rows, GroupRows), transform.__name__)

    def _reading(self, rows: Rows) -> Read:
        match rows:
            case SnapshotRows():
                return lambda: _sorted(row.record for row in self.tables.rows(rows.ref, snapshot_id=rows.snapshot_id))
            case RowsInColumnsOf():
                return self._reading(rows.rows)
            case RowsBetween():
                return self._filtered(rows.rows, lambda r: _is_between(r, rows.start, rows.end))
            case LateRows():
                snapshots = [(self._reading(derived), end) for derived, end in rows.derived]

                @cache
                def had() -> set[tuple[int, int]]:
                    return {
                        (r.partition, r.offset) for read, end in snapshots for r in read() if _is_between(r, {}, end)
                    }

                return self._filtered(
                    rows.rows,
                    lambda r: r.offset < rows.since.get(r.partition, 0) and (r.partition, r.offset) not in had(),
                )
            case FirstRows():
                read = self._reading(rows.rows)
                first = cache(lambda: {place_of(record) for record in read()[: rows.number]})
                return self._filtered(rows.rows, lambda record: place_of(record) in first())
            case GroupRows():
                reads = [self._reading(of) for of in rows.touched]
                parts = []
                for part in rows.rows:
                    touched = {r.key for r in self.tables.job("touched groups", partial(_all, reads))}
                    parts.append(self._filtered(part, partial(_has_key, touched)))
                return lambda: _all(parts)

    def _filtered(self, rows: Rows, includes: Callable[[Record], bool]) -> Read:
        read = self._reading(rows)
        return lambda: [*filter(includes, read())]


def _all(parts: Sequence[Read]) -> list[Record]:
    return _sorted(record for read in parts for record in read())


def _sorted(records: Iterable[Record]) -> list[Record]:
    return sorted(records, key=lambda record: (record.partition, record.offset))


def _has_key(keys: set[Any], record: Record) -> bool:
    return record.key in keys


def _is_between(record: Record, start: Positions, end: Positions) -> bool:
    return start.get(record.partition, 0) <= record.offset < end.get(record.partition, 0)
