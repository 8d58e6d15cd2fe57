"""Schedules of ingestion and derivation in which an action happens between two calls of a program."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from tests.simulation.command_schedule import USUAL
from tests.simulation.derivation_schedule import TARGET, DerivationSchedule
from tests.simulation.interruptions import Interruptions
from tests.simulation.world import Process

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
