"""Schedules with checks, filters and refused batches, described step by step."""

from __future__ import annotations

from contextlib import contextmanager

import pytest

from lakehouse.config.checks import Range
from lakehouse.core.errors import TransientError
from lakehouse.pipeline.batches.offsets import resume
from lakehouse.pipeline.batches.refusals import Refusals
from lakehouse.pipeline.commits.audit import AuditFailed
from lakehouse.pipeline.ingestion import ingest
from lakehouse.pipeline.redrive import Redriven, redrive
from lakehouse.pipeline.replay import replay
from tests.simulation.choices import Choices
from tests.simulation.described.steps import FAILS_CHECK, record
from tests.simulation.oracles.oracle import place_of
from tests.simulation.schedules.audits import DAMAGES, AuditedSchedule
from tests.simulation.schedules.schedule import NAMESPACE, exhaust, simulation
from tests.simulation.systems.memory_files import empty_store
from tests.simulation.systems.registry import LATE, REFUNDED
from tests.simulation.world import simulated_time

FAILING = {"value": FAILS_CHECK}


class Audits(AuditedSchedule):
    """A schedule without faults, whose steps are called one by one."""

    def __init__(self, *, mode="append"):
        super().__init__(Choices(None))
        self.topic = self.topic.model_copy(update={"mode": mode, "key": ("id",)})
        self.oracle.mode = mode

    @contextmanager
    def begun(self):
        """Provide the systems, and judge all commits."""
        with simulation(), empty_store(), simulated_time(self.world):
            yield
            self.oracle.raise_violations()

    def complete(self, *programs):
        """Run programs, which must not fail."""
        assert [self.finish(name) for name in programs] == [None] * len(programs)

    def declare(self, severity):
        """Declare a check."""
        self.configure(checks={"small": Range(type="range", column="id", max=9, severity=severity)})

    def rows(self):
        """Return the offsets of the rows."""
        return sorted(place_of(row.record)[2] for row in self.oracle.rows())

    def pending(self):
        """Return the offsets of the dead letters that are no rows."""
        return sorted(place_of(letter.record)[2] for letter in self.oracle.letters() if not letter.recovered)


def test_replay_with_check_keeps_redriven_record_as_dead_letter():
    schedule = Audits(mode="upsert")
    with schedule.begun():
        schedule.declare("quarantine")
        schedule.kafka.produce(0, [record(1), record(1) | FAILING])
        schedule.complete("ingest")
        schedule.configure(checks={})
        schedule.complete("redrive")
        schedule.declare("quarantine")
        schedule.complete("replay")
        assert (schedule.rows(), schedule.pending()) == ([0], [1])
        schedule.configure(checks={})
        schedule.complete("redrive")
        assert (schedule.rows(), schedule.pending()) == ([1], [])


def test_ingest_without_dead_letters_discards_those_of_earlier_attempt():
    schedule = Audits()
    schedule.configure(errors="suspend")
    with schedule.begun():
        schedule.declare("quarantine")
        schedule.kafka.produce(0, [record(1) | FAILING])

        def kill_before_publication():
            process = schedule.world.start("ingest", schedule.programs()["ingest"])
            schedule.world.switch_percent = 100
            while not schedule.oracle.letters():
                schedule.world.step(process)
            schedule.kill()
            schedule.run_to_end(process)
            schedule.world.switch_percent = 0

        kill_before_publication()
        schedule.configure(checks={})
        schedule.complete("ingest")
        assert (schedule.rows(), schedule.pending()) == ([0], [])


def test_redrive_checks_no_row_of_other_partitions():
    schedule = Audits()
    schedule.kafka.recreate(2)
    with schedule.begun():
        schedule.kafka.produce(0, [record(1, schema_id=LATE)])
        schedule.kafka.produce(1, [record(3) | FAILING])
        schedule.complete("ingest")
        schedule.declare("blocking")
        schedule.register()
        schedule.complete("redrive")
        assert schedule.pending() == []


