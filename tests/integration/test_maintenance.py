"""Maintenance: compaction, applied deletes and expiry, which keep the rows and the position."""

from datetime import timedelta

import pytest

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
