"""Schedules that failed once, described step by step, because seeds depend on the order of choices."""

from __future__ import annotations

from contextlib import contextmanager
from datetime import timedelta
from functools import partial

import pytest
import requests

from lakehouse.core.errors import LakehouseError
from lakehouse.pipeline.batches.dry_run import dry_run
from lakehouse.pipeline.batches.offsets import resume
from lakehouse.pipeline.ingestion import ingest
from tests.simulation.choices import Choices
from tests.simulation.described.steps import FAILS_CHECK, Derivation, Steps, record
from tests.simulation.oracles.oracle import place_of
from tests.simulation.schedules.derivation import TARGET
from tests.simulation.schedules.readers import ReaderSchedule
from tests.simulation.schedules.schedule import NAME, NAMESPACE, Schedule, exhaust, simulation
from tests.simulation.schedules.table_events import drop, heads, undo_replay
from tests.simulation.systems.kafka import Partition
from tests.simulation.systems.memory_files import empty_store
from tests.simulation.systems.registry import LATE, OTHER
from tests.simulation.world import replaced, simulated_time


def test_ingest_that_loses_keeps_dead_letters_of_the_winner():
    with simulation(), empty_store():
        schedule = Schedule(Choices(None))
        with simulated_time(schedule.world):
            run = partial(ingest, NAMESPACE, schedule.topic, schedule.clients)
            schedule.kafka.produce(0, [record(1), record(2, is_garbage=True)])
            log = schedule.kafka.log[0].records
            compacted = log.pop(1)

            def on_phase(phase):
                if phase == "dead_letters" and not schedule.oracle.letters():
                    # The other writer has read the log before its compaction.
                    log[1] = compacted
                    exhaust(run())
                    del log[1]

            exhaust(run(on_phase=on_phase))
            schedule.oracle.raise_violations()
            assert [place_of(letter.record)[1:] for letter in schedule.oracle.letters()] == [(0, 1)]


def test_ingest_waits_before_refused_batch_is_retried():
    with simulation(), empty_store():
        schedule = Schedule(Choices(None))
        with simulated_time(schedule.world):
            run = partial(ingest, NAMESPACE, schedule.topic, schedule.clients)
            schedule.kafka.produce(0, [record(1)])
            began = schedule.world.now()

            def on_phase(phase):
                if phase == "audit" and not schedule.oracle.rows():
                    schedule.world.advance(100)
                    exhaust(run())

            exhaust(run(on_phase=on_phase))
            assert len(schedule.oracle.rows()) == 1
            assert schedule.world.now() - began >= 200


@pytest.mark.parametrize("number", range(30))
def test_ingest_with_concurrent_check_loses_no_record(number):
    schedule = Derivation()
    with simulation(), empty_store(), simulated_time(schedule.world):
        schedule.kafka.produce(0, [record(1), record(2) | {"value": FAILS_CHECK}])
        schedule.change_check()
        schedule.complete("ingest")
        assert len(schedule.oracle.letters()) == 1
        # In the new table, the record is a row, unless a concurrent writer still declares the check.
        drop(schedule.world, schedule.iceberg, schedule.topic.name)
        schedule.change_check()

        def ingest_with_check():
            schedule.change_check()
            schedule.complete("ingest")

        schedule.interrupt("ingest", number, ingest_with_check)
        schedule.complete("ingest")
        schedule.oracle.judge_end()
        schedule.oracle.raise_violations()


@pytest.mark.parametrize("is_set", [False, True], ids=["by derivation", "by an operator"])
def test_derive_rows_that_return_after_rollback_repeats_nothing(is_set):
    schedule = Derivation()
    with schedule.begun():
        schedule.ingest(record(1))
        schedule.ingest(record(2))
        schedule.roll_back()
        if is_set:
            schedule.complete("bookmark")
            schedule.skipped.clear()
        schedule.ingest(record(3))
        schedule.complete("replay", "derive")
        assert len(schedule.produced()) == 3


