"""Changes of the table by other writers, between and during batches (F13-F20, F23, F55)."""

import os
import signal
import time

import boto3
import pytest

from lakehouse.core.errors import LakehouseError
from tests.support.faults import oracle
from tests.support.faults.moments import attempt
from tests.support.intercepted import miscounted
from tests.support.topics import TRADES, Stream, framed, once, trade


@pytest.fixture
def sql(resources):
    """Return a function that runs a statement in Spark."""

    def run(statement):
        return resources.spark.session(resources.catalog.spark_settings()).sql(statement).collect()

    return run


def create_stream(resources, mode="append", batches=1):
    """Return a topic with published batches of 30 records, and 30 new records."""
    stream = Stream(resources, settings={"mode": mode})
    for first in range(0, batches * 30, 30):
        stream.produce_trades(range(first, first + 30))
        stream.ingest()
    stream.produce_trades(range(batches * 30, batches * 30 + 30))
    return stream


@pytest.mark.long
def test_paused_writer_after_other_publication_adds_nothing(resources, tmp_path):
    stream = create_stream(resources)
    writer = stream.start("nowhere", tmp_path)
    deadline = time.monotonic() + 60
    while not any(ref.startswith("ingest_") for ref in stream.table().metadata.refs):
        assert time.monotonic() < deadline and writer.poll() is None
    writer.send_signal(signal.SIGSTOP)

    stream.ingest()
    writer.send_signal(signal.SIGCONT)

    assert writer.wait(120) == 0
    oracle.judge(stream)


@pytest.mark.parametrize("mode", ["append", "upsert"])
def test_compaction_during_batch_causes_retry(resources, sql, mode):
    stream = create_stream(resources, mode, batches=2)
    arguments = f"table => '{stream.namespace}.{stream.topic.table}', options => map('rewrite-all', 'true')"
    compact = f"CALL lake.system.rewrite_data_files({arguments})"
    compactions = stream.before_first("row_files", lambda: sql(compact))

    stream.ingest()

    [[[result]]] = [compactions]
    assert result["rewritten_data_files_count"] >= 2
    oracle.judge(stream)


CHANGES = {
    "partitions": "ALTER TABLE {table} ADD PARTITION FIELD error_reason",
    "columns": "ALTER TABLE {table} DROP COLUMN error_details",
    "drop": "DROP TABLE {table}",
}


@pytest.mark.parametrize("change", CHANGES)
def test_change_of_letters_after_files_were_written_causes_retry(resources, sql, change):
    pytest.importorskip("lakehouse_native")
    stream = create_stream(resources)
    stream.produce([{"value": b"first"}])
    stream.ingest()
    stream.produce_trades(range(60, 90))
    stream.produce([{"value": b"second"}, {"value": None}])
    letters = f"{stream.topic.table}__dead_letters"
    on_phase, done = once(
        "dead_letters", lambda: sql(CHANGES[change].format(table=f"lake.{stream.namespace}.{letters}"))
    )

    [published] = stream.ingest(on_phase)

    assert done and (published.counts.rows, published.counts.dead_letters) == (30, 2)
    kept = [letter for letter in stream.dead_letters() if letter["value"] != b"first"]
    assert [dict(letter["error_details"]) for letter in kept if letter["value"]] == [{"bytes": "6"}]
    assert len(kept) == 2 and all(letter["error_reason"] for letter in kept)
    table = stream.table(letters)
    assert all(task.file.file_path.startswith(table.location()) for task in table.scan().plan_files())
    oracle.files_are_sound(table)


def test_change_of_partitions_after_files_were_written_causes_retry(resources, sql):
    stream = Stream(resources, settings={"partition_by": ["account"]})
    stream.produce_trades(range(30))
    stream.ingest()
    stream.produce_trades(range(30, 60))
    name = f"lake.{stream.namespace}.{stream.topic.table}"
    on_phase, done = once("branch", lambda: sql(f"ALTER TABLE {name} REPLACE PARTITION FIELD account WITH symbol"))

    stream.ingest(on_phase)

    assert done
    oracle.judge(stream)
    for column in ("account", "symbol"):
        counts = {row[0]: row[1] for row in sql(f"SELECT {column}, count(*) FROM {name} GROUP BY 1")}
        assert {value: len(sql(f"SELECT 1 FROM {name} WHERE {column} = '{value}'")) for value in counts} == counts


def test_orphan_removal_during_batch_is_refused(resources, sql):
    stream = create_stream(resources)
    refusals = []

    def remove():
        arguments = f"table => '{stream.namespace}.{stream.topic.table}', older_than => TIMESTAMP '2099-01-01 00:00:00'"
        with pytest.raises(Exception, match="interval less than 24 hours") as refused:
            sql(f"CALL lake.system.remove_orphan_files({arguments})")
        refusals.append(refused)

    on_phase, _ = once("audit", remove)
    stream.ingest(on_phase)

    assert refusals
    oracle.judge(stream)


def test_table_recreated_during_batch_gets_no_wrong_row(resources):
    stream = create_stream(resources)
    schema = stream.table().schema()

    def recreate():
        resources.catalog.iceberg().drop_table((stream.namespace, stream.topic.table))
        resources.catalog.iceberg().create_table((stream.namespace, stream.topic.table), schema)

    on_phase, _ = once("publish", recreate)

    # The batch conflicts with the new table, and the same command then ingests all records into it.
    assert attempt(stream, on_phase) is None
    oracle.judge(stream)


def test_data_file_lost_before_audit_is_not_published(resources):
    stream = create_stream(resources)
    before = stream.table().current_snapshot().snapshot_id

    def remove():
        table = stream.table()
        [branch] = [ref for ref in table.metadata.refs if ref.startswith("ingest_")]
        staged = table.inspect.entries(table.metadata.refs[branch].snapshot_id).to_pylist()
        newest = max(entry["sequence_number"] for entry in staged)
        file = next(e["data_file"]["file_path"] for e in staged if e["sequence_number"] == newest)
        bucket, _, key = file.removeprefix("s3://").partition("/")
        boto3.client("s3", endpoint_url=os.environ["AWS_ENDPOINT_URL_S3"]).delete_object(Bucket=bucket, Key=key)

    on_phase, _ = once("audit", remove)
    assert attempt(stream, on_phase) is not None
    assert stream.table().current_snapshot().snapshot_id == before
    stream.ingest()
    oracle.judge(stream)


def test_schema_of_refused_batch_keeps_existing_rows(resources):
    import json

    stream = create_stream(resources)
    before = stream.rows()
    extended = json.loads(TRADES)
    extended["fields"].append({"name": "venue", "type": ["null", "string"], "default": None})
    text = json.dumps(extended)
    # The compiled decoder calls `write` for the records that it leaves.
    stream.produce([{"value": framed(stream.schema(text), text, trade(1, venue="X"))}, {"value": b"no frame"}])
    stream.interceptors["write"] = miscounted

    with pytest.raises(LakehouseError, match="did not pass its audit"):
        stream.ingest()

    assert [{k: v for k, v in row.items() if k != "venue"} for row in stream.rows()] == before
    del stream.interceptors["write"]
    stream.ingest()
    oracle.judge(stream)


@pytest.mark.long
def test_kill_during_branch_cleanup_loses_nothing(resources, tmp_path):
    stream = create_stream(resources)
    stream.die("after stage", tmp_path)
    stream.die("during cleanup", tmp_path)
    stream.ingest()
    oracle.judge(stream)
