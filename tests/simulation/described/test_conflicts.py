"""Batches and recreations of the topic beside any call of a program."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from functools import partial

import pytest

from lakehouse.core.errors import CommitConflict, LakehouseError
from lakehouse.pipeline.batches.offsets import resume
from tests.simulation.choices import Choices
from tests.simulation.described.steps import Steps, record
from tests.simulation.schedules.schedule import NAMESPACE, simulation
from tests.simulation.systems.memory_files import empty_store
from tests.simulation.systems.registry import LATE
from tests.simulation.world import simulated_time


class Conflicts(Steps):
    """A schedule without faults, with a command that sets the position of the table."""

    def __init__(self, mode: str = "append", position: str = "", **settings: object):
        super().__init__(Choices(None), modes=(mode,))
        self.position = position
        self.topic = self.topic.model_copy(update=settings)

    def programs(self) -> dict[str, Callable[[], object]]:
        set_position = lambda: resume(self.clients, NAMESPACE, self.topic, self.position, "test")  # noqa: E731
        return super().programs() | {"set position": set_position}

    def offsets(self) -> list[int]:
        """Return the offsets of all rows."""
        return sorted(row.record.offset for row in self.oracle.rows())

    def prepare(self) -> None:
        """Ingest a row and a dead letter, whose schema is registered then."""
        self.ingest(record(1), record(2, schema_id=LATE))
        self.register()

    def ingest(self, *records: dict[str, object]) -> None:
        self.kafka.produce(0, records)
        self.complete("ingest")


class Behind(Conflicts):
    """A schedule with a row, a dead letter, and two records after them."""

    def prepare(self) -> None:
        super().prepare()
        self.kafka.produce(0, [record(3), record(4)])


class AtLatest(Conflicts):
    """A schedule with a record, and without a table."""

    def prepare(self) -> None:
        self.kafka.produce(0, [record(1)])


def beside(
    program: str, begin: Callable[[], Conflicts], act: Callable[[Conflicts], object]
) -> Iterator[tuple[Conflicts, BaseException | None]]:
    """Run a program with an action before each of its calls in turn; yield each schedule and the program's error."""
    for number in itertools.count():
        running: list[object] = []
        with simulation(), empty_store():
            schedule = begin()

            def action(schedule: Conflicts = schedule, running: list[object] = running) -> None:
                running.extend(schedule.world.processes)
                act(schedule)

            with simulated_time(schedule.world):
                schedule.prepare()
                yield schedule, schedule.interrupt(program, number, action)
                schedule.oracle.raise_violations()
        if not running:
            break
    assert number > 5


@pytest.mark.parametrize("program", ["redrive", "replay", "resume"])
def test_program_beside_recreation_is_complete_or_refused(program):
    errors = []
    for _, error in beside(program, Conflicts, lambda schedule: schedule.source.recreate()):
        assert error is None or isinstance(error, LakehouseError)
        errors.append(str(error))
    assert any("deleted or recreated" in error for error in errors)


@pytest.mark.parametrize(("position", "first"), [("0:2", 2), ("0:3", 3)], ids=["as it is", "one record is skipped"])
def test_resume_beside_batch_is_refused_or_precedes_it(position, first):
    errors = []
    begin = partial(Behind, position=position)
    for schedule, error in beside("set position", begin, lambda schedule: schedule.complete("ingest")):
        errors.append(error)
        schedule.complete("ingest")
        assert schedule.offsets() == [0, *range(2 if error else first, 4)]
    assert any(isinstance(error, CommitConflict) for error in errors)
    assert any("ingested up to offset 4" in str(error) for error in errors)


def test_ingest_beside_first_batch_at_latest_keeps_its_position():
    def ingest_twice(schedule: Conflicts) -> None:
        schedule.complete("ingest")
        schedule.ingest(record(2))

    for schedule, error in beside("ingest", partial(AtLatest, start="latest"), ingest_twice):
        assert error is None
        schedule.complete("ingest")
        assert schedule.offsets() == [1]


def test_replay_beside_newer_row_of_key_does_not_replace_it():
    for schedule, error in beside("replay", partial(Conflicts, "upsert"), lambda schedule: schedule.ingest(record(1))):
        # A replay that lost its commit begins again, and the dead letter becomes a row.
        assert error is None and schedule.offsets() == [1, 2]
