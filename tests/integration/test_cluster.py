"""Ingestion, derivation and maintenance on a Spark cluster of other processes, selected by SPARK_REMOTE alone."""

import time
from contextlib import closing
from dataclasses import replace

import pytest
from confluent_kafka.schema_registry import Schema

from lakehouse.core.tables.naming import TableRef
from lakehouse.pipeline.clients import Clients, engine_client
from lakehouse.pipeline.ingestion import ingest
from lakehouse.pipeline.maintenance import maintain
from spark.engine import SparkEngines
from tests.support.clouds.rest.lake import catalog_at
from tests.support.clouds.rest.server import Vending
from tests.support.protobuf_messages import message_class
from tests.support.topics import Stream, in_order, registry
from tests.support.totals import Totals

pytestmark = pytest.mark.long

SHORT = 3.0
"""Lifetime of credentials in seconds that ends within a test."""
SCHEMA = 'syntax = "proto3"; message Seat { int64 number = 1; string holder = 2; }'


@pytest.fixture(autouse=True)
def one_record_per_task(monkeypatch):
    """Divide the small batches of these tests into several tasks, as Spark divides large batches."""
    monkeypatch.setattr("spark.records.RECORDS_A_TASK", 1)
    monkeypatch.setattr("spark.native.job.OFFSETS_A_TASK", 100)


@pytest.fixture
def on_both_workers(cluster):
    """Fail a test during which the executor of either worker completes no task."""
    before = cluster.tasks()
    yield
    after = cluster.tasks()
    assert len(after) == 2 and all(after[worker] > before[worker] for worker in after), f"{before} to {after}"


def test_cluster_derives_totals_and_maintains_tables(on_cluster, on_both_workers):
    totals = Totals(on_cluster)
    for first in (0, 1_000, 2_000, 3_000):
        totals.produce(range(first, first + 1_000), 1_790_000_000_000 + first)
        totals.run()
    expected, sums = totals.trades.expected_rows(), totals.expected()
    totals.trades.produce([{"value": b"not a trade"}])
    totals.trades.ingest()

    [trades, letters] = maintain(
        totals.trades.namespace, totals.trades.topic, on_cluster.catalog, engine_client(on_cluster.spark)
    )

    assert trades.before.data_files > trades.after.data_files
    assert letters.table.endswith("__dead_letters") and len(totals.trades.dead_letters()) == 1
    assert totals.trades.rows() == expected and len(expected) == 4_000
    assert totals.rows() == sums


def test_cluster_decodes_protobuf_on_executors(on_cluster, on_both_workers):
    seats = Stream(on_cluster, settings={"key": [], "value_format": "protobuf"})
    schema_id = registry().register_schema(f"{seats.name}-value", Schema(SCHEMA, "PROTOBUF"))
    Seat = message_class(SCHEMA, "Seat")
    frame = b"\x00" + schema_id.to_bytes(4, "big") + b"\x00"
    sent = {n: f"holder {n}" for n in range(3_000)}
    seats.produce([{"value": frame + Seat(number=n, holder=holder).SerializeToString()} for n, holder in sent.items()])

    seats.ingest()

    rows = seats.rows()
    assert {row["number"]: row["holder"] for row in rows} == sent and len(rows) == len(sent)


def test_cluster_tasks_have_credentials_of_the_catalog(on_cluster, on_both_workers, rest_server):
    """The storage refuses the workers' own keys of S3, and their environment has no login at the catalog."""
    stream = Stream(on_cluster)
    with Vending(*rest_server) as server, closing(on_cluster.spark.with_own_session()) as spark:
        catalog = catalog_at(server)
        clients = replace(Clients.of(on_cluster), engines=SparkEngines(spark), catalog=catalog)
        for first, server.lifetime in ((0, 900.0), (1_000, SHORT)):
            stream.produce_trades(range(first, first + 1_000))
            list(ingest(stream.namespace, stream.topic, clients))
        ref = TableRef(stream.namespace, stream.topic.table)
        table = spark.session(catalog.spark_settings()).table(ref.spark_path())
        assert table.columns
        renewals = server.renewals
        time.sleep(SHORT + 1)
        assert in_order(table.toArrow().to_pylist()) == stream.expected_rows()
        assert server.renewals > renewals and server.storage.refusals == []