def test_derive_many_late_rows_uses_bounded_transactions():
    schedule = Derivation()
    schedule.kafka.message_seconds = 100.0
    schedule.derived = schedule.derived.model_copy(update={"max_records_per_batch": 1})
    with schedule.begun():
        schedule.ingest(*[record(key, schema_id=LATE) for key in range(5)], record(5))
        schedule.register()
        schedule.complete("redrive", "derive")
        assert len(schedule.produced()) == 6


def test_derive_in_slow_transaction_names_derived_topic():
    schedule = Derivation()
    schedule.kafka.message_seconds = 400.0
    with schedule.begun():
        schedule.kafka.produce(0, [record(1)])
        schedule.complete("ingest")
        assert "A transaction on topic 'derived' was open for" in str(schedule.finish("derive"))
        schedule.kafka.message_seconds = 0.0
        schedule.complete("derive")


def test_derive_after_rollback_corrects_groups():
    schedule = Derivation(is_grouped=True)
    with schedule.begun():
        schedule.ingest(record(1), record(2))
        schedule.ingest(record(1))
        schedule.roll_back()
        schedule.complete("derive")
        assert [len(places) for key, places in schedule.produced() if key == b"1"] == [1, 2, 1]


class Readers(Steps, ReaderSchedule):
    """A schedule without faults in which the topic may roll over."""

    def __init__(self):
        super().__init__(Choices(None))
        self.topic = self.topic.model_copy(update={"on_incompatible": "new_table"})
        self.config = self.config.model_copy(update={"topics": {NAME: self.topic}})

    @contextmanager
    def begun(self):
        """Provide the systems, and judge at the end what the readers show."""
        rest = {requests: {"request": self.rest.request}}
        with simulation(), empty_store(), simulated_time(self.world), replaced(rest):
            yield
            self.judge_readers()
            self.oracle.raise_violations()


@pytest.mark.parametrize("number", range(25))
def test_publish_with_concurrent_upstream_exposes_closed_table(number):
    schedule = Readers()
    with schedule.begun():
        schedule.kafka.produce(0, [record(1)])
        schedule.complete("ingest", "publish glue")
        schedule.kafka.produce(0, [record(1)])
        schedule.complete("ingest")
        schedule.registry.change_type()
        schedule.kafka.produce(0, [record(1, schema_id=OTHER)])
        schedule.complete("ingest")
        schedule.interrupt("publish snowflake", number, partial(schedule.complete, "publish glue"))
        schedule.complete("publish")


def test_dry_run_names_the_steps_of_a_batch():
    schedule = Derivation()
    with simulation(), empty_store(), simulated_time(schedule.world):
        schedule.kafka.produce(0, [record(1)])
        run = partial(dry_run, NAMESPACE, schedule.topic, schedule.clients, 10)
        created, _, _, letters, published = run().steps
        schedule.complete("ingest")
        kept, written, audited, *_ = run().steps

    table = f"{NAMESPACE}.{NAME}"
    assert created.startswith(f"create table {table} with the columns id, ")
    assert letters.endswith(f" in {table}__dead_letters")
    assert published == f"publish: move main of {table} to the branch"
    assert kept == f"keep the columns of {table}"
    assert written.startswith("write 1 offset of ")
    assert audited.startswith("audit the branch: ")


@pytest.mark.parametrize("number", range(25))
def test_dry_run_beside_maintenance_ends_with_no_error_of_pyiceberg(number):
    schedule = Derivation()
    with simulation(), empty_store(), simulated_time(schedule.world):
        schedule.kafka.produce(0, [record(1)])

        def maintain():
            # The dry run is older than any that still runs.
            schedule.world.advance(100_000)
            schedule.complete("maintain")

        error = schedule.interrupt("dry run", number, maintain)
        assert error is None or isinstance(error, LakehouseError)


def test_derive_after_rollback_and_expiry_stops_until_rows_are_skipped():
    schedule = Derivation()
    with schedule.begun():
        schedule.roll_back_and_expire(record(2), record(3, schema_id=LATE))
        error = schedule.finish("derive")
        assert "lakehouse bookmark derived --at 0:3 " in str(error)
        schedule.recover_derivation()
        assert len(schedule.produced()) == 2


