"""Compaction, expiry and clean-up, which keep tables fast and small. docs/maintenance.md explains why they are safe."""

import time
from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import partial

from pyiceberg.table import Table

from lakehouse.config.model import Topic
from lakehouse.core.errors import ConfigError
from lakehouse.core.table_protocol import DEAD_LETTERS
from lakehouse.core.tables.naming import TableRef
from lakehouse.pipeline.compaction_values import DataFiles
from lakehouse.pipeline.engine import EngineClient, Maintenance
from lakehouse.pipeline.schemas import recorded_settings
from resources.iceberg.catalog import Catalog, published_table
from resources.iceberg.reservation import await_unreserved, require_unreserved
from resources.iceberg.snapshots import commits, require_position_deletes, shown, snapshot_count, summary_of

ORPHAN_AGE = timedelta(days=3)
"""Default minimum age of orphan files; younger files may belong to a batch in progress."""

MIN_ORPHAN_AGE = timedelta(days=1)
"""Lower bound of that age: Iceberg refuses less, and no batch takes longer."""

MAX_MANIFESTS = 20
SMALL = 0.75
"""Fraction of the target size below which a data file is small (Iceberg, rewrite_data_files: min-file-size-bytes)."""

MERGED_PARTS = 8
"""Streams merge only data files below 1/8 of the target size; the maintenance job merges the others."""

MAX_PUBLICATIONS = 500
"""Number of publications kept in a streamed table, about 1 MB of metadata, unless a reader may still need older
ones."""

LARGE_METADATA = 8_000_000
"""Bytes of a metadata file from which maintenance expires snapshots by number as well, as the alert rule
LakehouseMetadataLarge has it. AWS Glue refuses tables with more than 20 MB (docs/catalogs.md)."""

MIN_PUBLICATIONS = 10
"""Least number of publications that are kept then, however large each one's part of the metadata is."""

FORGOTTEN_AT_ONCE = 100
"""Minimum number of snapshots to expire: an expiry takes seconds, so fewer are not worth one."""


@dataclass(frozen=True)
class Size:
    """Size of a table, by its metadata.

    Attributes:
        data_files: The number of data files.
        data_bytes: The size of the current snapshot's data files in bytes.
        delete_files: The number of delete files.
        manifests: The number of manifests of the current snapshot.
        snapshots: The number of snapshots.
        metadata_bytes: The size of the metadata file in bytes.
    """

    data_files: int
    data_bytes: int
    delete_files: int
    manifests: int
    snapshots: int
    metadata_bytes: int


@dataclass(frozen=True)
class Maintained:
    """Result of maintaining one table.

    Attributes:
        table: The name of the table.
        before: Its size before.
        after: Its size after.
        actions: What was done, one phrase for each step.
        seconds: The duration.
    """

    table: str
    before: Size
    after: Size
    actions: tuple[str, ...]
    seconds: float


def maintain(
    namespace: str, topic: Topic, catalog: Catalog, engines: EngineClient, orphan_age: timedelta = ORPHAN_AGE
) -> Iterator[Maintained]:
    """Compact, expire and clean up a topic's table and its dead letters.

    The order ensures that no step undoes another.

    Yields:
        The result of each table that has a snapshot.

    Raises:
        ConfigError: `orphan_age` is so short that files of a running batch could be deleted.
        LakehouseError: A table was dropped meanwhile.
        CommitConflict: Another writer changed the table meanwhile.
        IncompatibleSettings: `retention.rows` is declared, and the rows were made with other settings.
        Unreachable: A system does not answer.
    """
    if orphan_age < MIN_ORPHAN_AGE:
        raise ConfigError(
            f"Files younger than {MIN_ORPHAN_AGE} may belong to a batch in progress, but the minimum age of "
            f"orphans is {orphan_age}. Nothing was deleted. Use a minimum age of at least {MIN_ORPHAN_AGE}"
        )
    catalog = catalog.for_maintenance()
    # A session keeps the catalog that it used first, with the role of ingestion.
    with catalog.translate_errors(), closing(engines.with_own_session()) as engines:
        chain = catalog.chain(topic.table_in(namespace))
        current, _ = chain.newest
        catalog.drop_abandoned_tables(namespace)
        for _, closed in chain.closed:
            catalog.drop_abandoned(closed)
        for ref in (current, current.dead_letters):
            table = catalog.load(ref)
            if table is not None:
                catalog.drop_abandoned(table)
            if table is not None and table.current_snapshot() is not None:
                await_unreserved(catalog, current)
                began, before = time.monotonic(), size(published_table(catalog, ref))
                work = engines.engine(catalog.spark_settings()).maintenance
                done = tuple(_steps(topic, ref, catalog, work, orphan_age))
                after = published_table(catalog, ref)
                yield Maintained(ref.name, before, size(after), done, time.monotonic() - began)


