"""Compaction, expiry and clean-up, which keep a table fast and small. docs/maintenance.md says what is safe and why."""

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

from lakehouse.config.topic import Topic
from lakehouse.core import naming
from lakehouse.core.errors import ConfigError
from resources.catalog import Catalog, published_table
from resources.snapshots import commits, snapshots_of
from resources.spark import Spark

if TYPE_CHECKING:
    from pyiceberg.table import Table

ORPHAN_AGE = timedelta(days=3)
"""Younger files may belong to a batch that is being written."""

SHORTEST_ORPHAN_AGE = timedelta(days=1)
"""Iceberg refuses less, and a batch takes less."""

MANY_MANIFESTS = 20
SMALL = 0.75
"""Part of the target size below which a data file is small (Iceberg, rewrite_data_files: min-file-size-bytes)."""

MERGED_PARTS = 8
"""While a table is streamed into, files below this part of the target size are merged; the rest is for the night."""

MOST_PUBLICATIONS = 500
"""Of a table that is streamed into, unless a reader may still need more: about a megabyte of metadata."""

FORGOTTEN_AT_ONCE = 100
"""Fewer snapshots are not worth the seconds that it takes to forget them."""


@dataclass(frozen=True)
class Size:
    """What a table consists of. `data_bytes` are of its newest snapshot."""

    data_files: int
    data_bytes: int
    delete_files: int
    manifests: int
    snapshots: int


@dataclass(frozen=True)
class Maintained:
    """One table before and after; `done` says what was done, a sentence each."""

    table: str
    before: Size
    after: Size
    done: tuple[str, ...]
    seconds: float


def maintain(
    namespace: str, topic: Topic, catalog: Catalog, spark: Spark, orphan_age: timedelta = ORPHAN_AGE
) -> Iterator[Maintained]:
    """Compact, expire and clean up a topic's table and its dead letters, in an order in which no step undoes another.

    Raises: ConfigError for an `orphan_age` that could delete files of a running batch; CommitConflict.
    """
    if orphan_age < SHORTEST_ORPHAN_AGE:
        raise ConfigError(
            f"Files younger than {SHORTEST_ORPHAN_AGE} may belong to a batch that is being written, and are not "
            f"orphans. Nothing was deleted. Use a longer age than {orphan_age}"
        )
    topic, _ = catalog.resolve_table(namespace, topic)
    for name in (topic.table, naming.dead_letter_table(topic.table)):
        found = catalog.load(namespace, name)
        if found is not None and found.current_snapshot() is not None:
            began, before = time.monotonic(), size(found)
            done = tuple(_steps(namespace, topic, name, catalog, spark, orphan_age))
            after = catalog.load(namespace, name)
            assert after is not None
            yield Maintained(name, before, size(after), done, time.monotonic() - began)


def size(table: "Table") -> Size:
    """What the table consists of now, by its metadata."""
    snapshot = table.current_snapshot()
    assert snapshot is not None and snapshot.summary is not None
    summary = snapshot.summary.additional_properties
    return Size(
        data_files=int(summary.get("total-data-files", 0)),
        data_bytes=int(summary.get("total-files-size", 0)),
        delete_files=int(summary.get("total-delete-files", 0)),
        manifests=len(snapshot.manifests(table.io)),
        snapshots=len(table.metadata.snapshots),
    )