def test_derive_after_replay_whose_predecessor_expired_stops():
    schedule = Derivation()
    with schedule.begun():
        schedule.ingest(record(1))
        schedule.complete("replay")
        schedule.kafka.produce(0, [record(2)])
        schedule.complete("ingest")
        schedule.events()["other maintenance"]()
        error = schedule.finish("derive")
        assert "which is needed to identify them, is expired. Nothing was produced" in str(error)
        schedule.recover_derivation()


def test_derive_after_rollback_expiry_and_new_position_repeats_nothing():
    schedule = Derivation()
    with schedule.begun():
        schedule.ingest(record(1))
        # The check quarantines such values.
        schedule.ingest(record(2) | {"value": 3})
        schedule.events()["roll back"]()
        schedule.change_check()
        schedule.complete("ingest")
        schedule.events()["other maintenance"]()
        schedule.recover_derivation()
        schedule.change_check()
        schedule.complete("redrive")
        schedule.recover_derivation()
        assert len(schedule.produced()) == 2


@pytest.mark.parametrize("skipped", [0, 1], ids=["the same records", "a later record, too"])
@pytest.mark.parametrize("is_configured", [False, True], ids=["by an operator", "by the configuration"])
def test_derive_after_rollback_of_all_batches_repeats_no_skipped_row(skipped, is_configured):
    schedule = Derivation()
    with schedule.begun():
        schedule.ingest(record(1))
        schedule.events()["roll back"]()
        schedule.kafka.produce(0, [record(2)] * skipped)
        if is_configured:
            schedule.topic = schedule.topic.model_copy(update={"start": "latest"})
            schedule.complete("ingest")
        else:
            resume(schedule.clients, NAMESPACE, schedule.topic, "latest", "test")
        schedule.events()["other maintenance"]()
        schedule.ingest(record(3))
        schedule.complete("replay")
        error = schedule.finish("derive")
        assert "which is needed to identify them, is expired" in str(error)
        schedule.recover_derivation()


def test_derive_after_rollback_and_expiry_derives_all_groups():
    schedule = Derivation(is_grouped=True)
    with schedule.begun():
        schedule.roll_back_and_expire(record(2), record(3, schema_id=LATE))
        schedule.complete("derive")
        assert [len(places) for key, places in schedule.produced() if key == b"3"] == [1]


@pytest.mark.parametrize("is_first", [False, True], ids=["from the bookmark", "from the beginning"])
def test_derive_after_roll_over_derives_rows_of_both_tables(is_first):
    schedule = Derivation()
    schedule.topic = schedule.topic.model_copy(update={"on_incompatible": "new_table"})
    with simulation(), empty_store(), simulated_time(schedule.world):
        schedule.ingest(record(1))
        if is_first:
            schedule.delete()
        schedule.kafka.produce(0, [record(2)])
        schedule.complete("ingest", "replay")
        schedule.registry.change_type()
        schedule.kafka.produce(0, [record(3, schema_id=OTHER)])
        schedule.complete("ingest", "derive", "derive")
        assert [places[0][2] for _, places in schedule.produced()] == [0, 1, 2]


def test_derive_after_undone_redrive_whose_snapshot_expired():
    schedule = Derivation()
    with schedule.begun():
        schedule.ingest(record(1), record(2, schema_id=LATE))
        schedule.register()
        before = heads(schedule.iceberg, NAME)
        schedule.complete("redrive", "derive")
        undo_replay(schedule.world, schedule.iceberg, schedule.oracle, NAME, before)
        schedule.events()["other maintenance"]()
        schedule.ingest(record(3))
        schedule.events()["other maintenance"]()
        schedule.complete("redrive")
        error = schedule.finish("derive")
        assert "is expired" in str(error)
        schedule.recover_derivation()
        schedule.ingest(record(4))
        assert len(schedule.produced()) == 4


