"""Rows behind a bookmark: those that were added since, and those that the table may lack now."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import reduce

from lakehouse.core.offsets.batch import Positions, furthest, nearest
from lakehouse.core.offsets.bookmark import Bookmark
from lakehouse.pipeline.derivation.positions import Position
from lakehouse.pipeline.derivation.source_table import SourceTable
from lakehouse.pipeline.engine_values import Ends, LateRows
from resources.iceberg.bookmarked_table import has_recreated_topic
from resources.iceberg.snapshots import history, may_lack_rows_of


@dataclass(frozen=True)
class DerivedSnapshots:
    """Snapshots of a table of which rows were derived, with the offsets before which those are."""

    known: Mapping[int, Positions]
    """Those that are not expired."""
    lost: Mapping[int, Positions]
    """Those whose derived rows are unknown: they are expired, or the offsets are that main had at them."""
    before: Positions
    """The offsets before which a row that none of them has is late."""

    def late_rows(self, source: SourceTable) -> LateRows:
        """Return the late rows, among which those of expired snapshots may be."""
        return LateRows(source.rows, [(source.rows_of(id_), end) for id_, end in self.known.items()], self.before)


def derived_snapshots(
    source: SourceTable, position: Position, bookmark: Bookmark, snapshots: Mapping[int, Positions]
) -> DerivedSnapshots:
    """Return what is known of the snapshots of which rows were derived.

    Args:
        source: The table.
        position: The position in it.
        bookmark: The bookmark.
        snapshots: Those of its snapshots whose rows were derived completely.
    """
    known = {id_: end for id_, end in snapshots.items() if source.has(id_)}
    lost = {id_: end for id_, end in snapshots.items() if id_ not in known}
    if bookmark.table_uuid != source.uuid:
        # Rows before the table begins are dead letters of the one before it. An operator has skipped the others.
        return DerivedSnapshots(known, lost, nearest(bookmark.offsets, source.chain.begin))
    if bookmark.snapshot_id not in known:
        return DerivedSnapshots(known, lost, bookmark.offsets)
    before = position.not_skipped(bookmark)
    if before is None:
        return DerivedSnapshots(known, lost | {bookmark.snapshot_id: bookmark.offsets}, bookmark.offsets)
    return DerivedSnapshots(known, lost, before)


def lost_rows(source: SourceTable, bookmark: Bookmark, *, is_restorable: bool) -> Mapping[int, Positions]:
    """Return the snapshots of which rows were derived that a table may lack, with the offsets before which those are.

    These are snapshots from which the table was rolled back, that are expired, or of which rows were deleted. A replay
    may add their rows again, which must not be derived twice; groups that had them must be derived again.

    Args:
        source: The table.
        bookmark: The present bookmark.
        is_restorable: Whether a replay may add rows again that a commit of main deleted, and that have been derived
            one by one.
    """
    derived = bookmark.snapshots_of(source.uuid)
    complete = {snapshot.snapshot_id for snapshot in history(source.table)}
    if is_restorable:
        # Rows of the further snapshots were deleted before.
        complete &= set() if may_lack_rows_of(source.table, bookmark.snapshot_id) else {bookmark.snapshot_id}
    checked = sorted(derived.keys() - complete)
    missing = {id_: _missing(source, id_, derived[id_]) for id_ in checked if source.has(id_)}
    lost = {id_: end for id_, end in missing.items() if end}
    if expired := [id_ for id_ in checked if not source.has(id_)]:
        # What each of them had is unknown, so one stands for all, and the bookmark does not grow.
        lost[expired[0]] = reduce(furthest, (derived[id_] for id_ in expired))
    return lost


def _missing(source: SourceTable, snapshot_id: int, end: Positions) -> Positions:
    """Return the offsets before which main may lack rows of a snapshot; none if it has all of them."""
    if has_recreated_topic(source.table):
        # Rows of both topics may have one offset, so the missing ones are unknown.
        return end
    return source.engine.count(Ends(LateRows(source.rows_of(snapshot_id), [(source.rows, end)], end)))
