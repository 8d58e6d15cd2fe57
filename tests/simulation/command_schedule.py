"""Schedules of ingestion and derivation in which most programs end before the next action.

The order of many commands matters here, and not how they overlap: an operator who repairs a table runs several, each of
which decides by what the ones before left.
"""

from __future__ import annotations

import re
from collections.abc import Callable

from lakehouse.pipeline.batches.offsets import resume
from tests.simulation.choices import Choices
from tests.simulation.derivation_schedule import DerivationSchedule
from tests.simulation.schedule import NAMESPACE

USUAL = "produce", "ingest", "derive"
"""Actions of half of the turns."""

OMITTED = "measure", "transact", "compact"
"""Actions that change nothing, or only for other kinds."""

RESETTING = "drop table", "recreate", "delete derived"
"""Actions after which what happened before has no effect; half of the schedules omit all of them."""


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
        """The actions of derivation that change what a table has, and those of other programs."""
        return (*(name for name in super().actions if name not in self.left_out), "other maintenance", "change check")

    def programs(self) -> dict[str, Callable[[], object]]:
        """Return the programs of derivation; an operator may resume at the end of the log, too."""
        position = lambda: self.choices.of((self.source.resumable(self.oracle), "latest"))  # noqa: E731
        resuming = {"resume": lambda: resume(self.clients, NAMESPACE, self.topic, position(), "simulated")}
        return super().programs() | resuming

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
