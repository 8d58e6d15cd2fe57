"""Schedules in which operators edit settings in lakehouse.yaml that decide what the rows of the table mean."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from tests.simulation.choices import Choices
from tests.simulation.schedules.schedule import ACTIONS, NAME, OF_TABLES, Schedule

EDITS: Sequence[Mapping[str, object]] = (
    {"mode": "append", "key": ()},
    {"mode": "dedup", "key": ("id",)},
    {"mode": "upsert", "key": ("id",)},
)


class EditedSchedule(Schedule):
    """A schedule in which programs run with settings that the rows of the table were not made with.

    They are edited while the table has rows, which it never loses: otherwise, the first batch decides the settings.
    """

    def __init__(self, choices: Choices, modes: Sequence[str] = ("append", "upsert", "dedup")):
        super().__init__(choices, modes=modes)
        self.original = {"mode": self.topic.mode, "key": self.topic.key}

    @property
    def actions(self) -> tuple[str, ...]:
        """The actions of ingestion that leave the table, and edits."""
        kept = (name for name in (*ACTIONS, *OF_TABLES) if name != "drop table")
        return (*kept, *("edit", "edit", "restore settings", "ingest", "ingest"))

    def events(self) -> dict[str, Callable[[], object]]:
        """Return the events of ingestion, and what operators do to lakehouse.yaml."""
        return super().events() | {"edit": self.edit, "restore settings": self.restore}

    def edit(self) -> None:
        """Declare another mode; programs that run keep theirs."""
        table = self.iceberg.find(NAME)
        if table and table.current_snapshot():
            self.configure(self.choices.of([edit for edit in EDITS if edit["mode"] != self.original["mode"]]))

    def restore(self) -> None:
        """Declare the settings with which the rows were made."""
        self.configure(self.original)

    def configure(self, settings: Mapping[str, object]) -> None:
        """Change settings of the topic."""
        self.topic = self.topic.model_copy(update=settings)
        self.world.record(f"operator: mode {self.topic.mode}")

    def end_faults(self) -> None:
        """End all faults, and restore the settings."""
        super().end_faults()
        self.restore()
