"""Schedules that failed once, described step by step, because seeds depend on the order of choices."""

from __future__ import annotations

from functools import partial

from lakehouse.pipeline.ingestion import ingest
from tests.simulation.choices import Choices
from tests.simulation.memory_files import empty_store
from tests.simulation.oracle import place_of
from tests.simulation.registry import OWN
from tests.simulation.schedule import NAMESPACE, Schedule, exhaust, simulation
from tests.simulation.world import simulated_time


def record(key, *, is_garbage=False):
    """Return the fields of a record."""
    return {"key": key, "value": 1, "schema_id": OWN, "is_garbage": is_garbage, "is_poison": False}


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