@pytest.mark.parametrize("damage", DAMAGES)
def test_stream_retries_batch_that_the_engine_wrote_wrongly(damage):
    schedule = Audits()
    schedule.damages, schedule.damage_percent = (damage,), 100
    refusals = Refusals(schedule.world.monotonic)
    with schedule.begun():
        schedule.declare("blocking")
        schedule.kafka.produce(0, [record(1)])
        with pytest.raises(AuditFailed, match="record_count.*Retry the run"):
            exhaust(ingest(NAMESPACE, schedule.topic, schedule.clients, refusals))
        schedule.damage_percent = 0
        exhaust(ingest(NAMESPACE, schedule.topic, schedule.clients, refusals))
        assert schedule.rows() == [0]


@pytest.mark.parametrize("program", ("redrive", "replay"))
def test_record_that_aborts_decoding_is_not_skipped_and_not_read_again(program):
    """Otherwise a record that `errors: skip` dropped would abort each replay, and nobody would know which."""
    schedule = Audits(mode="upsert")
    schedule.configure(errors="skip")
    with schedule.begun():
        schedule.declare("quarantine")
        schedule.kafka.produce(0, [record(1) | FAILING, record(2) | {"is_poison": True}, record(3, is_garbage=True)])
        schedule.complete("ingest")
        assert (schedule.rows(), schedule.pending()) == ([], [0, 1])
        schedule.configure(checks={})
        schedule.complete(program)
        assert (schedule.rows(), schedule.pending()) == ([0], [1])


def test_redrive_names_skipped_record_that_aborts_decoding():
    """A record of any key before it may have been replaced or deleted by it."""
    schedule = Audits(mode="upsert")
    with schedule.begun():
        schedule.declare("quarantine")
        schedule.kafka.produce(0, [record(1) | FAILING, record(2) | FAILING, record(3)])
        schedule.complete("ingest")
        schedule.kafka.produce(0, [record(4) | {"is_poison": True}, record(2), record(6) | FAILING])
        resume(schedule.clients, NAMESPACE, schedule.topic, "0:4", "skipped by a test")
        schedule.complete("ingest")
        assert (schedule.rows(), schedule.pending()) == ([2, 4], [0, 1, 5])
        schedule.configure(checks={})

        redriven = redrive(NAMESPACE, schedule.topic, schedule.clients)

        assert redriven == Redriven(3, 2, gone=1, first_gone=((0, 0),), aborting=((0, 3),))
        assert "partition 0 offset 3" in redriven.describe()
        assert (schedule.rows(), schedule.pending()) == ([2, 4, 5], [0])
        with pytest.raises(TransientError, match="record in partition 0 at offset 3.*begin after it"):
            replay(NAMESPACE, schedule.topic, schedule.clients, "earliest")


def test_redrive_of_record_of_another_type_leaves_no_dead_letter():
    schedule = Audits(mode="upsert")
    schedule.configure(record="Order")
    with schedule.begun():
        schedule.kafka.produce(0, [record(1), record(2, schema_id=REFUNDED)])
        schedule.complete("ingest")
        assert schedule.pending() == [1]
        schedule.register()
        schedule.complete("redrive")
        assert (schedule.rows(), schedule.pending()) == ([0], [])


@pytest.mark.parametrize("mode", ["append", "upsert"])
def test_replay_of_skipped_records_keeps_their_dead_letters(mode):
    schedule = Audits(mode=mode)
    with schedule.begun():
        schedule.kafka.produce(0, [record(1) | FAILING, record(2, is_garbage=True), record(3) | FAILING])
        schedule.complete("ingest")
        schedule.kafka.produce(0, [record(4) | FAILING, record(5, is_garbage=True)])
        resume(schedule.clients, NAMESPACE, schedule.topic, "0:5", "skipped by a test")
        schedule.kafka.produce(0, [record(6) | FAILING])
        schedule.complete("ingest")
        assert schedule.rows() == [0, 2, 5]

        for declare in (lambda: None, lambda: schedule.declare("quarantine")):
            # A row that fails a check which was declared later stays a row, and is no dead letter.
            declare()
            schedule.complete("replay")
            assert schedule.rows() == [0, 2, 3, 5]
            letters = sorted((letter.record.offset, letter.attempts) for letter in schedule.oracle.letters())
            assert letters == [(1, 1), (4, 1)]
