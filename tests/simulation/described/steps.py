"""Schedules whose steps tests call one by one."""

from __future__ import annotations

from contextlib import contextmanager

from lakehouse.pipeline.batches.offsets import resume
from tests.simulation.choices import Choices
from tests.simulation.schedules.derivation import TARGET, DerivationSchedule, derived_topic
from tests.simulation.schedules.schedule import NAMESPACE, Schedule, simulation
from tests.simulation.systems.memory_files import empty_store
from tests.simulation.systems.registry import OWN
from tests.simulation.world import simulated_time

FAILS_CHECK = 3
"""A value that fails the check."""


def record(key, *, schema_id=OWN, is_garbage=False):
    """Return the fields of a record."""
    return {"key": key, "value": 1, "schema_id": schema_id, "is_garbage": is_garbage, "is_poison": False}


class Steps(Schedule):
    """A schedule without faults, whose steps are called one by one."""

    def complete(self, *programs):
        """Run programs, which must not fail."""
        assert [self.finish(name) for name in programs] == [None] * len(programs)

    def interrupt(self, name, number, action):
        """Run a program, and perform an action after a number of its calls; return its error."""
        process = self.world.start(name, self.programs()[name])
        self.world.switch_percent = 100
        for _ in range(number):
            if process in self.world.processes:
                self.world.step(process)
        self.world.switch_percent = 0
        action()
        self.run_to_end(process)
        return process.result

    def kill(self):
        """Kill all programs."""
        for process in self.world.processes:
            process.machine.is_killed = True

    def kill_at(self, name, number):
        """Run a program, and kill it after a number of its calls; return whether it was still running."""
        running = []

        def kill():
            running.extend(self.world.processes)
            self.kill()

        self.interrupt(name, number, kill)
        return bool(running)


class Derivation(Steps, DerivationSchedule):
    """A schedule without faults, whose steps are called one by one."""

    def __init__(self, *, is_grouped=False):
        super().__init__(Choices(None))
        self.is_grouped, self.derived = is_grouped, derived_topic(is_grouped=is_grouped)

    @contextmanager
    def begun(self):
        """Provide the systems, and judge at the end that each row was derived, and none twice."""
        with simulation(), empty_store(), simulated_time(self.world):
            yield
            self.judge_messages()
            self.judge_derived()
            self.oracle.raise_violations()

    def ingest(self, *records):
        self.kafka.produce(0, records)
        self.complete("ingest", "derive")

    def kill_derivation(self, number):
        """Kill a derivation like any program. Each message takes so long that a transaction has one."""
        self.kafka.message_seconds = 100.0
        is_killed = self.kill_at("derive", number)
        self.kafka.message_seconds = 0.0
        return is_killed

    def recreate_derived(self):
        """Delete the derived topic, and create it again."""
        self.delete()
        self.kafka.create(TARGET, self.derived.partitions)

    def roll_back_and_expire(self, *records):
        """Derive records, roll them back, ingest them again, and expire the snapshot that they were derived from."""
        self.ingest(record(1))
        self.ingest(*records)
        self.events()["roll back"]()
        self.register()
        self.complete("ingest")
        self.events()["other maintenance"]()

    def roll_back(self):
        """Roll the newest batch back, and skip its records."""
        self.events()["roll back"]()
        resume(self.clients, NAMESPACE, self.topic, "latest", "test")