def size(table: "Table") -> Size:
    """Return the size of a table that has a snapshot."""
    snapshot = table.current_snapshot()
    assert snapshot is not None
    summary = summary_of(snapshot)
    return Size(
        data_files=int(summary.get("total-data-files", 0)),
        data_bytes=int(summary.get("total-files-size", 0)),
        delete_files=int(summary.get("total-delete-files", 0)),
        manifests=len(snapshot.manifests(table.io)),
        snapshots=len(table.metadata.snapshots),
        metadata_bytes=metadata_bytes(table),
    )


def metadata_bytes(table: Table) -> int:
    """Return the size of a table's metadata file in bytes."""
    return len(table.io.new_input(table.metadata_location))


def is_large(size: int) -> bool:
    """Return whether the size of a metadata file in bytes requires that snapshots expire by number."""
    return size > LARGE_METADATA


def _steps(topic: Topic, ref: TableRef, catalog: Catalog, work: Maintenance, orphan_age: timedelta) -> Iterator[str]:
    now, keep = datetime.now(UTC), topic.retention

    loaded = partial(published_table, catalog, ref)
    stamp = topic.metadata.names.get("kafka_timestamp")
    first = now - keep.rows if keep.rows is not None and not ref.name.endswith(DEAD_LETTERS) else None
    if first:
        recorded_settings.require_same(topic, loaded())
    if first and stamp and work.delete_rows(ref, stamp, first):
        yield f"deleted rows older than {keep.rows}"
    if topic.maintenance == "external":
        yield "left compaction, expiry and orphan files to the service that maintains the table"
        return
    require_position_deletes(loaded())
    small = sum(task.file.file_size_in_bytes < SMALL * topic.target_file_bytes for task in loaded().scan().plan_files())
    if small > 1 or size(loaded()).delete_files:
        done = work.compact(ref, DataFiles(topic.target_file_bytes, int(SMALL * topic.target_file_bytes)))
        yield f"rewrote {done.before} data files into {done.after}"
    # Those that remain hide rows of files that were rewritten.
    if size(loaded()).delete_files:
        done = work.compact(ref, "delete files")
        yield f"rewrote {done.before} delete files into {done.after}"
    if size(loaded()).manifests > MAX_MANIFESTS:
        done = work.compact(ref, "manifests")
        yield f"rewrote {done.before} manifests into {done.after}"
    table = loaded()
    oldest = oldest_shown(shown(table), now - keep.snapshots)
    newest = snapshot_count(table, keep.min_snapshots)
    if len(table.metadata.snapshots) > newest and any(
        snapshot.timestamp_ms < oldest.timestamp() * 1000 for snapshot in table.metadata.snapshots
    ):
        deleted = work.expire(ref, oldest, newest)
        yield f"expired snapshots, and deleted {deleted} data files that only they had"
    table = loaded()
    if is_large(size_of_file := metadata_bytes(table)) and (old := expire_by_number(topic, ref, table, work)):
        yield f"expired {old} snapshots by number, because the metadata file had {size_of_file / 1e6:.1f} MB"
    if others := _tables_within(table, catalog):
        yield f"kept orphaned files, because {', '.join(others)} has files in the same folder ({table.location()})"
    elif removed := work.remove_orphans(catalog.cleaning, ref, now - orphan_age):
        yield f"removed {removed} orphaned files"


def _tables_within(table: Table, catalog: Catalog) -> list[str]:
    """Return the names of other tables with files in the folder of a table.

    Earlier releases created each table in the folder of its name, which a renamed table keeps.
    """
    others = catalog.metadata_files(table.name()[0])
    others.pop(".".join(table.name()), None)
    return sorted(name for name, file in others.items() if file.startswith(f"{table.location()}/"))


