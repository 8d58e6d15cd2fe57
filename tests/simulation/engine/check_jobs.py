"""Simulated checks: the function of spark.tables.staged_checks that reads staged rows, and which rows fail."""

from __future__ import annotations

import functools
import re
from collections.abc import Mapping
from typing import Any

from lakehouse.config.checks import Check, RowCheck, Scope
from lakehouse.core.tables.naming import TableRef
from spark.tables import staged_checks
from tests.simulation.engine.memory_spark import MemorySpark, Row
from tests.simulation.systems.kafka import Record

SELECTED = re.compile(r"`\w+`\.`(\w+)`\.`(\w+)` VERSION AS OF (\d+)")
OLD = re.compile(r"`kafka_partition` = (\d+) AND `kafka_offset` < (\d+)")
"""The parts of the SQL that selects the rows to check (lakehouse.config.checks.scope)."""


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


def run(
    spark: MemorySpark, declared: Mapping[str, Check], scope: Scope, shown: Mapping[str, list[str]]
) -> dict[str, staged_checks.Result]:
    """Check the rows of a snapshot, except those before the offsets that the scope names."""
    selected, old = SELECTED.search(scope.rows), {int(p): int(o) for p, o in OLD.findall(scope.rows)}
    assert selected is not None
    ref, snapshot_id = TableRef(selected[1], selected[2]), int(selected[3])

    def new_rows() -> list[Row]:
        rows = spark.rows(ref, snapshot_id=snapshot_id)
        return [row for row in rows if row.record.offset >= old.get(row.record.partition, 0)]

    rows: list[Any] = spark.job("run checks", new_rows)
    conditions = {name: check.failure_condition for name, check in declared.items() if isinstance(check, RowCheck)}
    failing = {name: sum(fails(sql, row.record) for row in rows) for name, sql in conditions.items()}
    return {name: staged_checks.Result(len(rows), failing.get(name, 0), scope.rows) for name in declared}
