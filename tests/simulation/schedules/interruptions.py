"""Schedules in which an action happens between two calls of a program.

An action replaces what the program has just read, and ends before the program continues. By chance alone, a rare action
seldom hits such a gap.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from tests.simulation.choices import Choices
from tests.simulation.schedules.commands import USUAL
from tests.simulation.schedules.derivation import TARGET, DerivationSchedule
from tests.simulation.schedules.schedule import OF_TABLES, Schedule
from tests.simulation.world import Process

REPLACING = "recreate", "drop table", "roll back", "ingest"
"""Actions that replace what programs read; three of four interruptions are one of them."""


class Interruptions(Schedule):
    """A schedule in which actions interrupt programs. A kind of schedule inherits from this class first.

    Attributes:
        usual: The actions of half of the turns, if each program ends before the next action.
        last: Actions without faults, but with interruptions, before the table recovers.
        is_sequential: Whether each program ends before the next action. Then, most actions are not interrupted, so that
            programs have rows, dead letters and a bookmark when they are interrupted.
    """

    usual: Sequence[str] = ("produce", "ingest")
    last: Sequence[str] = ("ingest", "redrive", "ingest", "other maintenance", "produce", "ingest")

    def __init__(self, choices: Choices):
        super().__init__(choices)
        self.is_sequential = bool(choices.below(2))
        if self.is_sequential:
            self.turns, self.fault_percents = 20, (0, 0, 3)

    @property
    def actions(self) -> tuple[str, ...]:
        """The actions of the kind, and those of tables."""
        actions = super().actions
        return (*actions, *(name for name in OF_TABLES if name not in actions))

    def events(self) -> dict[str, Callable[[], object]]:
        """Return the events of the kind; producers may continue as soon as a topic is recreated."""
        return super().events() | {"recreate": self.recreate}

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
        if process := self.world.interrupted:
            self.interrupt(process)
        elif not self.is_sequential:
            super().take_turn()
        elif self.world.processes:
            self.run_to_end(self.choices.of(self.world.processes))
        else:
            percent = self.world.interrupt_percent
            if not self.choices.happens(30):
                self.world.interrupt_percent = 0
            self.perform(self.choices.of(self.usual if self.choices.happens(50) else tuple(dict.fromkeys(self.chosen))))
            self.world.interrupt_percent = percent

    def replacing(self, process: Process) -> Sequence[str]:
        """Return the actions that replace what a program reads, of which three of four interruptions are one."""
        return REPLACING

    def interrupt(self, process: Process) -> None:
        """Perform an action between two calls of a process, and let nothing else happen until it has ended."""
        percent, self.world.interrupt_percent = self.world.interrupt_percent, 0
        self.world.interrupted = None
        names, replacing = tuple(dict.fromkeys(self.chosen)), self.replacing(process)
        frequent = [name for name in names if name in replacing]
        self.perform(self.choices.of(frequent if frequent and self.choices.happens(75) else names))
        self.world.interrupt_percent = percent

    def run_to_end(self, process: Process) -> None:
        """Run a process to its end, with interruptions."""
        while process in self.world.processes:
            self.continue_program(process)
            if self.world.interrupted:
                self.interrupt(process)

    def end_faults(self) -> None:
        """End all faults, perform the last actions with interruptions, and end the interruptions."""
        super().end_faults()
        for name in self.last:
            self.perform(name)
        self.world.interrupt_percent = 0
        super().end_faults()


DERIVING = "derive", "bookmark"
"""Programs that read the derived topic, too."""

REPLACING_DERIVED = "delete derived", "derive"
"""Actions that replace what these programs read there; half of the frequent ones are one of them."""


class InterruptedSchedule(Interruptions, DerivationSchedule):
    """A schedule in which actions interrupt ingestion and derivation."""

    usual = USUAL
    last = (*Interruptions.last, "derive")

    def events(self) -> dict[str, Callable[[], object]]:
        """Return the events of both; the derived topic is created again as soon as it is deleted."""
        return super().events() | {"delete derived": self.recreate_derived}

    def recreate_derived(self) -> None:
        """Delete the derived topic, and create it again."""
        self.delete()
        self.kafka.create(TARGET, self.derived.partitions)

    def replacing(self, process: Process) -> Sequence[str]:
        """Return the actions that replace what a program reads of the table, or of the derived topic."""
        is_deriving = process.name.startswith(DERIVING) and self.choices.below(2)
        return REPLACING_DERIVED if is_deriving else super().replacing(process)


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