def expire_by_number(topic: Topic, ref: TableRef, table: Table, work: Maintenance) -> int:
    """Expire the older snapshots of a table, except those that fresh readers may need.

    The newest 500 publications are kept, or as many as half of `LARGE_METADATA` describes.

    Args:
        topic: The topic.
        ref: The name of the table.
        table: The table as just loaded.
        work: The engine.

    Returns:
        The number of expired snapshots; 0 if there were too few to be worth an expiry.
    """
    published = commits(table)
    average = metadata_bytes(table) / max(1, len(published))
    number = max(min(MAX_PUBLICATIONS, MIN_PUBLICATIONS), min(MAX_PUBLICATIONS, int(LARGE_METADATA / 2 / average)))
    oldest = oldest_kept(published, shown(table), datetime.now(UTC), topic.min_snapshot_age, number)
    old = sum(snapshot.timestamp_ms < oldest.timestamp() * 1000 for snapshot in table.metadata.snapshots)
    if old < min(FORGOTTEN_AT_ONCE, number):
        return 0
    work.expire(ref, oldest, 1)
    return old


def oldest_kept(
    published: Sequence[tuple[int, int]],
    shown: Sequence[tuple[int, int]],
    now: datetime,
    needed: timedelta,
    number: int = MAX_PUBLICATIONS,
) -> datetime:
    """Return the time since which a streamed table keeps its snapshots.

    Args:
        published: Its publications as (snapshot id, commit time in milliseconds), newest first.
        shown: What main has had; see `snapshots.shown`.
        now: The current time.
        needed: How long readers may need a snapshot.
        number: The number of publications that are kept, unless readers need more.
    """
    oldest_times = [milliseconds for _, milliseconds in published[number - 1 : number]]
    time_by_count = (
        datetime.fromtimestamp(oldest_times[0] / 1000, UTC) if oldest_times else datetime.fromtimestamp(0, UTC)
    )
    return min(time_by_count, oldest_shown(shown, now - needed))


def oldest_shown(shown: Sequence[tuple[int, int]], since: datetime) -> datetime:
    """Return the commit time of the oldest snapshot that main has had since a time.

    The one that main had at that time may be much older: a table may have had no batch for days before.

    Args:
        shown: What main has had; see `snapshots.shown`.
        since: The time.
    """
    oldest = since
    for committed, published in shown:
        oldest = min(oldest, datetime.fromtimestamp(committed / 1000, UTC))
        if published <= since.timestamp() * 1000:
            break
    return oldest


def compact_incrementally(namespace: str, topic: Topic, catalog: Catalog, engines: EngineClient) -> Maintained:
    """Merge small files and expire snapshots of a table that a stream commits to every few seconds.

    Files that were added since the last call are merged. Merged files wait for the maintenance job unless they are
    small as well; otherwise each file would be rewritten again and again. Snapshots are expired by number, regardless
    of `retention.snapshots`, as soon as no fresh reader needs them: every metadata file lists each of them, and a
    commit every two seconds would add 300,000 in a week.

    Raises:
        CommitConflict: Another writer changed the table meanwhile.
        Unreachable: A system does not answer.
        Yielded: A command waits to publish in the table.
    """
    with catalog.translate_errors():
        work, began = engines.engine(catalog.spark_settings()).maintenance, time.monotonic()
        ref, table = catalog.chain(topic.table_in(namespace)).require_published()
        require_unreserved(topic.name, table)
        target, before = topic.target_file_bytes, size(table)
        merged = work.compact(ref, DataFiles(target, target // MERGED_PARTS, applies_deletes=False))
        done = [f"rewrote {merged.before} data files into {merged.after}"]
        table = published_table(catalog, ref)
        if size(table).manifests > MAX_MANIFESTS:
            merged = work.compact(ref, "manifests")
            done.append(f"rewrote {merged.before} manifests into {merged.after}")
        if old := expire_by_number(topic, ref, table, work):
            done.append(f"expired {old} snapshots")
        after = size(published_table(catalog, ref))
        return Maintained(ref.name, before, after, tuple(done), time.monotonic() - began)