@pytest.mark.parametrize("is_expired", [False, True])
@pytest.mark.parametrize("is_set", [False, True], ids=["by derivation", "by an operator"])
def test_derive_deleted_rows_that_return_repeats_nothing(is_expired, is_set):
    schedule = Derivation()
    # The oracle of the table does not know deletions.
    with simulation(), empty_store(), simulated_time(schedule.world):
        schedule.ingest(record(1), record(2))
        schedule.world.advance(100_000)
        schedule.kafka.produce(0, [record(3)])
        schedule.complete("ingest")
        deleting = schedule.topic.retention.model_copy(update={"rows": timedelta(hours=1)})
        declared, schedule.topic = schedule.topic, schedule.topic.model_copy(update={"retention": deleting})
        schedule.complete("maintain", *["bookmark"] * is_set, "derive")
        assert [row.record.offset for row in schedule.oracle.rows()] == [2]
        schedule.topic = declared
        if is_expired:
            schedule.events()["other maintenance"]()
        schedule.ingest(record(4))
        schedule.complete("replay")
        error = schedule.finish("derive")
        assert ("which is needed to identify them, is expired" in str(error)) if is_expired else error is None
        schedule.recover_derivation()
        assert len(schedule.produced()) == (3 if is_set else 4)


@pytest.mark.parametrize(("where", "first"), [("earliest", 2), ("latest", 3)])
def test_resume_by_word_after_lost_records_of_new_partition(where, first):
    schedule = Steps(Choices(None), modes=("append",))
    with simulation(), empty_store(), simulated_time(schedule.world):
        schedule.kafka.produce(0, [record(1)])
        schedule.complete("ingest")
        schedule.kafka.log[1] = Partition()
        schedule.kafka.produce(1, [record(2)] * 3)
        schedule.kafka.retain(0, 1)
        schedule.kafka.retain(1, 2)
        assert "partition 1 lost offsets 0 to 1 " in str(schedule.finish("ingest"))

        resume(schedule.clients, NAMESPACE, schedule.topic, where, "test")
        schedule.kafka.produce(1, [record(2)])
        schedule.complete("ingest")

        assert [row.record.offset for row in schedule.oracle.rows() if row.record.partition] == [*range(first, 4)]


@pytest.mark.parametrize("is_grouped", [False, True], ids=["rows", "groups"])
def test_set_bookmark_at_latest_skips_rows_of_table_only(is_grouped):
    schedule = Derivation(is_grouped=is_grouped)
    with schedule.begun():
        schedule.kafka.produce(0, [record(1)])
        schedule.complete("ingest")
        schedule.kafka.ensure_topic(TARGET, 1)
        schedule.kafka.produce(0, [record(2), record(3)])
        schedule.complete("bookmark", "ingest", "derive")
        assert [places for _, places in schedule.produced()] == [[("id1", 0, 1)], [("id1", 0, 2)]]


def test_set_bookmark_at_latest_after_rollback_does_not_move_back():
    schedule = Derivation()
    with schedule.begun():
        schedule.ingest(record(1))
        schedule.ingest(record(2))
        schedule.events()["roll back"]()
        schedule.complete("bookmark", "ingest", "derive")
        assert len(schedule.produced()) == 2


@pytest.mark.parametrize("number", range(0, 40, 2))
def test_derive_groups_after_killed_derivation_and_rollback(number):
    schedule = Derivation(is_grouped=True)
    with schedule.begun():
        schedule.ingest(record(1), record(2))
        schedule.kafka.produce(0, [record(1), record(2)])
        schedule.complete("ingest")
        schedule.kill_derivation(number)
        schedule.roll_back()
        schedule.recover_derivation()


@pytest.mark.parametrize("number", range(0, 40, 2))
def test_derive_late_rows_of_groups_after_killed_derivation(number):
    schedule = Derivation(is_grouped=True)
    with schedule.begun():
        schedule.ingest(record(1, schema_id=LATE), record(2, schema_id=LATE), record(3))
        schedule.register()
        schedule.complete("redrive")
        schedule.kill_derivation(number)
        schedule.complete("derive")
