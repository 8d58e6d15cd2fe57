"""What a table forgets: no snapshot that a fresh reader may need, and no position because a file cannot be read."""

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pyarrow as pa
import pytest
from pyiceberg.catalog.sql import SqlCatalog

from lakehouse.config.topic import Topic
from lakehouse.core.batch import PART, TOKEN, Batch
from lakehouse.core.errors import UnclearState, Unreachable
from lakehouse.pipeline.maintenance import oldest_kept
from resources.snapshots import commits, last_batch, snapshots_of

NOW = datetime(2026, 1, 2, tzinfo=UTC)
ROWS = pa.table({"a": pa.array([1], pa.int64())})
BATCH = Batch("c", "orders", "t", {0: 0}, {0: 1})


def every(seconds, count):
    """Publications, newest first."""
    return [(n, int((NOW - timedelta(seconds=n * seconds)).timestamp() * 1000)) for n in range(count)]


@pytest.mark.parametrize(
    ("seconds", "count", "max_lag_seconds", "kept"),
    [
        (2, 4_000, 900, timedelta(hours=1)),
        (2, 4_000, 3_600, timedelta(hours=2)),
        (60, 4_000, 900, timedelta(seconds=499 * 60)),
        (2, 30, 900, None),
    ],
    ids=["an hour", "twice the lag", "500 publications", "all of a few"],
)
def test_a_stream_keeps_what_a_fresh_reader_may_need(seconds, count, max_lag_seconds, kept):
    topic = Topic(name="orders", max_lag_seconds=max_lag_seconds)

    oldest = oldest_kept(every(seconds, count), NOW, topic.readers_need)

    assert oldest == NOW - kept if kept else oldest <= NOW - topic.readers_need


@pytest.fixture
def table(tmp_path):
    """A table of which the snapshot with the position was expired, as Iceberg's Java library does it."""
    (tmp_path / "warehouse").mkdir()
    catalog = SqlCatalog("lake", uri=f"sqlite:///{tmp_path}/catalog.db", warehouse=f"file://{tmp_path}/warehouse")
    catalog.create_namespace("trading")
    table = catalog.create_table(("trading", "orders"), ROWS.schema)
    table.append(ROWS, snapshot_properties={TOKEN: BATCH.to_json()})
    held = table.metadata.current_snapshot_id
    table.append(ROWS)
    metadata = json.loads(Path(table.metadata_location.removeprefix("file://")).read_text())
    for name in ("snapshots", "snapshot-log"):
        metadata[name] = [entry for entry in metadata[name] if entry["snapshot-id"] != held]
    file = tmp_path / "warehouse" / "00009-expired.metadata.json"
    file.write_text(json.dumps(metadata))
    catalog.drop_table(("trading", "orders"))
    return catalog.register_table(("trading", "orders"), str(file))


def metadata_files(table):
    return [Path(entry.metadata_file.removeprefix("file://")) for entry in table.metadata.metadata_log]


def test_a_position_is_found_in_older_metadata(table):
    assert last_batch(table) == BATCH


def test_a_metadata_file_that_cannot_be_read_is_not_one_that_is_gone(table):
    for file in metadata_files(table):
        file.unlink()
        file.mkdir()
    with pytest.raises(Unreachable, match="store"):
        last_batch(table)

    for file in metadata_files(table):
        file.rmdir()
    with pytest.raises(UnclearState, match="no metadata file is left"):
        last_batch(table)


def test_a_batch_that_makes_two_snapshots_is_one_publication(table):
    for _ in range(3):
        table.append(ROWS, snapshot_properties={PART: "delete"})
        table.append(ROWS, snapshot_properties={TOKEN: BATCH.to_json()})

    assert len(commits(table)) == 4
    assert [snapshots_of(table, publications) for publications in (1, 2, 3, 9)] == [1, 3, 5, 7]
