"""Schedules of roll-overs, step by step; most of them failed once, and seeds depend on the order of choices."""

from __future__ import annotations

import pytest

from lakehouse.pipeline.batches.offsets import resume
from tests.simulation.described.steps import Derivation, record
from tests.simulation.schedules.roll_overs import RollOverSchedule
from tests.simulation.schedules.schedule import NAMESPACE
from tests.simulation.schedules.table_events import drop
from tests.simulation.systems.registry import LATE, OTHER


class Continued(Derivation, RollOverSchedule):
    """A schedule without faults of a topic that rolls over."""


def test_derive_after_rollback_and_roll_over_stops():
    schedule = Continued()
    with schedule.begun():
        schedule.ingest(record(1))
        schedule.ingest(record(2), record(3, schema_id=LATE), record(4))
        schedule.events()["roll back"]()
        schedule.register()
        schedule.registry.change_type()
        schedule.kafka.produce(0, [record(5)])
        schedule.complete("ingest")
        error = schedule.finish("derive")
        assert "was rolled back before it rolled over" in str(error)
        schedule.recover_derivation()
        schedule.ingest(record(6))
        assert len(schedule.produced()) == 4


def test_derive_groups_after_rollback_and_roll_over():
    schedule = Continued(is_grouped=True)
    with schedule.begun():
        schedule.ingest(record(1))
        schedule.ingest(record(1))
        # The record is not read again, so group 1 keeps one row, in the closed table.
        del schedule.kafka.log[0].records[1]
        schedule.events()["roll back"]()
        schedule.registry.change_type()
        schedule.ingest(record(2))
        assert dict(schedule.produced())[b"1"] == [("id1", 0, 0)]


@pytest.mark.parametrize("is_grouped", [True, False], ids=["groups", "rows"])
def test_derive_rows_of_closed_table_beside_skipped_partition(is_grouped):
    schedule = Continued(is_grouped=is_grouped)
    schedule.kafka.recreate(partitions=2)
    schedule.topic = schedule.topic.model_copy(update={"max_records_per_batch": 1})
    with schedule.begun():
        schedule.ingest(record(1))
        schedule.kafka.produce(1, [record(2)])
        schedule.complete("bookmark")
        schedule.kafka.produce(0, [record(3)])
        # The next batch has the record of partition 0; that of partition 1 becomes a row of the next table.
        schedule.interrupt("ingest", 12, schedule.registry.change_type)
        assert schedule.oracle.closed.position == (schedule.kafka.topic_id, {0: 2, 1: 0})
        schedule.complete("derive")
        assert dict(schedule.produced())[b"3"] == [(schedule.kafka.topic_id, 0, 1)]


@pytest.fixture
def groups_in_two_tables():
    """A schedule whose group 1 has a row in the closed table, and one in the second batch of the next one."""
    schedule = Continued(is_grouped=True)
    with schedule.begun():
        schedule.ingest(record(1))
        schedule.registry.change_type()
        schedule.ingest(record(2))
        schedule.ingest(record(1))
        assert dict(schedule.produced())[b"1"] == [("id1", 0, 0), ("id1", 0, 2)]
        yield schedule


def test_derive_after_roll_over_rollback_and_recreation(groups_in_two_tables):
    schedule = groups_in_two_tables
    schedule.events()["roll back"]()
    schedule.source.recreate()
    resume(schedule.clients, NAMESPACE, schedule.topic, "latest", "test")
    schedule.ingest(record(3))
    assert dict(schedule.produced())[b"1"] == [("id1", 0, 0)]


def test_derive_after_drop_of_successor(groups_in_two_tables):
    schedule = groups_in_two_tables
    drop(schedule.world, schedule.iceberg, schedule.oracle.newest)
    resume(schedule.clients, NAMESPACE, schedule.topic, "latest", "test")
    schedule.ingest(record(3))
    assert dict(schedule.produced())[b"1"] == [("id1", 0, 0)]


def test_derive_after_roll_over_derives_redriven_rows_once():
    schedule = Continued()
    with schedule.begun():
        schedule.ingest(record(1), record(2, schema_id=LATE))
        schedule.register()
        schedule.registry.change_type()
        schedule.ingest(record(3, schema_id=OTHER))
        schedule.complete("redrive", "derive")
        assert [letter.recovered for letter in schedule.oracle.letters()] == [True]
        schedule.ingest(record(4, schema_id=OTHER))
        assert [places[0][2] for _, places in schedule.produced()] == [0, 2, 1, 3]


def test_redrive_killed_before_roll_over_adds_no_row_twice():
    is_killed, number = True, 0
    while is_killed:
        schedule, number = Continued(), number + 1
        with schedule.begun():
            schedule.ingest(record(1), record(2, schema_id=LATE))
            schedule.register()
            is_killed = schedule.kill_at("redrive", number)
            schedule.registry.change_type()
            schedule.ingest(record(3, schema_id=OTHER))
            schedule.complete("redrive", "derive")
            places = sorted(place for _, places in schedule.produced() for place in places)
            assert places == [("id1", 0, 0), ("id1", 0, 1), ("id1", 0, 2)], number
    assert number > 10
