"""Maintenance: compaction, applied deletes and expiry, which keep the rows and the position."""

from datetime import timedelta

import boto3
import pyarrow.parquet as pq
import pytest
from pyiceberg.manifest import DataFileContent, ManifestEntryStatus

from lakehouse.core.errors import ConfigError
from lakehouse.pipeline.clients import engine_client
from lakehouse.pipeline.maintenance import maintain, size
from resources.iceberg.snapshots import live_rows
from tests.support.topics import Stream


def run_maintenance(stream, **changes):
    topic = stream.topic.model_copy(update=changes)
    return list(maintain(stream.namespace, topic, stream.resources.catalog, engine_client(stream.resources.spark)))


def test_maintain_compacts_small_files_and_applies_delete_files(resources):
    """tests/contract/test_catalogs.py compacts tables to which rows are only appended."""
    stream = Stream(resources, settings={"mode": "upsert"})
    for n in range(5):  # Iceberg merges five files or more
        stream.produce_trades(range(n * 30, n * 30 + 30))
        stream.ingest()
    before = stream.rows()
    stream.produce([{"key": b"User_1", "value": b"bad"}])
    stream.ingest()
    assert size(stream.table()).delete_files > 1

    shortest = stream.topic.retention.model_copy(update={"snapshots": timedelta(0), "min_snapshots": 4})
    table, letters = run_maintenance(stream, retention=shortest)

    assert table.before.data_files >= 5 > table.after.data_files and table.after.delete_files <= 1
    assert 4 <= table.after.snapshots < table.before.snapshots and letters.table.endswith("__dead_letters")
    assert stream.rows() == before and len(stream.dead_letters()) == 1
    assert live_rows(stream.table()) == len(before)
    stream.produce_trades(range(500, 510))
    [published] = stream.ingest()
    assert published.counts.consumed == 10
    assert run_maintenance(stream)[1].actions == ()


def test_maintain_recent_orphan_is_kept(resources):
    stream = Stream(resources)
    stream.produce_trades(range(30))
    stream.ingest()
    table = stream.table()
    with table.io.new_output(f"{table.location()}/data/orphan.parquet").create() as file:
        file.write(b"may be a batch's")
    with pytest.raises(ConfigError, match="may belong to a batch"):
        list(
            maintain(
                stream.namespace, stream.topic, resources.catalog, engine_client(resources.spark), timedelta(hours=1)
            )
        )

    run_maintenance(stream)

    assert table.io.new_input(f"{table.location()}/data/orphan.parquet").exists()
    assert stream.rows() == stream.expected_rows()


def files_with(stream, name, hidden):
    """Return the data files in which a plain Parquet reader finds a row, by whether the current snapshot has them.

    The files are listed in the object store, and the current ones read from the manifests; no delete file is applied.
    """
    table = stream.table(name)
    snapshot = table.current_snapshot()
    current = {
        entry.data_file.file_path
        for manifest in snapshot.manifests(table.io)
        for entry in manifest.fetch_manifest_entry(table.io)
        if entry.data_file.content == DataFileContent.DATA and entry.status != ManifestEntryStatus.DELETED
    }
    bucket, _, prefix = table.location().removeprefix("s3://").partition("/")
    listed = boto3.client("s3").get_paginator("list_objects_v2").paginate(Bucket=bucket, Prefix=f"{prefix}/data/")
    paths = [f"s3://{bucket}/{item['Key']}" for page in listed for item in page.get("Contents", ())]
    having = set()
    for path in paths:
        with table.io.new_input(path).open() as file:
            rows = pq.read_table(file)
        if "file_path" not in rows.column_names and any(hidden(row) for row in rows.to_pylist()):
            having.add(path)
    assert current <= set(paths)
    return having & current, having - current


def test_maintain_twice_removes_deleted_row_from_all_files(resources):
    stream = Stream(resources, partitions=1, settings={"mode": "append"})
    stream.produce_trades(range(300))
    stream.ingest()
    stream.produce([{"key": b"User_1", "value": b"bad 1"}, {"key": b"User_2", "value": b"bad 2"}])
    stream.ingest()
    letters = f"{stream.topic.table}__dead_letters"
    spark = resources.spark.session(resources.catalog.spark_settings())
    in_table, in_letters = (lambda row: row["kafka_offset"] == 7), (lambda row: row["source_record"]["offset"] == 300)
    for name, where in ((stream.topic.table, "kafka_offset = 7"), (letters, "source_record.offset = 300")):
        spark.sql(f"DELETE FROM lake.`{stream.namespace}`.`{name}` WHERE {where}")
    assert len(files_with(stream, stream.topic.table, in_table)[0]) == 1
    shortest = stream.topic.retention.model_copy(update={"snapshots": timedelta(0), "min_snapshots": 1})

    run_maintenance(stream)

    assert not files_with(stream, stream.topic.table, in_table)[0] and not files_with(stream, letters, in_letters)[0]
    stream.produce_trades(range(300, 310))
    stream.produce([{"key": b"User_3", "value": b"bad 3"}])
    stream.ingest()
    run_maintenance(stream, retention=shortest)
    assert files_with(stream, stream.topic.table, in_table) == (set(), set())
    assert files_with(stream, letters, in_letters) == (set(), set())
    assert len(stream.rows()) == 309 and len(stream.dead_letters()) == 2
