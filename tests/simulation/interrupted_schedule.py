"""Schedules of ingestion and derivation in which an action happens between two calls of a program.

An action replaces what the program has just read, and ends before the program continues. By chance alone, a rare action
seldom hits such a gap.
"""

from __future__ import annotations

from collections.abc import Callable

from tests.simulation.derivation_schedule import TARGET, DerivationSchedule
from tests.simulation.schedule import OF_TABLES
from tests.simulation.world import Process

REPLACING = "recreate", "drop table", "roll back", "ingest"
"""Actions that replace what other programs read; they interrupt more often than others."""

LAST = "ingest", "redrive", "ingest", "other maintenance", "produce", "ingest", "derive"
"""Actions without faults, but with interruptions, before the table recovers."""


class InterruptedSchedule(DerivationSchedule):
    """A schedule in which actions interrupt programs."""

    @property
    def actions(self) -> tuple[str, ...]:
        """The actions of ingestion and of derivation."""
        actions = super().actions
        return (*actions, *(name for name in OF_TABLES if name not in actions))

    def events(self) -> dict[str, Callable[[], object]]:
        """Return the events of ingestion and derivation; producers may continue as soon as a topic is recreated, and
        the derived topic is created again as soon as it is deleted."""
        return super().events() | {"recreate": self.recreate, "delete derived": self.recreate_derived}

    def recreate_derived(self) -> None:
        """Delete the derived topic, and create it again."""
        self.delete()
        self.kafka.create(TARGET, self.derived.partitions)

    def recreate(self) -> None:
        """Recreate the topic."""
        self.source.recreate()
        for _ in range(self.choices.of((0, 3))):
            self.source.produce()

    def run(self) -> None:
        """Run the schedule with interruptions of a topic that may have lost old records to retention."""
        self.source.produce()
        if self.choices.below(2):
            self.source.retain()
        self.world.interrupt_percent = self.choices.of((2, 6))
        super().run()

    def take_turn(self) -> None:
        """Interrupt the process that ran last, if it is to be interrupted, or take another turn."""
        if self.world.is_interrupted:
            self.interrupt()
        else:
            super().take_turn()

    def interrupt(self) -> None:
        """Perform an action, and let nothing else happen until it has ended."""
        percent, self.world.interrupt_percent = self.world.interrupt_percent, 0
        self.world.is_interrupted = False
        names = tuple(dict.fromkeys(self.chosen))
        self.perform(self.choices.of((*names, *(name for name in names if name in REPLACING))))
        self.world.interrupt_percent = percent

    def run_to_end(self, process: Process) -> None:
        """Run a process to its end, with interruptions."""
        while process in self.world.processes:
            self.world.step(process)
            if self.world.is_interrupted:
                self.interrupt()

    def end_faults(self) -> None:
        """End all faults, perform the last actions with interruptions, and end the interruptions."""
        super().end_faults()
        for name in LAST:
            self.perform(name)
        self.world.interrupt_percent = 0
        super().end_faults()
