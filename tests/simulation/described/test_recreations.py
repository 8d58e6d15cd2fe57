"""Schedules in which the source or the derived topic is deleted and created again."""

from __future__ import annotations

import pytest

from lakehouse.core.table_protocol import BOOKMARKS
from lakehouse.pipeline.batches.offsets import resume
from tests.simulation.described.steps import Derivation, record
from tests.simulation.schedules.schedule import NAME, NAMESPACE
from tests.simulation.schedules.table_events import drop


def test_derive_from_another_table_of_recreated_source_is_adopted():
    schedule = Derivation()
    with schedule.begun():
        schedule.ingest(record(1), record(2))
        schedule.source.recreate()
        schedule.kafka.produce(0, [record(3)])
        assert "is not the one table" in str(schedule.finish("ingest"))
        drop(schedule.world, schedule.iceberg, NAME)
        schedule.complete("ingest")
        # The table may as well be one of another environment.
        assert "messages of another table" in str(schedule.finish("derive"))
        schedule.position = "earliest"
        schedule.complete("bookmark", "derive", "derive")
        assert [places for _, places in schedule.produced()] == [[("id1", 0, 0)], [("id1", 0, 1)], [("id2", 0, 0)]]


@pytest.mark.parametrize("is_grouped", [True, False], ids=["groups", "rows"])
@pytest.mark.parametrize("number", range(32))
def test_derive_into_topic_that_is_recreated_loses_no_row(number, is_grouped):
    schedule = Derivation(is_grouped=is_grouped)
    with schedule.begun():
        schedule.ingest(record(1))
        schedule.kafka.produce(0, [record(2)])
        schedule.complete("ingest")
        schedule.interrupt("derive", number, schedule.recreate_derived)
        schedule.judge_messages()
        schedule.derive_elsewhere()
        # The next derivation needs no operator.
        schedule.complete("derive")


@pytest.mark.parametrize("is_grouped", [True, False], ids=["groups", "rows"])
def test_derive_over_messages_of_lost_bookmark_stops(is_grouped):
    schedule = Derivation(is_grouped=is_grouped)
    with schedule.begun():
        schedule.ingest(record(1))
        schedule.kafka.topics.pop(BOOKMARKS)
        derived = schedule.produced()
        schedule.kafka.produce(0, [record(1)])
        schedule.complete("ingest")
        position = "--at earliest" if is_grouped else "--at POSITION"
        for _ in range(2):
            assert position in str(schedule.finish("derive"))
            assert schedule.produced() == derived
        schedule.position = "earliest" if is_grouped else "0:1"
        schedule.complete("bookmark", "derive")


@pytest.mark.parametrize("number", range(5))
def test_set_bookmark_beside_recreation_repeats_nothing(number):
    schedule = Derivation()
    with schedule.begun():
        schedule.ingest(record(1))
        error = schedule.interrupt("bookmark", number, schedule.source.recreate)
        assert error is None or f"Topic '{NAME}' was recreated" in str(error)
        schedule.complete("derive")


def test_derive_groups_after_recreation_and_rollback():
    schedule = Derivation(is_grouped=True)
    with schedule.begun():
        schedule.ingest(record(1))
        schedule.source.recreate()
        resume(schedule.clients, NAMESPACE, schedule.topic, "earliest", "test")
        schedule.ingest(record(1))
        assert sorted(dict(schedule.produced())[b"1"]) == [("id1", 0, 0), ("id2", 0, 0)]
        schedule.roll_back()
        schedule.complete("derive")
        assert dict(schedule.produced())[b"1"] == [("id1", 0, 0)]


def test_set_bookmark_of_groups_before_resume_is_refused():
    schedule = Derivation(is_grouped=True)
    with schedule.begun():
        schedule.ingest(record(1))
        schedule.kafka.produce(0, [record(2)])
        schedule.complete("ingest")
        schedule.source.recreate()
        assert "Run `lakehouse resume" in str(schedule.finish("bookmark"))
        resume(schedule.clients, NAMESPACE, schedule.topic, "earliest", "test")
        schedule.complete("derive")
        assert sorted(dict(schedule.produced())) == [b"1", b"2"]