def _steps(
    namespace: str, topic: Topic, name: str, catalog: Catalog, spark: Spark, orphan_age: timedelta
) -> Iterator[str]:
    from spark import maintenance as work

    session = spark.session(catalog.spark_settings())
    now, keep = datetime.now(UTC), topic.retention

    def loaded() -> "Table":
        table = catalog.load(namespace, name)
        assert table is not None
        return table

    catalog.drop_abandoned(loaded())
    stamp = topic.metadata.names.get("kafka_timestamp")
    first = now - keep.rows if keep.rows is not None and not name.endswith(naming.DEAD_LETTERS) else None
    if first and stamp and work.delete_rows(session, namespace, name, stamp, first):
        yield f"deleted rows older than {keep.rows}"
    small = sum(task.file.file_size_in_bytes < SMALL * topic.target_file_bytes for task in loaded().scan().plan_files())
    if small > 1 or size(loaded()).delete_files:
        row = work.compact(session, namespace, name, topic.target_file_bytes, int(SMALL * topic.target_file_bytes))
        yield f"rewrote {row['rewritten_data_files_count']} data files into {row['added_data_files_count']}"
    if size(loaded()).delete_files > 1:
        row = work.compact_deletes(session, namespace, name)
        yield f"rewrote {row['rewritten_delete_files_count']} delete files into {row['added_delete_files_count']}"
    if size(loaded()).manifests > MANY_MANIFESTS:
        row = work.compact_manifests(session, namespace, name)
        yield f"rewrote {row['rewritten_manifests_count']} manifests into {row['added_manifests_count']}"
    table, oldest = loaded(), now - keep.snapshots
    newest = snapshots_of(table, keep.min_snapshots)
    if len(table.metadata.snapshots) > newest and any(
        snapshot.timestamp_ms < oldest.timestamp() * 1000 for snapshot in table.metadata.snapshots
    ):
        row = work.expire(session, namespace, name, oldest, newest)
        yield f"expired snapshots that alone had {row['deleted_data_files_count']} data files"
    if removed := work.remove_orphans(session, catalog.cleaning, namespace, name, now - orphan_age):
        yield f"removed {removed} orphaned files"


def oldest_kept(published: Sequence[tuple[int, int]], now: datetime, needed: timedelta) -> datetime:
    """Since when a table that is streamed into keeps its snapshots.

    Args:
        published: Its publications, as (snapshot id, commit time in milliseconds), newest first.
        now: The time now.
        needed: For how long a reader may need a snapshot.
    """
    by_number = [milliseconds for _, milliseconds in published[MOST_PUBLICATIONS - 1 : MOST_PUBLICATIONS]]
    number = datetime.fromtimestamp(by_number[0] / 1000, UTC) if by_number else datetime.fromtimestamp(0, UTC)
    return min(number, now - needed)


def keep_pace(namespace: str, topic: Topic, catalog: Catalog, spark: Spark) -> Maintained:
    """Do what a table needs that is committed to every few seconds, and nothing that takes long.

    Files that came since are merged, and those that this left before stay for the night unless they are small, too: or
    each would be written again and again. Snapshots are forgotten by number, whatever `retention.snapshots` says, as
    soon as no fresh reader needs them: every metadata file describes each, and a commit every two seconds would make
    300,000 of them in a week.

    Raises: CommitConflict; Unreachable.
    """
    from spark import maintenance as work

    session, began = spark.session(catalog.spark_settings()), time.monotonic()
    topic, table = catalog.published(namespace, topic)
    name, target, before = topic.table, topic.target_file_bytes, size(table)
    row = work.compact(session, namespace, name, target, target // MERGED_PARTS)
    done = [f"rewrote {row['rewritten_data_files_count']} data files into {row['added_data_files_count']}"]
    table = published_table(catalog, namespace, name)
    if size(table).manifests > MANY_MANIFESTS:
        row = work.compact_manifests(session, namespace, name)
        done.append(f"rewrote {row['rewritten_manifests_count']} manifests into {row['added_manifests_count']}")
    oldest = oldest_kept(commits(table), datetime.now(UTC), topic.readers_need)
    old = sum(snapshot.timestamp_ms < oldest.timestamp() * 1000 for snapshot in table.metadata.snapshots)
    if old >= FORGOTTEN_AT_ONCE:
        work.expire(session, namespace, name, oldest, 1)
        done.append(f"forgot {old} snapshots")
    after = size(published_table(catalog, namespace, name))
    return Maintained(name, before, after, tuple(done), time.monotonic() - began)
