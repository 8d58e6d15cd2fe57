"""Schedules of streams whose threads, and the commands beside them, are paused between two calls while others run.

With processes that are chosen at random, one seldom waits for as long as another needs for a batch.
"""

from __future__ import annotations

from tests.simulation.stream_schedule import StreamSchedule


class PausedStreamSchedule(StreamSchedule):
    """A schedule of streams in which some calls take long."""

    def _run(self) -> None:
        self.world.pause_percent, self.world.rare_factor = self.choices.of((1, 4)), 5
        super()._run()

    def _recover(self) -> None:
        self.world.end_pauses()
        super()._recover()
