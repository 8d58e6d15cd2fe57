"""Declared checks in the simulated engine: the rows that they read, and which of them fail."""

from __future__ import annotations

import functools
import re

from lakehouse.config.checks import Scope
from lakehouse.core.tables.naming import TableRef
from tests.simulation.engine.tables import MemoryTables, Row
from tests.simulation.systems.kafka import Record

SELECTED = re.compile(r"`\w+`\.`(\w+)`\.`(\w+)` VERSION AS OF (\d+)")
OLD = re.compile(r"`kafka_partition` = (\d+) AND `kafka_offset` < (\d+)")
"""The parts of the SQL that selects the rows to check (lakehouse.config.checks.scope)."""


RAISING = "1 / 0 > 1"
"""The condition of a query that raises an error if there is any row."""


@functools.cache
def divisor(condition: str) -> int:
    """Return the number whose multiples fail a check; a greater `max` lets fewer rows fail.

    Args:
        condition: The SQL of a check of type `range`.
    """
    limit = re.search(r"<= (\d+)", condition)
    assert limit is not None
    return int(limit[1]) // 3


def fails(condition: str, record: Record) -> bool:
    """Return whether the row of a record fails a check, given by its SQL."""
    return isinstance(record.value, int) and record.value % divisor(condition) == 0


def checked_rows(tables: MemoryTables, scope: Scope) -> list[Row]:
    """Return the rows of a snapshot, except those before the offsets that the scope names."""
    selected, old = SELECTED.search(scope.rows), {int(p): int(o) for p, o in OLD.findall(scope.rows)}
    assert selected is not None
    rows = tables.rows(TableRef(selected[1], selected[2]), snapshot_id=int(selected[3]))
    return [row for row in rows if row.record.offset >= old.get(row.record.partition, 0)]
