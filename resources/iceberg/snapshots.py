"""The snapshot history of a table's main branch, with the batches and rows in it."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from itertools import accumulate, takewhile
from typing import TYPE_CHECKING

from lakehouse.core.errors import UnclearState, Unreachable
from lakehouse.core.offsets.batch import Batch
from lakehouse.core.table_protocol import COUNTS, DECODER, MAX_PROPERTY, OFFSETS_TAG, PART, REPLAY_TAG, TOKEN

if TYPE_CHECKING:
    from pyiceberg.table import Table
    from pyiceberg.table.snapshots import Snapshot


def history(table: Table, snapshot_id: int | None = None) -> Iterator[Snapshot]:
    """Yield main's snapshots, or a snapshot and its ancestors, newest first, along parents."""
    snapshot = table.snapshot_by_id(snapshot_id) if snapshot_id else table.current_snapshot()
    while snapshot is not None:
        yield snapshot
        snapshot = table.snapshot_by_id(snapshot.parent_snapshot_id) if snapshot.parent_snapshot_id else None


def summary_of(snapshot: Snapshot) -> Mapping[str, str]:
    """Return the properties in a snapshot's summary."""
    return snapshot.summary.additional_properties if snapshot.summary else {}


def may_lack_rows_of(table: Table, snapshot_id: int) -> bool:
    """Return whether a commit of main after a snapshot may have removed rows (Iceberg specification, Snapshots)."""
    from pyiceberg.table.snapshots import Operation

    later = takewhile(lambda snapshot: snapshot.snapshot_id != snapshot_id, history(table))
    return any(s.summary is None or s.summary.operation in (Operation.OVERWRITE, Operation.DELETE) for s in later)


def full_history(table: Table) -> Iterator[Snapshot]:
    """Yield main's snapshots, newest first, including expired ones if only these have a batch.

    If expiry left no snapshot with a batch, the expired ones up to the newest with a batch follow.

    Raises:
        UnclearState: No remaining metadata file describes them.
    """
    has_batch = False
    for snapshot in history(table):
        has_batch = has_batch or batch_of(snapshot) is not None
        yield snapshot
    for snapshot in () if has_batch else _expired_ancestors(table):
        yield snapshot
        if batch_of(snapshot):
            return


def last_batch(table: Table | None) -> Batch | None:
    """Return the newest batch on main, skipping snapshots of other writers (compaction, a manual DELETE).

    Raises:
        UnclearState: The table has rows but no token, or the token expired: its position is unknown.
    """
    if table is None:
        return None
    for snapshot in full_history(table):
        if batch := batch_of(snapshot):
            return batch
    current = table.current_snapshot()
    if rows := int(summary_of(current).get("total-records", 0)) if current else 0:
        raise UnclearState(
            f"Table {'.'.join(table.name())} has {rows:,} rows and no snapshot with its Kafka offsets. "
            f"Nothing was changed. Set the position with `lakehouse resume`, choose another table name, or drop "
            f"the table to ingest the topic from its start"
        )
    return None


def newest_batch(table: Table) -> Batch | None:
    """Return the newest batch that was ever published, which main may lack after a rollback; None if there is none."""
    tagged = table.snapshot_by_name(OFFSETS_TAG)
    return batch_of(tagged) if tagged else None


def lacks_newest_batch(table: Table) -> bool:
    """Return whether main may lack the newest batch that was ever published, or a replay after it."""
    tagged = (table.metadata.refs.get(name) for name in (OFFSETS_TAG, REPLAY_TAG))
    missing = {ref.snapshot_id for ref in tagged if ref}
    try:
        for snapshot in full_history(table):
            missing.discard(snapshot.snapshot_id)
            if batch_of(snapshot):
                break
    except UnclearState:
        return True
    return bool(missing)


def is_rolled_back(table: Table, snapshot_id: int) -> bool:
    """Return whether main was rolled back behind a snapshot that it had; records read again may have other outcomes.

    If the snapshot is expired, the tags of the newest commits show it, until the next batch moves them.
    """
    if table.snapshot_by_id(snapshot_id) is None:
        return lacks_newest_batch(table)
    return all(snapshot.snapshot_id != snapshot_id for snapshot in history(table))


def decoder_of_last_batch(table: Table | None) -> str:
    """Return `compiled`, or why the reference decoder read the newest batch on main; empty if there is none."""
    batches = (summary_of(snapshot) for snapshot in full_history(table) if batch_of(snapshot)) if table else iter(())
    return next(batches, {}).get(DECODER, "")


def counts_by_snapshot(table: Table) -> dict[int, dict[str, int]]:
    """Return the records by outcome of each ingested batch, by id of the snapshots that still exist.

    The publishing commit stores them in a table property, because a snapshot's own summary is written before Spark has
    counted and is immutable.
    """
    stored = {int(id_): counts for id_, counts in json.loads(table.properties.get(COUNTS, "{}")).items()}
    existing = {snapshot.snapshot_id for snapshot in table.metadata.snapshots}
    return {id_: counts for id_, counts in stored.items() if id_ in existing}


def newest_counts(table: Table) -> dict[str, int] | None:
    """Return the records by outcome of the newest ingested batch; None if there is none."""
    return next(reversed(counts_by_snapshot(table).values()), None)


