"""The Iceberg commit that publishes a staging branch."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import TYPE_CHECKING

from lakehouse.core.errors import UnclearState
from lakehouse.core.offsets.batch import REPLAYS
from lakehouse.core.tables import naming
from resources.iceberg.snapshots import batch_of, full_history

if TYPE_CHECKING:
    from pyiceberg.table import Table
    from pyiceberg.table.snapshots import Snapshot
    from pyiceberg.table.update import TableRequirement, TableUpdate


def publication(
    table: Table, branch: str, base: int | None, properties: Mapping[str, str]
) -> tuple[tuple[TableRequirement, ...], tuple[TableUpdate, ...]]:
    """Return the requirements and updates (Iceberg REST specification: CommitTableRequest) that publish a branch.

    The commit makes the head of the branch the head of main, drops the branch and sets the properties. The offsets tag
    moves with main if the branch contains a batch. Two kinds of batches are counted as replays: the first one after a
    rollback, and one that ends before the newest batch ever published.

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
    snapshot, tagged = table.snapshot_by_id(audited), table.snapshot_by_name(naming.OFFSETS_TAG)
    if snapshot and (batch := batch_of(snapshot)):
        newest = batch_of(tagged) if tagged else None
        if tagged and newest and (batch.ends_before(newest) or _is_rolled_back(table, tagged)):
            properties = {REPLAYS: str(int(table.properties.get(REPLAYS, 0)) + 1), **properties}
        updates += (reference(ref_name=naming.OFFSETS_TAG, type="tag", snapshot_id=audited),)
    if properties:
        updates += (SetPropertiesUpdate(updates=dict(properties)),)
    return requirements, updates


def _is_rolled_back(table: Table, tagged: Snapshot) -> bool:
    """Return whether main may lack the newest batch ever published, which the offsets tag names.

    The offsets of the next batch do not show it: an operator, or `start`, may skip the records of that batch.
    """
    try:
        newest = next((snapshot for snapshot in full_history(table) if batch_of(snapshot)), None)
    except UnclearState:
        return True
    return newest is None or newest.snapshot_id != tagged.snapshot_id
