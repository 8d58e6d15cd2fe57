"""Schedules in which the engine writes files of rows, which the pipeline commits before a batch's other records."""

from __future__ import annotations

from tests.simulation.choices import Choices
from tests.simulation.schedules.interruptions import Interruptions
from tests.simulation.schedules.schedule import Schedule


class _AppendSchedule(Schedule):
    def __init__(self, choices: Choices):
        super().__init__(choices, modes=("append",))
        self.engine.is_compiled = True


class CompiledSchedule(Interruptions, _AppendSchedule):
    """A schedule of ingestion with the compiled decoder, with interruptions."""
