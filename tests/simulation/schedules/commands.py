"""Schedules of ingestion and derivation in which most programs end before the next action.

The order of many commands matters here, and not how they overlap: an operator who repairs a table runs several, each of
which decides by what the ones before left.
"""

from __future__ import annotations

import re
from collections.abc import Callable

from pyiceberg.table.update import SetPropertiesUpdate

from lakehouse.core.errors import ClockSkew
from lakehouse.pipeline.batches.offsets import resume
from tests.simulation.choices import Choices
from tests.simulation.oracles.oracle import RESUMED
from tests.simulation.schedules.derivation import DerivationSchedule
from tests.simulation.schedules.schedule import NAME, NAMESPACE
from tests.simulation.schedules.table_events import heads, undo_replay

USUAL = "produce", "ingest", "derive"
"""Actions of half of the turns."""

OMITTED = "measure", "transact", "compact"
"""Actions that change nothing, or only for other kinds."""

REPLAYING = "redrive", "replay"
"""Programs that write rows again."""

RESETTING = "drop table", "recreate", "delete derived", "earlier release"
"""Actions after which what happened before has no effect; half of the schedules omit all of them."""

CONTINUED = "lakehouse.continued-in"
"""Property by which earlier releases named the table that continues another one."""


class CommandSchedule(DerivationSchedule):
    """A schedule of many commands in sequence; each rare one is as frequent as another.

    Attributes:
        named: The command that the last error names; empty if there is none.
        left_out: Actions of other kinds that this schedule does not have.
        is_rare: Whether the next action is probably a rare one.
    """

    turns = 30
    # A program has 25 calls, and most must end so that others have something to begin with.
    fault_percents = 0, 0, 3
    named, is_rare = "", False

    def __init__(self, choices: Choices):
        super().__init__(choices)
        self.world.rare_factor = 5
        self.left_out = choices.of((OMITTED, (*OMITTED, *RESETTING)))
        # A redrive and a replay add rows that the table lacks, so that the derivation looks for late rows.
        self.recovering = choices.of((("ingest", "redrive", "replay"), ("ingest",)))

    @property
    def actions(self) -> tuple[str, ...]:
        """The actions of derivation that change what a table has, those of other programs, and of earlier releases."""
        names = (*super().actions, "undo replay", "other maintenance", "change check", "earlier release")
        return tuple(name for name in names if name not in self.left_out)

    def programs(self) -> dict[str, Callable[[], object]]:
        """Return the programs of derivation; an operator may resume at the end of the log, too."""
        return super().programs() | {"resume": self.resume}

    def resume(self) -> None:
        """Resume the table at offsets, or at the end of the log, which the command reads."""
        position = self.choices.of((self.source.resumable(self.oracle), "latest"))
        if position == "latest":
            self.oracle.chosen = None
        resume(self.clients, NAMESPACE, self.topic, position, RESUMED)

    def events(self) -> dict[str, Callable[[], object]]:
        """Return the events of derivation; that an earlier release continued the table in another one; and that an
        operator undoes a redrive or replay."""
        events = {"earlier release": self.find_table_of_earlier_release, "undo replay": self.undo_replay}
        return super().events() | events

    def undo_replay(self) -> None:
        """Redrive or replay, derive the rows, and roll the table and its dead letters back to before that.

        Half of the time, a batch follows, and the snapshots that main lacks expire before the next derivation.
        """
        if self.world.processes:
            return
        before = heads(self.iceberg, NAME)
        for name in (self.choices.of(REPLAYING), "derive"):
            self.judge_error(self.finish(name))
        undo_replay(self.world, self.iceberg, self.oracle, NAME, before)
        for name in self.choices.of(((), ("produce", "ingest", "other maintenance", "derive"))):
            self.perform(name)

    def find_table_of_earlier_release(self) -> None:
        """Let a program find a table that an earlier release continued, which it refuses, and drop the table."""
        table = self.iceberg.find(NAME)
        if table is None:
            return
        try:
            self.iceberg.commit_now(table, (), (SetPropertiesUpdate(updates={CONTINUED: f"{NAME}__v2"}),))
        except ClockSkew:
            return
        before = self.iceberg.loaded(NAME).metadata
        self.world.record(f"an earlier release: continued {NAME} in another table")
        name = self.choices.of(tuple(self.programs()))
        if self.finish(name) is None:
            self.oracle.violations.append(f"`{name}` used a table that an earlier release continued")
        if self.iceberg.loaded(NAME).metadata != before:
            self.oracle.violations.append(f"`{name}` changed a table that an earlier release continued")
        self.events()["drop table"]()

    def take_turn(self) -> None:
        """Let a process continue that began before, follow the advice of an error, or perform an action."""
        happens = self.choices.happens
        if self.world.processes and happens(50):
            self.run_to_end(self.choices.of(self.world.processes))
        elif self.named and happens(50):
            self.complete(self.named)
        else:
            # Rare actions follow each other, so that the usual ones do not end their effect.
            self.is_rare ^= happens(25)
            rare = tuple(dict.fromkeys(name for name in self.chosen if name not in USUAL))
            self.complete(self.choices.of(rare if self.is_rare else USUAL))

    def complete(self, name: str) -> None:
        """Perform an action to its end, and judge the messages."""
        self.named = ""
        if name in self.programs():
            error = self.finish(name)
            self.judge_error(error)
            command = re.search(r"`lakehouse (\w+)", str(error))
            self.named = command[1] if command and command[1] in self.programs() else ""
        else:
            self.events()[name]()
        self.judge_messages()

    def end_faults(self) -> None:
        """End all faults. Brokers are no longer slow: rows at one offset, of topics that were recreated, need one
        transaction."""
        super().end_faults()
        self.kafka.message_seconds = 0.0


class PositionSchedule(CommandSchedule):
    """A schedule of commands, and of positions at the end of the log."""

    def set_bookmark(self) -> None:
        """Skip all rows of the table, or also the records that it does not have yet."""
        if self.position != "latest" or not self.choices.below(3):
            super().set_bookmark()
            return
        self.position = ",".join(f"{p}:{part.end}" for p, part in self.kafka.log.items()) or "latest"
        try:
            super().set_bookmark()
        finally:
            self.position = "latest"
