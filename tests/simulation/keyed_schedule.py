"""Schedules of tables with one row per key, in which an action happens between two calls of a program, and of which the
topic gets more partitions."""

from __future__ import annotations

from collections.abc import Callable

from tests.simulation.choices import Choices
from tests.simulation.interruptions import Interruptions
from tests.simulation.schedule import Schedule


class Keyed(Schedule):
    """A schedule of a table with one row per key."""

    def __init__(self, choices: Choices):
        super().__init__(choices, modes=("upsert", "dedup"))


class KeyedSchedule(Interruptions, Keyed):
    """A schedule in which actions interrupt the ingestion of a table with one row per key."""

    @property
    def actions(self) -> tuple[str, ...]:
        """The actions of ingestion and tables, and new partitions."""
        return (*super().actions, "add partition")

    def events(self) -> dict[str, Callable[[], object]]:
        """Return the events of ingestion and tables, and new partitions."""
        return super().events() | {"add partition": self.source.add_partition}
