"""Described schedules of streams with a derived entry."""

from __future__ import annotations

from contextlib import contextmanager

import pytest

from lakehouse.streaming.scheduler import REVIEW_SECONDS
from tests.simulation.choices import Choices
from tests.simulation.described.steps import record
from tests.simulation.schedules.derivation import TARGET
from tests.simulation.schedules.groups import GroupSchedule
from tests.simulation.schedules.schedule import simulation
from tests.simulation.systems.memory_files import empty_store
from tests.simulation.systems.registry import LATE, OWN
from tests.simulation.world import simulated_time


class Streams(GroupSchedule):
    """A schedule without faults, whose steps are called one by one."""

    def __init__(self):
        super().__init__(Choices(None))
        self.calls = []

    @contextmanager
    def begun(self):
        """Provide the systems, and judge at the end that each row was derived."""
        with simulation(), empty_store(), simulated_time(self.world), self.replacements():
            yield
            self._raise_violations()
            self._end_processes()

    def produce(self, topic, *keys, schema_id=OWN):
        self._kafka.topics[topic].produce(0, [record(key, schema_id=schema_id) for key in keys])

    def finish(self, name):
        self._finish(name)

    def start(self, name):
        self.world.start(name, self._programs()[name])

    def run_until_served(self):
        """Run the streams until they have done everything for all records but those of a topic that has none."""
        ends = self._ends()
        self._run_until(lambda: all(self._serves(name, ends) for name in ends), "not served")

    def delete_derived(self):
        self._delete()

    def redrive(self):
        """Redrive all dead letters, as a command that is killed before it derives the rows."""
        self._register()
        name = "redrive orders"
        process = self.world.start(name, self._programs()[name])
        while process in self.world.processes:
            self.world.step(process)
        assert process.result is None

    def errors(self):
        """Return the errors with which `stream --once` ended."""
        return self._errors

    def fence_after(self, operation):
        """Let another process produce derived messages after the first call of an operation."""
        call, fenced = self.world.call, []

        def fencing(name, effect, error):
            result = call(name, effect, error)
            if name == operation and not fenced:
                fenced.append(self._kafka.produced.fence(f"lakehouse.derived/{TARGET}"))
            return result

        self.world.call = fencing

    def fail_call_after(self, operation, number):
        """Let the call after a number of calls after an operation fail."""
        call, counted = self.world.call, []

        def failing(name, effect, error):
            if counted or name == operation:
                counted.append(name)
            if len(counted) == number + 2:
                self.calls.append(name)
                raise error("the request was lost")
            return call(name, effect, error)

        self.world.call = failing


@pytest.mark.parametrize("number", [4, 5], ids=["describe", "offsets"])
def test_stream_once_ingests_what_it_derived_before_a_fault(number):
    schedule = Streams()
    with schedule.begun():
        schedule.produce("orders", 1)
        schedule.fail_call_after("kafka.commit_transaction", number)
        schedule.finish("stream once")
        assert schedule.calls


def test_stream_derives_deleted_topic_again():
    schedule = Streams()
    with schedule.begun():
        schedule.produce("orders", 1)
        schedule.start("stream")
        schedule.run_until_served()
        schedule.delete_derived()
        schedule.run_until_served()


def test_stream_retries_derivation_that_was_fenced_off():
    schedule = Streams()
    with schedule.begun():
        schedule.produce("orders", 1)
        schedule.fence_after("kafka.produce")
        schedule.finish("stream once")
        assert not schedule.errors()


def test_stream_derives_redriven_rows_without_new_records():
    schedule = Streams()
    with schedule.begun():
        schedule.produce("orders", 1)
        schedule.produce("orders", 2, schema_id=LATE)
        schedule.start("stream")
        schedule.run_until_served()
        schedule.redrive()
        schedule.world.advance(REVIEW_SECONDS)
        schedule.run_until_served()
