"""The same work on a Spark cluster of other processes, by nothing but SPARK_REMOTE."""

import pytest
from confluent_kafka.schema_registry import Schema
from protobuf_messages import message_class
from support import Stream, registry
from totals import Totals

from lakehouse.pipeline.maintenance import maintain

pytest_plugins = ["cluster_fixtures"]
pytestmark = pytest.mark.long

SCHEMA = 'syntax = "proto3"; message Seat { int64 number = 1; string holder = 2; }'


@pytest.fixture(autouse=True)
def a_task_for_each_partition(monkeypatch):
    """As of large batches: one so small would be a single task."""
    monkeypatch.setattr("spark.records.RECORDS_A_TASK", 1)


@pytest.fixture
def on_both_workers(cluster):
    """Fails a test during which the executor of a worker has ended no task."""
    before = cluster.tasks()
    yield
    after = cluster.tasks()
    assert len(after) == 2 and all(after[worker] > before[worker] for worker in after), f"{before} to {after}"


def test_trades_become_totals_in_tables_that_are_maintained(on_cluster, on_both_workers):
    totals = Totals(on_cluster)
    for first in (0, 1_000, 2_000, 3_000):
        totals.produce(range(first, first + 1_000), 1_790_000_000_000 + first)
        totals.run()
    expected, sums = totals.trades.expected_rows(), totals.expected()
    totals.trades.produce([{"value": b"not a trade"}])
    totals.trades.ingest()

    [trades, letters] = maintain(totals.trades.namespace, totals.trades.topic, on_cluster.catalog, on_cluster.spark)

    assert trades.before.data_files > trades.after.data_files
    assert letters.table.endswith("__dead_letters") and len(totals.trades.dead_letters()) == 1
    assert totals.trades.rows() == expected and len(expected) == 4_000
    assert totals.rows() == sums


def test_python_decodes_protobuf_on_the_executors(on_cluster, on_both_workers):
    seats = Stream(on_cluster, settings={"key": [], "value_format": "protobuf"})
    schema_id = registry().register_schema(f"{seats.name}-value", Schema(SCHEMA, "PROTOBUF"))
    Seat = message_class(SCHEMA, "Seat")
    frame = b"\x00" + schema_id.to_bytes(4, "big") + b"\x00"
    sent = {n: f"holder {n}" for n in range(3_000)}
    seats.produce([{"value": frame + Seat(number=n, holder=who).SerializeToString()} for n, who in sent.items()])

    seats.ingest()

    rows = seats.rows()
    assert {row["number"]: row["holder"] for row in rows} == sent and len(rows) == len(sent)
