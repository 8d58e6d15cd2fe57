"""Programs that are killed at any of their calls, and writers that run in any phase of another one."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial

import pytest

from lakehouse.pipeline.batches.offsets import resume
from lakehouse.pipeline.ingestion import ingest
from lakehouse.pipeline.redrive import Redriven, redrive
from tests.simulation.choices import Choices
from tests.simulation.described.steps import FAILS_CHECK, Derivation, Steps, record
from tests.simulation.engine.letters import MemoryLetters
from tests.simulation.schedules.schedule import NAMESPACE, exhaust, simulation
from tests.simulation.systems.memory_files import empty_store
from tests.simulation.systems.registry import LATE
from tests.simulation.world import simulated_time
from tests.support.faults.moments import once_before
from tests.support.topics import once


@contextmanager
def begun(mode: str) -> Iterator[Steps]:
    """Provide a schedule with a table, and judge the table at the end."""
    schedule = Steps(Choices(None), modes=(mode,))
    with simulation(), empty_store(), simulated_time(schedule.world):
        yield schedule
        schedule.oracle.judge_end()
        schedule.oracle.raise_violations()


def offsets(schedule: Steps) -> list[int]:
    """Return the offsets of all rows."""
    return sorted(row.record.offset for row in schedule.oracle.rows())


@pytest.mark.parametrize("mode", ["append", "upsert", "dedup"])
def test_ingest_after_kill_at_any_call_completes_table(mode):
    for number in itertools.count():
        with begun(mode) as schedule:
            schedule.kafka.produce(0, [record(1), record(2)])
            schedule.complete("ingest")
            schedule.kafka.produce(0, [record(3), record(1), record(4, is_garbage=True)])
            is_killed = schedule.kill_at("ingest", number)
            schedule.complete("ingest")
            assert offsets(schedule) == {"append": [0, 1, 2, 3], "upsert": [1, 2, 3], "dedup": [0, 1, 2]}[mode]
            assert [letter.record.offset for letter in schedule.oracle.letters()] == [4]
        if not is_killed:
            break
    assert number > 20


@pytest.mark.parametrize("is_grouped", [False, True], ids=["rows", "groups"])
def test_derive_after_kill_at_any_call_loses_and_duplicates_nothing(is_grouped):
    for number in itertools.count():
        schedule = Derivation(is_grouped=is_grouped)
        with schedule.begun():
            schedule.ingest(record(1), record(2))
            schedule.kafka.produce(0, [record(1), record(3)])
            schedule.complete("ingest")
            is_killed = schedule.kill_derivation(number)
            schedule.complete("derive")
            offsets_of_groups = {key: [offset for *_, offset in places] for key, places in schedule.produced()}
            assert offsets_of_groups == {b"1": [0, 2] if is_grouped else [2], b"2": [1], b"3": [3]}
        if not is_killed:
            break
    assert number > 20


@pytest.mark.parametrize("is_grouped", [False, True], ids=["rows", "groups"])
def test_derive_after_kill_of_redrive_at_any_call_has_its_rows(is_grouped):
    numbers = set()
    for number in itertools.count():
        schedule = Derivation(is_grouped=is_grouped)
        with schedule.begun():
            schedule.ingest(record(1), record(1, schema_id=LATE), record(2))
            schedule.register()
            is_killed = schedule.kill_at("redrive", number)
            schedule.measure_derived()
            schedule.complete("derive")
            numbers.add(len(schedule.produced()))
            # Without a record of the source.
            schedule.complete("redrive", "derive")
            assert offsets(schedule) == [0, 1, 2]
        if not is_killed:
            break
    assert numbers == {2, 3}


@pytest.mark.parametrize("phase", ["schema", "branch", "write", "audit", "dead_letters", "publish"])
def test_ingest_beside_concurrent_run_publishes_each_record_once(phase):
    with begun("append") as schedule:
        run = partial(ingest, NAMESPACE, schedule.topic, schedule.clients)
        schedule.kafka.produce(0, [record(1)])
        schedule.complete("ingest")
        schedule.kafka.produce(0, [record(2), record(3, is_garbage=True)])
        on_phase, others = once(phase, lambda: list(run()))

        assert list(run(on_phase=on_phase)) == []

        assert [published.counts.consumed for published in others[0]] == [2]
        assert offsets(schedule) == [0, 1]
        assert [letter.record.offset for letter in schedule.oracle.letters()] == [2]


@pytest.mark.parametrize("phase", ["schema", "branch"])
def test_ingest_beside_first_run_with_newer_records_loses_none(phase):
    with begun("append") as schedule:
        run = partial(ingest, NAMESPACE, schedule.topic, schedule.clients)
        schedule.kafka.produce(0, [record(1)])

        def ingest_newer_records():
            schedule.kafka.produce(0, [record(2)])
            return list(run())

        on_phase, others = once(phase, ingest_newer_records)

        exhaust(run(on_phase=on_phase))

        assert [published.counts.consumed for published in others[0]] == [2]
        assert offsets(schedule) == [0, 1]


def ingest_letters(schedule: Steps) -> Callable[[], Redriven]:
    """Ingest a record that is a dead letter and decodes now, and one that never does; return the redrive of both."""
    schedule.kafka.produce(0, [record(1), record(2, schema_id=LATE), record(3, is_garbage=True)])
    schedule.complete("ingest")
    schedule.register()
    return partial(redrive, NAMESPACE, schedule.topic, schedule.clients)


def letters(schedule: Steps) -> list[tuple[int, int, bool]]:
    """Return the offset, the attempts and whether it is a row, of each dead letter."""
    return sorted((x.record.offset, x.attempts, x.recovered) for x in schedule.oracle.letters())


def test_redrive_beside_concurrent_marks_begins_again(monkeypatch):
    with begun("append") as schedule:
        run = ingest_letters(schedule)
        others = once_before(monkeypatch, MemoryLetters, "mark", run)

        assert run() == Redriven(attempted=1, recovered=0)

        assert others == [Redriven(attempted=2, recovered=1)]
        assert letters(schedule) == [(1, 2, True), (2, 3, False)] and offsets(schedule) == [0, 1]


def test_redrive_of_concurrently_recovered_letters_adds_no_row(monkeypatch):
    with begun("append") as schedule:
        unchecked = partial(redrive, NAMESPACE, schedule.topic, schedule.clients)
        schedule.kafka.produce(0, [record(1), record(2) | {"value": FAILS_CHECK}])
        schedule.change_check()
        schedule.complete("ingest")
        once_before(monkeypatch, MemoryLetters, "attempt", unchecked)

        assert redrive(NAMESPACE, schedule.topic, schedule.clients) == Redriven(attempted=0, recovered=0)

        assert letters(schedule) == [(1, 2, True)]


def test_resume_after_redrive_interrupted_before_marks_sets_marks(monkeypatch):
    def interrupt() -> None:
        raise KeyboardInterrupt

    with begun("append") as schedule:
        run = ingest_letters(schedule)
        once_before(monkeypatch, MemoryLetters, "mark", interrupt)
        with pytest.raises(KeyboardInterrupt):
            run()
        assert offsets(schedule) == [0, 1]
        schedule.source.recreate()

        resume(schedule.clients, NAMESPACE, schedule.topic, "earliest", "recreated")

        assert [offset for offset, _, is_row in letters(schedule) if not is_row] == [2]
        assert offsets(schedule) == [0, 1]


def test_ingest_that_loses_publishes_no_dead_letters(monkeypatch):
    with begun("append") as schedule:
        unchecked = partial(ingest, NAMESPACE, schedule.topic, schedule.clients)
        schedule.kafka.produce(0, [record(1), record(2) | {"value": FAILS_CHECK}])
        schedule.change_check()
        once_before(monkeypatch, MemoryLetters, "put", lambda: exhaust(unchecked()))

        assert list(ingest(NAMESPACE, schedule.topic, schedule.clients)) == []

        assert letters(schedule) == [] and offsets(schedule) == [0, 1]


@pytest.mark.parametrize("is_declared", [False, True], ids=["declared later", "removed"])
def test_ingest_after_kill_with_other_checks_has_their_outcomes(is_declared):
    published_letters = set()
    for number in itertools.count():
        with begun("append") as schedule:
            schedule.kafka.produce(0, [record(1)])
            schedule.complete("ingest")
            schedule.kafka.produce(0, [record(2) | {"value": FAILS_CHECK}, record(3, is_garbage=True)])
            if is_declared:
                schedule.change_check()
            if not schedule.kill_at("ingest", number):
                break
            schedule.change_check()
            _, position = schedule.oracle.position
            if position == {0: 1}:
                published_letters.add(len(letters(schedule)))
                # These dead letters are of a batch that is not published.
                assert redrive(NAMESPACE, schedule.topic, schedule.clients) == Redriven(0, 0)
                schedule.complete("ingest")
                assert offsets(schedule) == ([0, 1] if is_declared else [0])
                assert [offset for offset, *_ in letters(schedule)] == ([2] if is_declared else [1, 2])
    assert published_letters == {0, 2 if is_declared else 1}
