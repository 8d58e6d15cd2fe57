"""Expiry of snapshots: fresh readers keep theirs, and the position is never lost with an unreadable file."""

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pyarrow as pa
import pytest
from pyiceberg.catalog.sql import SqlCatalog

from lakehouse.config.model import Topic
from lakehouse.core.errors import UnclearState, Unreachable
from lakehouse.core.offsets.batch import Batch
from lakehouse.core.table_protocol import PART, TOKEN
from lakehouse.pipeline.maintenance import oldest_kept
from resources.iceberg.snapshots import commits, last_batch, shown, snapshot_count

NOW = datetime(2026, 1, 2, tzinfo=UTC)
ROWS = pa.table({"a": pa.array([1], pa.int64())})
BATCH = Batch("c", "orders", "t", {0: 0}, {0: 1})


def publications_every(seconds, count):
    """Return publications at this interval, newest first."""
    return [(n, int((NOW - timedelta(seconds=n * seconds)).timestamp() * 1000)) for n in range(count)]


def at_once(published):
    """Return what readers showed if each publication was committed when it was published."""
    return [(milliseconds, milliseconds) for _, milliseconds in published]


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
def test_oldest_kept_keeps_snapshots_of_fresh_readers(seconds, count, max_lag_seconds, kept):
    topic = Topic(name="orders", max_lag_seconds=max_lag_seconds)

    published = publications_every(seconds, count)
    oldest = oldest_kept(published, at_once(published), NOW, topic.min_snapshot_age)

    assert oldest == NOW - kept if kept else oldest <= NOW - topic.min_snapshot_age


def test_oldest_kept_keeps_snapshot_that_was_shown_until_recently():
    quiet = (600, int((NOW - timedelta(hours=5)).timestamp() * 1000))
    published = [*publications_every(1, 600), quiet, (601, quiet[1] - 1000)]

    oldest = oldest_kept(published, at_once(published), NOW, timedelta(hours=1))

    assert oldest == NOW - timedelta(hours=5)


def test_oldest_kept_before_slow_publication():
    """The batch was staged two hours ago, and published a minute ago."""
    newest, slow, shown = (int((NOW - timedelta(minutes=n)).timestamp() * 1000) for n in (1, 120, 300))

    oldest = oldest_kept([(2, slow), (1, shown)] * 300, [(slow, newest), (shown, shown)], NOW, timedelta(hours=1))

    assert oldest == NOW - timedelta(minutes=300)


def test_shown_has_time_of_publication(tmp_path):
    catalog = SqlCatalog("lake", uri=f"sqlite:///{tmp_path}/lake.db", warehouse=f"file://{tmp_path}")
    catalog.create_namespace("trading")
    table = catalog.create_table(("trading", "orders"), ROWS.schema)
    table.append(ROWS)
    table.append(ROWS, branch="staged")
    staged = table.snapshot_by_name("staged")
    table.manage_snapshots().create_branch(staged.snapshot_id, "main").commit()

    (commit_ms, since_ms), (first_ms, first_since) = shown(table)

    assert first_ms == first_since <= commit_ms == staged.timestamp_ms < since_ms


@pytest.fixture
def table(tmp_path):
    """Create a table whose snapshot with the position was expired in the way of Iceberg's Java library."""
    (tmp_path / "warehouse").mkdir()
    catalog = SqlCatalog("lake", uri=f"sqlite:///{tmp_path}/catalog.db", warehouse=f"file://{tmp_path}/warehouse")
    catalog.create_namespace("trading")
    table = catalog.create_table(("trading", "orders"), ROWS.schema)
    table.append(ROWS, snapshot_properties={TOKEN: BATCH.to_json()})
    position_id = table.metadata.current_snapshot_id
    table.append(ROWS)
    metadata = json.loads(Path(table.metadata_location.removeprefix("file://")).read_text())
    for name in ("snapshots", "snapshot-log"):
        metadata[name] = [entry for entry in metadata[name] if entry["snapshot-id"] != position_id]
    file = tmp_path / "warehouse" / "00009-expired.metadata.json"
    file.write_text(json.dumps(metadata))
    catalog.drop_table(("trading", "orders"))
    return catalog.register_table(("trading", "orders"), str(file))


def metadata_files(table):
    return [Path(entry.metadata_file.removeprefix("file://")) for entry in table.metadata.metadata_log]


def test_last_batch_expired_snapshot_is_read_from_metadata_log(table):
    assert last_batch(table) == BATCH


def test_last_batch_unreadable_metadata_differs_from_deleted(table):
    for file in metadata_files(table):
        file.unlink()
        file.mkdir()
    with pytest.raises(Unreachable, match="storage does not answer"):
        last_batch(table)

    for file in metadata_files(table):
        file.rmdir()
    with pytest.raises(UnclearState, match="no remaining metadata file"):
        last_batch(table)


def test_commits_batch_of_two_snapshots_is_one_publication(table):
    for _ in range(3):
        table.append(ROWS, snapshot_properties={PART: "delete"})
        table.append(ROWS, snapshot_properties={TOKEN: BATCH.to_json()})

    assert len(commits(table)) == 4
    assert [snapshot_count(table, publications) for publications in (1, 2, 3, 9)] == [1, 3, 5, 7]
