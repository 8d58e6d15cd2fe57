"""Commands that reserve a table beside other writers."""

from __future__ import annotations

from contextlib import contextmanager

import pytest

from resources.iceberg.reservation import LEASE_SECONDS, reservation_of
from tests.simulation.choices import Choices
from tests.simulation.described.steps import Steps, record
from tests.simulation.schedules.schedule import NAME, simulation
from tests.simulation.systems.memory_files import empty_store
from tests.simulation.world import simulated_time

HOURS = 7200.0


class Reserving(Steps):
    """A schedule in which a replay loses its first commit after it has read for two hours."""

    def __init__(self):
        super().__init__(Choices(None), modes=("append",))

    @contextmanager
    def begun(self):
        """Provide the systems, and judge the table at the end."""
        with simulation(), empty_store(), simulated_time(self.world):
            self.ingest()
            yield self.start_replay()
            self.run_others()
            self.oracle.judge_end()
            self.oracle.raise_violations()

    def ingest(self):
        self.kafka.produce(0, [record(1)])
        self.complete("ingest")

    def start_replay(self):
        """Start a replay, let another writer publish after its first read, and return it when it has reserved."""
        replay = self.world.start("replay", self.programs()["replay"])
        self.world.switch_percent = 100
        while "spark.read" not in self.world.events[-1]:
            self.world.step(replay)
        self.world.switch_percent = 0
        self.ingest()
        self.world.advance(HOURS)
        self.world.switch_percent = 100
        while not self.is_reserved():
            self.world.step(replay)
        return replay

    def is_reserved(self):
        return reservation_of(self.iceberg.find(NAME)) is not None

    def run_others(self):
        for process in list(self.world.processes):
            self.run_to_end(process)


def test_killed_replay_reserves_table_for_a_minute():
    schedule = Reserving()
    with schedule.begun():
        schedule.kill()
        schedule.run_others()
        began = schedule.world.now()
        schedule.ingest()
        assert LEASE_SECONDS < schedule.world.now() - began + 5 < LEASE_SECONDS + 10


@pytest.mark.parametrize("is_hung", [False, True], ids=["ends", "hangs"])
def test_replay_keeps_reservation_for_three_durations_of_attempt(is_hung):
    schedule = Reserving()
    with schedule.begun() as replay:
        replay.paused_until = schedule.world.now() + 4 * HOURS
        began = schedule.world.now()
        while schedule.is_reserved() and (is_hung or schedule.world.now() < began + HOURS):
            [renewal] = schedule.world.ready()
            assert renewal is not replay
            schedule.world.step(renewal)
        if is_hung:
            assert 3 * HOURS < schedule.world.now() - began < 3 * HOURS + LEASE_SECONDS
        replay.paused_until = 0.0
        schedule.world.switch_percent = 0
        schedule.run_to_end(replay)
        assert replay.result is None
