"""Schedules of streams whose threads, and the commands beside them, are paused between two calls while others run.

With processes that are chosen at random, one seldom waits for as long as another needs for a batch.
"""

from __future__ import annotations

from tests.simulation.choices import Choices
from tests.simulation.stream_schedule import ACTIONS, StreamSchedule

REPLACING = 3 * ("recreate refunds", "produce refunds")
"""Further actions of half of the schedules, so that a topic is recreated while a stream is paused in a batch of it."""


class PausedStreamSchedule(StreamSchedule):
    """A schedule of streams in which some calls take long."""

    has_pauses = True

    def __init__(self, choices: Choices):
        super().__init__(choices)
        self.actions = ACTIONS + choices.of(((), REPLACING))

    def _run(self) -> None:
        self.world.pause_percent, self.world.rare_factor = self.choices.of((1, 4)), 5
        super()._run()

    def _recover(self) -> None:
        self.world.end_pauses()
        super()._recover()

    def _judge_running(self) -> None:
        for source in self._sources.values():
            source.produce()
        super()._judge_running()
