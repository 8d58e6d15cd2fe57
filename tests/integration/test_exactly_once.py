"""Each record is in the table exactly once, or the run stops with a reason, after commits of others and failures.

tests/simulation/described/test_races.py kills at each call of a run, in all modes; test_stream.py kills a process.
"""

from contextlib import contextmanager
from dataclasses import replace

import pytest

from lakehouse.core.errors import CommitConflict, UnclearState, Unreachable
from lakehouse.core.tables.naming import TableRef
from lakehouse.pipeline.ingestion import ingest
from resources.kafka.kafka import Kafka
from resources.schema_registry import SchemaRegistry
from resources.spark.servers import Connect
from spark.engine import SparkEngines
from tests.support.topics import Stream


def test_publish_after_concurrent_commit_is_refused(resources):
    stream = Stream(resources)
    stream.produce_trades(range(10))
    stream.ingest()
    catalog, table = resources.catalog, stream.table()
    base = table.current_snapshot().snapshot_id
    with table.manage_snapshots() as manage:
        manage.create_branch(base, "ingest_loser")
    table.refresh().append(table.scan(limit=1).to_arrow(), branch="ingest_loser")
    stale = catalog.load(TableRef(stream.namespace, stream.topic.table))
    table.refresh().append(table.scan(limit=2).to_arrow())
    moved = stream.table().current_snapshot().snapshot_id

    with pytest.raises(CommitConflict, match="changed"):
        catalog.publish(stale, "ingest_loser", base)

    assert stream.table().current_snapshot().snapshot_id == moved != base


def test_ingest_foreign_and_expired_snapshots_keep_position(resources):
    stream = Stream(resources)
    stream.produce_trades(range(50))
    stream.ingest()
    spark = resources.spark.session(resources.catalog.spark_settings())
    table = f"lake.{stream.namespace}.{stream.topic.table}"
    spark.sql(f"INSERT INTO {table} SELECT * FROM {table} WHERE userid = 'User_1'")
    spark.sql(f"DELETE FROM {table} WHERE userid = 'User_1'")
    spark.sql(f"CALL lake.system.rewrite_data_files(table => '{stream.namespace}.{stream.topic.table}')").collect()
    stream.produce_trades(range(50, 60))

    [published] = stream.ingest()

    assert published.counts.consumed == 10
    kept = [row for row in stream.expected_rows() if row["userid"] != "User_1"]
    assert [r for r in stream.rows() if r["userid"] != "User_1"] == kept

    for user in ("User_2", "User_3"):
        spark.sql(f"DELETE FROM {table} WHERE userid = '{user}'")
    expire(resources, stream)
    stream.produce_trades(range(60, 70))

    [published] = stream.ingest()

    assert published.counts.consumed == 10


def expire(resources, stream):
    """Remove every snapshot except the newest of main, as another tool would."""
    spark = resources.spark.session(resources.catalog.spark_settings())
    spark.sql(
        f"CALL lake.system.expire_snapshots(table => '{stream.namespace}.{stream.topic.table}', "
        "older_than => TIMESTAMP '2099-01-01 00:00:00', retain_last => 1)"
    ).collect()


def test_ingest_after_rollback_and_expiry_restores_rows(resources):
    """The second batch was rolled back, another writer deleted rows, and the snapshots were expired."""
    stream = Stream(resources, settings={"key": []})
    stream.produce_trades(range(20))
    stream.ingest()
    first = stream.table().current_snapshot().snapshot_id
    stream.produce_trades(range(20, 50))
    stream.ingest()
    with stream.table().manage_snapshots() as manage:
        manage.rollback_to_snapshot(first)
    spark = resources.spark.session(resources.catalog.spark_settings())
    spark.sql(f"DELETE FROM lake.{stream.namespace}.`{stream.topic.table}` WHERE userid = 'User_1'")
    expire(resources, stream)

    with without_earlier_metadata(stream.table()), pytest.raises(UnclearState, match="which was expired"):
        stream.ingest()
    [published] = stream.ingest()

    batch = published.batch
    assert published.counts.consumed == 30
    expected = [row for row in stream.expected_rows() if row["kafka_offset"] >= batch.start[row["kafka_partition"]]]
    actual = [row for row in stream.rows() if row["kafka_offset"] >= batch.start[row["kafka_partition"]]]
    assert actual == expected and len(expected) == 30


@contextmanager
def without_earlier_metadata(table):
    """Delete the earlier metadata files of a table while the body of the statement runs."""
    contents = {}
    for entry in table.metadata.metadata_log:
        with table.io.new_input(entry.metadata_file).open() as file:
            contents[entry.metadata_file] = file.read()
        table.io.delete(entry.metadata_file)
    yield
    for name, content in contents.items():
        with table.io.new_output(name).create() as file:
            file.write(content)


@pytest.fixture(scope="module")
def behind(resources):
    """Return a topic with rows in its table, and with records after them."""
    stream = Stream(resources)
    stream.produce_trades(range(5))
    stream.ingest()
    stream.produce_trades(range(5, 9))
    return stream


@pytest.mark.parametrize(
    ("system", "unreachable", "message"),
    [
        ("kafka", Kafka(bootstrap_servers="127.0.0.1:1"), "Kafka does not answer at 127.0.0.1:1"),
        ("schema_registry", SchemaRegistry(url="http://127.0.0.1:1"), "registry does not answer at http://127.0.0.1:1"),
        (
            "engines",
            SparkEngines(Connect(remote="sc://localhost:1")),
            "Spark Connect does not answer at localhost:1",
        ),
    ],
)
def test_ingest_system_down_is_named_and_changes_nothing(behind, monkeypatch, system, unreachable, message):
    before = behind.rows()
    monkeypatch.setattr("resources.kafka.kafka.TIMEOUT_SECONDS", 5)
    # A process has one Spark session, which would otherwise be used instead of the unreachable one.
    behind.resources.spark.close()

    with pytest.raises(Unreachable, match=message):
        list(ingest(behind.namespace, behind.topic, replace(behind.systems, **{system: unreachable})))
    assert behind.rows() == before
    assert behind.dead_letters() == []
