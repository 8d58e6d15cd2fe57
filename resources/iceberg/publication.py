"""The Iceberg commit that publishes a staging branch."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import TYPE_CHECKING

from lakehouse.core.errors import UnclearState
from lakehouse.core.offsets.batch import REPLAY, REPLAYS, Batch
from lakehouse.core.tables import naming
from resources.iceberg.snapshots import batch_of, full_history, summary_of

if TYPE_CHECKING:
    from pyiceberg.table import Table
    from pyiceberg.table.update import TableRequirement, TableUpdate

NEWEST_FORMAT = 2
"""Newest Iceberg format version that this release commits to."""


def require_format(table: Table) -> None:
    """Require a format version that this release can commit to.

    Raises:
        UnclearState: The table was upgraded to a newer one, where pyiceberg cannot publish and deletion vectors are
            not audited.
    """
    if table.format_version > NEWEST_FORMAT:
        raise UnclearState(
            f"Table {'.'.join(table.name())} has Iceberg format version {table.format_version}, and this release "
            f"writes versions up to {NEWEST_FORMAT}. Nothing was changed. Iceberg has no downgrade: drop the table and "
            f"ingest the topic again, or choose another `table`"
        )


def publication(
    table: Table, branch: str, base: int | None, properties: Mapping[str, str]
) -> tuple[tuple[TableRequirement, ...], tuple[TableUpdate, ...]]:
    """Return the requirements and updates (Iceberg REST specification: CommitTableRequest) that publish a branch.

    The commit makes the head of the branch the head of main, drops the branch and sets the properties. It counts a
    branch that may have rows of records which were read before: that of a redrive or replay, of the first batch after a
    rollback, and of a batch that ends before the newest batch ever published. A tag on the newest batch, and one on the
    newest replay until a batch follows it, show later whether main was rolled back behind them.

    Args:
        table: The table as loaded when the branch was audited.
        branch: The staging branch.
        base: Snapshot id that main must still have; None if it must not exist.
        properties: Table properties to set.
    """
    from pyiceberg.table.update import (
        AssertRefSnapshotId,
        AssertTableUUID,
        RemoveSnapshotRefUpdate,
        SetPropertiesUpdate,
        SetSnapshotRefUpdate,
    )

    audited = table.metadata.refs[branch].snapshot_id
    requirements = (
        AssertTableUUID(uuid=table.metadata.table_uuid),
        AssertRefSnapshotId(ref="main", snapshot_id=base),
        AssertRefSnapshotId(ref=branch, snapshot_id=audited),
    )
    reference = partial(SetSnapshotRefUpdate, max_ref_age_ms=None, max_snapshot_age_ms=None, min_snapshots_to_keep=None)
    updates: tuple[TableUpdate, ...] = (
        reference(ref_name="main", type="branch", snapshot_id=audited),
        RemoveSnapshotRefUpdate(ref_name=branch),
    )
    snapshot = table.snapshot_by_id(audited)
    assert snapshot is not None
    batch, is_replay = batch_of(snapshot), REPLAY in summary_of(snapshot)
    if is_replay:
        updates += (reference(ref_name=naming.REPLAY_TAG, type="tag", snapshot_id=audited),)
    if batch:
        updates += (reference(ref_name=naming.OFFSETS_TAG, type="tag", snapshot_id=audited),)
        if naming.REPLAY_TAG in table.metadata.refs:
            updates += (RemoveSnapshotRefUpdate(ref_name=naming.REPLAY_TAG),)
    if is_replay or (batch and _may_repeat(table, batch)):
        properties = {REPLAYS: str(int(table.properties.get(REPLAYS, 0)) + 1), **properties}
    if properties:
        updates += (SetPropertiesUpdate(updates=dict(properties)),)
    return requirements, updates


def _may_repeat(table: Table, batch: Batch) -> bool:
    """Return whether a batch may have records that were read before.

    The offsets of the first batch after a rollback do not show it: an operator, or `start`, may skip the records of the
    batches that main lacks since.
    """
    tagged = table.snapshot_by_name(naming.OFFSETS_TAG)
    newest = batch_of(tagged) if tagged else None
    if tagged is None or newest is None:
        return False
    return batch.ends_before(newest) or _is_rolled_back(table, tagged.snapshot_id)


def _is_rolled_back(table: Table, newest_batch: int) -> bool:
    """Return whether main may lack the newest batch ever published, given by its snapshot, or a replay after it."""
    replay = table.metadata.refs.get(naming.REPLAY_TAG)
    missing = {newest_batch} | ({replay.snapshot_id} if replay else set())
    try:
        for snapshot in full_history(table):
            missing.discard(snapshot.snapshot_id)
            if batch_of(snapshot):
                break
    except UnclearState:
        return True
    return bool(missing)
