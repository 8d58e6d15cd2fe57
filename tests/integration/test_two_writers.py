"""Concurrent writers: each record is published once, and the writer that loses restarts its batch.

tests/simulation/described/test_races.py lets the other writer run in each phase.
"""

from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import pytest
from pyspark.sql import functions as F

from lakehouse.core import polling
from lakehouse.core.errors import UnclearState
from lakehouse.pipeline.commits.audit import AuditFailed
from spark.engine import SparkEngines
from tests.support.topics import TRADES, Stream, framed, trade


def test_concurrent_processes_publish_each_record_once(resources, tmp_path):
    stream = Stream(resources, settings={"max_records_per_batch": 1_000})
    stream.produce_trades(range(2_000))

    writers = [stream.start("nowhere", tmp_path) for _ in range(2)]
    ended = [writer.wait(120) for writer in writers]

    # One process may lose so often that it gives up with an error. The next run ingests the remaining records.
    assert 0 in ended
    stream.ingest()
    assert stream.rows() == stream.expected_rows()


def test_ingest_snapshot_without_position_is_not_published(resources):
    stream = Stream(resources)
    stream.produce_trades(range(10))
    stream.interceptors["write"] = lambda write, decided, target, *rest, **settings: write(
        decided, replace(target, properties={}), *rest, **settings
    )

    with pytest.raises(AuditFailed, match="no snapshot has exactly the properties of this batch"):
        stream.ingest()
    assert stream.rows() == []

    stream.interceptors.clear()
    stream.ingest()
    assert stream.rows() == stream.expected_rows()


def test_ingest_into_branch_created_again_is_repeated(resources, tmp_path):
    """Iceberg creates the branch of a commit if it does not exist, without what Spark has read on the dropped one."""
    stream = Stream(resources, partitions=1)
    stream.produce_trades(range(10))
    stream.ingest()
    stream.produce_trades(range(10, 20))
    running, dropped = tmp_path / "running", tmp_path / "dropped"

    def await_drop(value):
        running.touch()
        return bool(value) and polling.poll(dropped.exists, pause=0.05, deadline_seconds=60)

    def drop_branch(branch):
        assert polling.poll(running.exists, pause=0.05, deadline_seconds=60)
        stream.table().manage_snapshots().remove_branch(branch).commit()
        dropped.touch()

    def write_while_dropped(write, decided, target, *rest, **settings):
        stream.interceptors.clear()
        waiting = replace(decided, alone=decided.alone.filter(F.udf(await_drop, "boolean")(F.lit(1))))
        with ThreadPoolExecutor() as pool:
            dropping = pool.submit(drop_branch, target.branch)
            written = write(waiting, target, *rest, **settings)
            dropping.result()
        ref = stream.table().metadata.refs[target.branch]
        ages.append(ref.max_ref_age_ms)
        return written

    ages, phases = [], []
    stream.interceptors["write"] = write_while_dropped
    stream.ingest(phases.append)

    assert ages == [None]
    assert (phases.count("branch"), phases.count("published")) == (2, 1)
    assert stream.rows() == stream.expected_rows()


def test_ingest_replaced_table_without_position_stops(resources):
    stream = Stream(resources)
    stream.produce_trades(range(10))
    stream.ingest()
    spark = resources.spark.session(resources.catalog.spark_settings())
    table = f"lake.{stream.namespace}.{stream.topic.table}"
    spark.sql(f"CREATE OR REPLACE TABLE {table} USING iceberg AS SELECT 'mine' AS userid")

    with pytest.raises(UnclearState, match="1 rows and no snapshot"):
        stream.ingest()
    assert stream.table().scan().to_arrow().to_pylist() == [{"userid": "mine"}]


def test_ingest_batch_without_row_changes_moves_position(resources):
    stream = Stream(resources, partitions=1, settings={"mode": "upsert"})
    schema_id = stream.schema()
    bad = [{"key": b"nobody", "value": None}, {"key": b"User_1", "value": b"bad"}]
    stream.produce(bad)
    assert [published.counts.consumed for published in stream.ingest()] == [2]
    assert stream.ingest() == []

    stream.produce([{"key": b"User_1", "value": framed(schema_id, TRADES, trade(0))}])
    stream.ingest()
    stream.produce(bad)
    assert [published.counts.consumed for published in stream.ingest()] == [2]
    assert stream.ingest() == []
    assert len(stream.rows()) == 1


def test_branches_that_writers_create_at_once_exist_or_conflict(resources):
    stream = Stream(resources)
    stream.produce_trades(range(5))
    stream.ingest()
    ref = stream.topic.table_in(stream.namespace)
    clients = [SparkEngines(resources.spark).with_own_session() for _ in range(4)]
    engines = [client.engine(resources.catalog.spark_settings()) for client in clients]

    def create(number: int) -> str:
        try:
            engines[number % len(engines)].create_branch(ref, f"created_{number}")
        except Exception as error:
            return type(error).__name__
        return "created"

    with ThreadPoolExecutor(len(engines)) as pool:
        outcomes = Counter(pool.map(create, range(40)))
    for client in clients:
        client.close()
    assert outcomes.keys() == {"created", "CommitConflict"}
    assert outcomes["created"] == sum(name.startswith("created_") for name in stream.table().metadata.refs)
