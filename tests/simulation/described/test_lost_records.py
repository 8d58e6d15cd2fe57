"""A leader election that loses records, step by step: no schedule contains one (README.md)."""

from __future__ import annotations

import pytest

from lakehouse.core.errors import UnclearState
from lakehouse.core.tables.naming import TableRef
from lakehouse.pipeline.batches.offsets import resume
from lakehouse.pipeline.ingestion import ingest
from lakehouse.pipeline.redrive import redrive
from lakehouse.pipeline.replay import replay
from tests.simulation.choices import Choices
from tests.simulation.schedules.schedule import NAME, NAMESPACE, Schedule, exhaust, simulation
from tests.simulation.systems.memory_files import empty_store
from tests.simulation.systems.registry import OWN
from tests.simulation.world import simulated_time


def record(value: int) -> dict[str, object]:
    """Return the fields of a record that decodes."""
    return {"key": value, "value": value, "schema_id": OWN, "is_garbage": False, "is_poison": False}


def test_replay_into_table_with_rows_of_lost_records_is_refused() -> None:
    with simulation(), empty_store():
        schedule = Schedule(Choices(None), modes=("append",))
        topic, clients, kafka = schedule.topic, schedule.clients, schedule.kafka
        values = lambda: sorted(row.record.value for row in schedule.engine.rows(TableRef(NAMESPACE, NAME)))  # noqa: E731
        with simulated_time(schedule.world):
            kafka.produce(0, [record(10), record(11)])
            exhaust(ingest(NAMESPACE, topic, clients))
            kafka.truncate(0)
            with pytest.raises(UnclearState, match="ends at 1.*lakehouse resume"):
                exhaust(ingest(NAMESPACE, topic, clients))
            resume(clients, NAMESPACE, topic, "0:1", "the broker lost the record at offset 1")
            # The new record has the offset of the lost one.
            kafka.produce(0, [record(12)])
            exhaust(ingest(NAMESPACE, topic, clients))
            assert values() == [10, 11, 12]
            with pytest.raises(UnclearState, match="lost records.*Replay into a branch"):
                replay(NAMESPACE, topic, clients, "earliest")
            redrive(NAMESPACE, topic, clients)
            assert values() == [10, 11, 12]
