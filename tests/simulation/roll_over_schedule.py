"""Schedules in which the type of a field changes, so that ingestion continues in a new table, from which rows are
derived, too."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from pyiceberg.table.metadata import TableMetadata

from tests.simulation.choices import Choices
from tests.simulation.derivation_schedule import DerivationSchedule
from tests.simulation.engine import Letter, Row
from tests.simulation.oracle import Oracle, rows_of
from tests.simulation.schedule import NAME
from tests.simulation.table_events import table_events

OMITTED = "redrive", "replay", "resume", "recreate", "roll back", "drop table", "bookmark"
"""Actions about positions and dead letters, which concern the newest table only."""


class SuccessiveOracle(Oracle):
    """The expected contents of a table and its successor, which begins where the table ends."""

    newest = NAME
    before: tuple[list[Row], list[Letter]] = [], []

    def committed(self, name: str, before: TableMetadata | None, after: TableMetadata) -> None:
        """Judge a commit; the table does not change once its successor has a batch."""
        table = name.removesuffix("__dead_letters")
        if name.startswith(NAME) and table != self.newest:
            if len(table) < len(self.newest):
                if name == table and {*rows_of(self._spark.iceberg.loaded(name))} != {*self.before[0]}:
                    self._violate(f"rows of {name} have changed after {self.newest} continued it")
                return
            position = self.position[1]
            letters = [one for one in self.letters() if one.record.offset < position.get(one.record.partition, 0)]
            self.newest, self.before = table, (self.rows(), letters)
            self._main, self._states, self._rows, self._letters = [], [], [], None
        super().committed(name, before, after)

    def rows(self) -> list[Row]:
        """Return the rows of both tables."""
        return [*self.before[0], *super().rows()]

    def letters(self) -> list[Letter]:
        """Return the dead letters of both tables."""
        return [*self.before[1], *super().letters()]


class RollOverSchedule(DerivationSchedule):
    """A schedule in which a topic rolls over to a new table."""

    oracle: SuccessiveOracle
    oracle_type = SuccessiveOracle
    recovering = ("ingest",)

    def __init__(self, choices: Choices):
        super().__init__(choices)
        self.topic = self.topic.model_copy(update={"on_incompatible": "new_table"})

    @property
    def actions(self) -> tuple[str, ...]:
        """The actions of derivation that concern all tables, and changes of a type."""
        kept: Iterable[str] = (name for name in super().actions if name not in OMITTED)
        return (*kept, "change type", "change type", "other maintenance", "other writer", "dry run")

    def events(self) -> dict[str, Callable[[], object]]:
        """Return the events of derivation, and the change of a type."""
        of_table = table_events(self.world, self.spark, self.oracle, self.oracle.newest)
        return super().events() | of_table | {"change type": self.change_type}

    def change_type(self) -> None:
        """Register a schema in which a field has another type."""
        self.registry.change_type()
        self.world.record("producer: registered a schema with another type")
