"""The judge of the table of a topic whose newest records leader elections lose."""

from __future__ import annotations

from typing import Any

from tests.simulation.engine import Letter, Row
from tests.simulation.kafka import Record
from tests.simulation.oracle import Oracle, place_of


class TruncationOracle(Oracle):
    """An oracle that forgets the rows of lost records, since later records have their places.

    A program may have read a record before it was lost, and one that has its place may be behind the table's position,
    so either may be missing.
    """

    def __init__(self, *arguments: Any, **settings: Any):
        super().__init__(*arguments, **settings)
        self._lost: set[tuple[object, int | None]] = set()

    def truncated(self, record: Record) -> None:
        """Note that a record was lost."""
        self._lost.add((place_of(record), record.value))
        self.uncertain.add(place_of(record))

    def rows(self) -> list[Row]:
        """Return the rows of the table whose records exist or existed last at their places."""
        return [row for row in super().rows() if not self._is_lost(row.record)]

    def letters(self) -> list[Letter]:
        """Return the dead letters of the table whose records exist or existed last at their places."""
        return [letter for letter in super().letters() if not self._is_lost(letter.record)]

    def _is_lost(self, record: Record) -> bool:
        return (place_of(record), record.value) in self._lost
