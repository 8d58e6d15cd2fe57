"""Schedules in which the type of a field changes, so that ingestion continues in a new table, from which rows are
derived, too."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from pyiceberg.table import Table
from pyiceberg.table.metadata import TableMetadata

from lakehouse.core.table_protocol import SUCCESSOR
from tests.simulation.choices import Choices
from tests.simulation.engine.tables import Row
from tests.simulation.oracles.oracle import Oracle, Position, Range, rows_of
from tests.simulation.schedules.derivation import DerivationSchedule
from tests.simulation.schedules.schedule import NAME
from tests.simulation.schedules.table_events import drop, table_events


@dataclass(frozen=True)
class Closed:
    """State of the oracle when the successor of a table was created."""

    rows: list[Row]
    main: list[int]
    states: list[tuple[int, Position]]
    ranges: list[Range]
    position: Position


class SuccessiveOracle(Oracle):
    """The expected contents of a table and its successor, which begins where the table ends.

    Attributes:
        newest: The name of the newest table.
        closed: The table before it; None before the roll-over, and if an operator dropped it.
    """

    newest = NAME
    closed: Closed | None = None

    def committed(self, name: str, before: TableMetadata | None, after: TableMetadata) -> None:
        """Judge a commit; the table does not change once its successor has a batch."""
        if name.startswith(NAME) and not name.endswith("__dead_letters") and name != self.newest:
            if name == NAME:
                if {*rows_of(self._tables.iceberg.loaded(name))} != {*self.rows_before()}:
                    self._violate(f"rows of {name} have changed after {self.newest} continued it")
                return
            self.closed = Closed(self._rows, self._main, self._states, [*self._ranges], self.position)
            self.newest, self._main, self._states, self._rows = name, [], [], []
        super().committed(name, before, after)

    def dropped(self, table: Table) -> None:
        """Forget what a table has that an operator dropped. Ingestion stops if only the successor is left."""
        name, closed = table.name()[-1], self.closed
        if name == NAME != self.newest:
            self.has_dropped, self.closed = True, None
            del self._ranges[: len(closed.ranges) if closed else 0]
            self._states = [(max(0, count - len(closed.ranges)), p) for count, p in self._states] if closed else []
            return
        super().dropped(table)
        if name == self.newest:
            self.newest, self.closed = NAME, None
            if closed:
                self._rows, self._main, self._states = closed.rows, closed.main, closed.states
                self._ranges, self.position = closed.ranges, closed.position

    def rows_before(self) -> list[Row]:
        """Return the rows of the table before the newest one."""
        return self.closed.rows if self.closed else []

    def rows(self) -> list[Row]:
        """Return the rows of both tables."""
        return [*self.rows_before(), *super().rows()]


class RollOverSchedule(DerivationSchedule):
    """A schedule in which a topic rolls over to a new table."""

    oracle: SuccessiveOracle
    oracle_type = SuccessiveOracle

    def __init__(self, choices: Choices):
        super().__init__(choices)
        self.topic = self.topic.model_copy(update={"on_incompatible": "new_table"})

    @property
    def actions(self) -> tuple[str, ...]:
        """The actions of derivation, and changes of a type."""
        return (*super().actions, "change type", "change type", "other maintenance", "other writer", "dry run")

    def events(self) -> dict[str, Callable[[], object]]:
        """Return the events of derivation, those of a table for the newest one."""
        of_table = table_events(self.world, self.engine, self.oracle, self.oracle.newest)
        return super().events() | of_table | {"drop table": self.drop_table}

    def measure(self) -> None:
        """Compare the verdict about freshness with the truth, unless an operator dropped the first table alone."""
        if self.oracle.newest == NAME or self.iceberg.find(NAME):
            super().measure()

    def drop_table(self) -> None:
        """Drop one of the tables.

        Not the newest one if it has rows of dead letters from before the roll-over, which are marked as rows; and not
        the first one while a program may be about to create its successor.
        """
        name, table = self.choices.of((self.oracle.newest, NAME)), self.iceberg.find(NAME)
        is_marked = name != NAME and any(letter.recovered for letter in self.oracle.letters())
        is_closing = table is not None and SUCCESSOR in table.properties and self.oracle.newest == NAME
        if not is_marked and not (is_closing and self.world.processes):
            drop(self.world, self.iceberg, name)

    def end_faults(self) -> None:
        """End all faults; if only the successor is left, produce a record, with which ingestion stops and says so."""
        super().end_faults()
        if self.iceberg.find(NAME) is None and self.oracle.newest != NAME:
            self.source.produce()
