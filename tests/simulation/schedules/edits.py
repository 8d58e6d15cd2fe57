"""Schedules in which operators edit lakehouse.yaml: settings that decide what the rows of the table mean, the name of
an entry that is paused, and a check whose query raises an error."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress

from lakehouse.config.checks import Query
from lakehouse.core.errors import LakehouseError, Paused
from lakehouse.pipeline.commits.audit import AuditFailed
from lakehouse.pipeline.ingestion import ingest
from resources.iceberg.pauses import pause, unpause
from tests.simulation.choices import Choices
from tests.simulation.engine.checks import RAISING
from tests.simulation.oracles.oracle import Violation
from tests.simulation.schedules.schedule import ACTIONS, NAME, NAMESPACE, OF_TABLES, Schedule, exhaust

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
        at_once = "ingest paused", "ingest with raising check"
        return (*kept, *("edit", "edit", "restore settings", "ingest", "ingest"), *at_once)

    def events(self) -> dict[str, Callable[[], object]]:
        """Return the events of ingestion, and what operators do to lakehouse.yaml."""
        edits = {"edit": self.edit, "restore settings": self.restore}
        at_once = {"ingest paused": self.ingest_paused, "ingest with raising check": self.ingest_with_raising_check}
        return super().events() | edits | at_once

    def edit(self) -> None:
        """Declare another mode; programs that run keep theirs."""
        table = self.iceberg.find(NAME)
        if table and table.current_snapshot():
            self.configure(self.choices.of([edit for edit in EDITS if edit["mode"] != self.original["mode"]]))

    def restore(self) -> None:
        """Declare the settings with which the rows were made."""
        self.configure(self.original)

    def ingest_paused(self) -> None:
        """Pause the topic, rename its entry, which keeps its table, and judge that it is not ingested."""
        self.world.record("operator: pauses the topic, and renames its entry")
        pause(self.clients.catalog, NAMESPACE, self.topic, "simulated")
        renamed = self.topic.model_copy(update={"name": "renamed", "kafka_topic": NAME, "table_name": NAME})
        with suppress(Paused):
            exhaust(ingest(NAMESPACE, renamed, self.clients))
            raise Violation("a topic that is paused is ingested under another name")
        unpause(self.clients.catalog, NAMESPACE, self.topic.table)

    def ingest_with_raising_check(self) -> None:
        """Ingest with a blocking check whose query raises an error, and judge that no row is published.

        Raises:
            Violation: One is.
        """
        self.world.record("operator: ingests with a check that raises an error")
        check = Query(type="query", sql=f"SELECT * FROM {{rows}} WHERE {RAISING}", severity="blocking")
        topic = self.topic.model_copy(update=self.original | {"checks": {"raising": check}})
        before = {row.record for row in self.oracle.rows()}
        try:
            exhaust(ingest(NAMESPACE, topic, self.clients))
        except AuditFailed as error:
            if "raising" not in str(error):
                raise Violation(f"a check that raises an error is not named: {error}") from error
        except LakehouseError:
            # The batch is refused for another reason.
            pass
        if added := {row.record for row in self.oracle.rows()} - before:
            raise Violation(f"rows are published although their check raises an error: {added}")

    def configure(self, settings: Mapping[str, object]) -> None:
        """Change settings of the topic."""
        self.topic = self.topic.model_copy(update=settings)
        self.world.record(f"operator: mode {self.topic.mode}")

    def end_faults(self) -> None:
        """End all faults, and restore the settings."""
        super().end_faults()
        self.restore()
