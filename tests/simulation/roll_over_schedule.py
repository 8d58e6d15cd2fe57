"""Schedules in which the type of a field changes, so that ingestion continues in a new table, from which rows are
derived, too."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from pyiceberg.table.metadata import TableMetadata

from tests.simulation.choices import Choices
from tests.simulation.derivation_schedule import DerivationSchedule
from tests.simulation.engine import Row
from tests.simulation.oracle import Oracle, rows_of
from tests.simulation.schedule import NAME
from tests.simulation.table_events import table_events

OMITTED = ("drop table",)
"""Actions after which the rows of one of the tables are not what the other continues."""


class SuccessiveOracle(Oracle):
    """The expected contents of a table and its successor, which begins where the table ends."""

    newest = NAME
    before: Sequence[Row] = ()

    def committed(self, name: str, before: TableMetadata | None, after: TableMetadata) -> None:
        """Judge a commit; the table does not change once its successor has a batch."""
        if name.startswith(NAME) and not name.endswith("__dead_letters") and name != self.newest:
            if len(name) < len(self.newest):
                if {*rows_of(self._spark.iceberg.loaded(name))} != {*self.before}:
                    self._violate(f"rows of {name} have changed after {self.newest} continued it")
                return
            self.newest, self.before = name, self.rows()
            self._main, self._states, self._rows = [], [], []
        super().committed(name, before, after)

    def rows(self) -> list[Row]:
        """Return the rows of both tables."""
        return [*self.before, *super().rows()]


class RollOverSchedule(DerivationSchedule):
    """A schedule in which a topic rolls over to a new table."""

    oracle: SuccessiveOracle
    oracle_type = SuccessiveOracle

    def __init__(self, choices: Choices):
        super().__init__(choices)
        self.topic = self.topic.model_copy(update={"on_incompatible": "new_table"})

    @property
    def actions(self) -> tuple[str, ...]:
        """The actions of derivation that concern all tables, and changes of a type."""
        kept: Iterable[str] = (name for name in super().actions if name not in OMITTED)
        return (*kept, "change type", "change type", "other maintenance", "other writer", "dry run")

    def events(self) -> dict[str, Callable[[], object]]:
        """Return the events of derivation, those of a table for the newest one."""
        of_table = table_events(self.world, self.spark, self.oracle, self.oracle.newest)
        return super().events() | of_table