def with_counts(table: Table, snapshot_id: int, counts: Mapping[str, int]) -> str:
    """Return the table property with the counts of one more snapshot.

    The counts of the oldest snapshots are dropped beyond MAX_PROPERTY, since Glue rejects a commit with a longer one.
    """
    by_snapshot = counts_by_snapshot(table) | {snapshot_id: dict(counts)}
    items = [f'"{id_}":{_compact({name: n for name, n in of.items() if n})}' for id_, of in by_snapshot.items()]
    sizes = accumulate(len(text) + 1 for text in reversed(items))
    newest = sum(size < MAX_PROPERTY for size in sizes)
    return "{" + ",".join(items[-newest:]) + "}"


def _compact(counts: Mapping[str, int]) -> str:
    return json.dumps(counts, separators=(",", ":"))


def batch_of(snapshot: Snapshot) -> Batch | None:
    """Return the batch in a snapshot's token; None for a snapshot of another writer."""
    token = summary_of(snapshot).get(TOKEN)
    return Batch.from_json(token) if token else None


def _expired_ancestors(table: Table) -> Iterator[Snapshot]:
    """Yield main's expired ancestors, newest first, from older metadata files.

    The offsets tag is no substitute: after a rollback main does not have the tagged batch.
    """
    from pyiceberg.serializers import FromInputFile

    *_, oldest = None, *history(table)
    next_id = oldest.parent_snapshot_id if oldest else None
    for entry in reversed(table.metadata.metadata_log):
        if next_id is None:
            return
        try:
            metadata = FromInputFile.table_metadata(table.io.new_input(entry.metadata_file))
        except FileNotFoundError:
            break
        except OSError as error:
            # The file may exist: a slow store must not change the position.
            where = entry.metadata_file.rpartition("/")[0]
            raise Unreachable("The table's storage", where, "the endpoint and the AWS credentials", error) from error
        by_id = {snapshot.snapshot_id: snapshot for snapshot in metadata.snapshots}
        while next_id in by_id:
            yield by_id[next_id]
            next_id = by_id[next_id].parent_snapshot_id
    if next_id is not None:
        raise UnclearState(
            f"Table {'.'.join(table.name())} descends from snapshot {next_id}, which was expired, and no remaining "
            f"metadata file has its offsets. Nothing was changed. The tag '{OFFSETS_TAG}' names the newest "
            f"batch ever published; set the position with `lakehouse resume`"
        )


def require_position_deletes(table: Table, snapshot_id: int | None = None) -> None:
    """Require that a snapshot, main's by default, has no equality deletes, which pyiceberg does not apply.

    Raises:
        UnclearState: Another program committed some.
    """
    snapshot = table.snapshot_by_id(snapshot_id) if snapshot_id else table.current_snapshot()
    if snapshot and int(summary_of(snapshot).get("total-equality-deletes", 0)):
        raise UnclearState(
            f"Table {'.'.join(table.name())} has equality deletes, which another program committed, and which neither "
            f"Snowflake nor this program reads. Nothing was changed. Apply them with Iceberg's Spark procedure "
            f"rewrite_data_files and its option 'delete-file-threshold' => '1', and let the other program write "
            f"position deletes"
        )


def live_rows(table: Table) -> int:
    """Return the number of rows that readers of main see."""
    snapshot = table.current_snapshot()
    return live_rows_at(table, snapshot.snapshot_id) if snapshot else 0


def live_rows_at(table: Table, snapshot_id: int) -> int:
    """Return the number of rows in one snapshot: those of the data files less those hidden by position deletes.

    A snapshot's summary does not suffice: it counts deletes of rows whose files have been rewritten since.

    Raises:
        UnclearState: It has equality deletes.
    """
    import pyarrow as pa
    import pyarrow.compute as pc
    import pyarrow.parquet as pq

    require_position_deletes(table, snapshot_id)
    tasks = list(table.scan(snapshot_id=snapshot_id).plan_files())
    rows = sum(task.file.record_count for task in tasks)
    deletes = {file.file_path for task in tasks for file in task.delete_files}
    if not deletes:
        return rows
    tables = [pq.read_table(table.io.new_input(path).open(), columns=["file_path", "pos"]) for path in deletes]
    positions = pa.concat_tables(tables)
    hidden = positions.filter(pc.is_in(positions["file_path"], pa.array([task.file.file_path for task in tasks])))
    return rows - hidden.group_by(["file_path", "pos"]).aggregate([]).num_rows


def snapshot_count(table: Table, publications: int) -> int:
    """Return the number of main's newest snapshots in its newest publications: a commit in parts has several."""
    number = 0
    for snapshot in history(table):
        number += 1
        publications -= PART not in summary_of(snapshot)
        if not publications:
            break
    return number


def commits(table: Table) -> list[tuple[int, int]]:
    """Return main's (snapshot id, commit time in milliseconds), newest first; a commit in parts counts once."""
    return [
        (snapshot.snapshot_id, snapshot.timestamp_ms) for snapshot in history(table) if PART not in summary_of(snapshot)
    ]


def shown(table: Table) -> list[tuple[int, int]]:
    """Return the snapshots that main has had, as (commit time, time since when main had it), newest first.

    Both are in milliseconds. A batch is committed to a branch, and main has it when it is published. Expired snapshots
    are left out (Iceberg, Table metadata: snapshot-log).
    """
    log = ((table.snapshot_by_id(entry.snapshot_id), entry.timestamp_ms) for entry in table.metadata.snapshot_log)
    return [(snapshot.timestamp_ms, since) for snapshot, since in log if snapshot][::-1]
