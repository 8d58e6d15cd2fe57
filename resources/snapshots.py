"""What a table's snapshots say: main's history, up to which offsets it holds a topic, and its rows."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from itertools import accumulate
from typing import TYPE_CHECKING

from lakehouse.core import naming
from lakehouse.core.batch import COUNTS, MAX_PROPERTY, PART, TOKEN, Batch
from lakehouse.core.errors import UnclearState, Unreachable

if TYPE_CHECKING:
    from pyiceberg.table import Table
    from pyiceberg.table.snapshots import Snapshot


def history(table: Table) -> Iterator[Snapshot]:
    """Main's snapshots, newest first, along parents."""
    snapshot = table.current_snapshot()
    while snapshot is not None:
        yield snapshot
        snapshot = table.snapshot_by_id(snapshot.parent_snapshot_id) if snapshot.parent_snapshot_id else None


def lineage(table: Table) -> Iterator[Snapshot]:
    """`history`; and where expiry left no snapshot in it that says the position, those before it up to one that does.

    Raises: UnclearState when no metadata file is left that describes them.
    """
    known = False
    for snapshot in history(table):
        known = known or batch_of(snapshot) is not None
        yield snapshot
    for snapshot in () if known else _expired(table):
        yield snapshot
        if batch_of(snapshot):
            return


def last_batch(table: Table | None) -> Batch | None:
    """The newest batch that main holds: also past snapshots of other writers (compaction, a manual DELETE).

    Raises: UnclearState when the table has rows but no token, or expiry removed what would say: its position is
    unknown.
    """
    if table is None:
        return None
    for snapshot in lineage(table):
        if batch := batch_of(snapshot):
            return batch
    current = table.current_snapshot()
    if rows := int(current.summary.additional_properties.get("total-records", 0)) if current and current.summary else 0:
        raise UnclearState(
            f"Table {'.'.join(table.name())} has {rows:,} rows and no snapshot that says up to which offsets. "
            f"Nothing was changed. Say where to go on with `lakehouse resume`, choose another table name, or drop "
            f"the table to ingest the topic from its start"
        )
    return None


def counts_by_snapshot(table: Table) -> dict[int, dict[str, int]]:
    """What each ingested batch held, in records by outcome, for the snapshots that the table still has.

    They stand in a table property, set by the publishing commit: a snapshot's own summary is written before Spark has
    counted, and never after.
    """
    counts = {int(id_): found for id_, found in json.loads(table.properties.get(COUNTS, "{}")).items()}
    alive = {snapshot.snapshot_id for snapshot in table.metadata.snapshots}
    return {id_: found for id_, found in counts.items() if id_ in alive}


def with_counts(table: Table, snapshot_id: int, counts: Mapping[str, int]) -> str:
    """The counts of the table's snapshots and of one more, as the table property holds them.

    Of many snapshots, the oldest have no counts any more: Glue refuses a longer property, and so the commit.
    """
    kept = counts_by_snapshot(table) | {snapshot_id: dict(counts)}
    written = [f'"{id_}":{_compact({name: n for name, n in of.items() if n})}' for id_, of in kept.items()]
    sizes = accumulate(len(text) + 1 for text in reversed(written))
    newest = sum(size < MAX_PROPERTY for size in sizes)
    return "{" + ",".join(written[-newest:]) + "}"


def _compact(counts: Mapping[str, int]) -> str:
    return json.dumps(counts, separators=(",", ":"))


def batch_of(snapshot: Snapshot) -> Batch | None:
    """The batch that a snapshot says it holds; None when another writer made it."""
    token = snapshot.summary.additional_properties.get(TOKEN) if snapshot.summary else None
    return Batch.from_json(token) if token else None


def _expired(table: Table) -> Iterator[Snapshot]:
    """Main's ancestors that expiry removed, newest first, as older metadata files still describe them.

    The offsets tag alone would not do: after a rollback main does not hold what the tag says.

    Raises: UnclearState when those files do not reach back far enough; Unreachable when one of them cannot be read.
    """
    from pyiceberg.serializers import FromInputFile

    *_, oldest = None, *history(table)
    wanted = oldest.parent_snapshot_id if oldest else None
    for entry in reversed(table.metadata.metadata_log):
        if wanted is None:
            return
        try:
            metadata = FromInputFile.table_metadata(table.io.new_input(entry.metadata_file))
        except FileNotFoundError:
            break
        except OSError as error:
            # It may be there: a decision about the position must not follow from a store that is slow.
            where = entry.metadata_file.rpartition("/")[0]
            raise Unreachable("The table's store", where, "the endpoint and the AWS credentials", error) from error
        known = {snapshot.snapshot_id: snapshot for snapshot in metadata.snapshots}
        while wanted in known:
            yield known[wanted]
            wanted = known[wanted].parent_snapshot_id
    if wanted is not None:
        raise UnclearState(
            f"Table {'.'.join(table.name())} descends from snapshot {wanted}, which was expired, and no metadata file "
            f"is left that says which offsets it held. Nothing was changed. The tag '{naming.OFFSETS_TAG}' names the "
            f"newest batch ever published; say where to go on with `lakehouse resume`"
        )


def live_rows(table: Table) -> int:
    """Rows that a reader of main sees now."""
    snapshot = table.current_snapshot()
    return live_rows_at(table, snapshot.snapshot_id) if snapshot else 0


def live_rows_at(table: Table, snapshot_id: int) -> int:
    """Rows in one snapshot: what the data files hold less what position deletes hide.

    A summary's own arithmetic does not do: it counts deletes of rows whose files were rewritten since.
    """
    import pyarrow as pa
    import pyarrow.compute as pc
    import pyarrow.parquet as pq

    tasks = list(table.scan(snapshot_id=snapshot_id).plan_files())
    rows = sum(task.file.record_count for task in tasks)
    deletes = {file.file_path for task in tasks for file in task.delete_files}
    if not deletes:
        return rows
    read = [pq.read_table(table.io.new_input(path).open(), columns=["file_path", "pos"]) for path in deletes]
    positions = pa.concat_tables(read)
    hidden = positions.filter(pc.is_in(positions["file_path"], pa.array([task.file.file_path for task in tasks])))
    return rows - hidden.group_by(["file_path", "pos"]).aggregate([]).num_rows


def snapshots_of(table: Table, publications: int) -> int:
    """How many of main's newest snapshots its newest publications are: a commit in parts is several."""
    number = 0
    for snapshot in history(table):
        number += 1
        publications -= PART not in (snapshot.summary.additional_properties if snapshot.summary else {})
        if not publications:
            break
    return number


def commits(table: Table) -> list[tuple[int, int]]:
    """Main's (snapshot id, commit time in milliseconds), newest first; a commit in parts counts once."""
    return [
        (snapshot.snapshot_id, snapshot.timestamp_ms)
        for snapshot in history(table)
        if snapshot.summary is None or PART not in snapshot.summary.additional_properties
    ]
