"""Judges what readers show: snapshots that were the head of main, and none that is older than what they showed."""

from __future__ import annotations

from collections.abc import Callable

from pyiceberg.table.metadata import TableMetadata

from lakehouse.core.table_protocol import TOKEN


class ReaderOracle:
    """The heads of main of each table, and what each reader shows of them.

    Attributes:
        violations: Broken promises, as sentences.
        published: The heads of main of each table in the order in which they were published.
        shown: The index in `published` of what each reader shows of each table.
        may_move_back: The readers that may show an older snapshot.
    """

    def __init__(self, metadata_at: Callable[[str], TableMetadata], violations: list[str]):
        self._metadata_at, self.violations = metadata_at, violations
        self.published: dict[str, list[int]] = {}
        self.shown: dict[tuple[str, str], int] = {}
        # A REST catalog does not compare what a request replaces (resources/iceberg/rest_catalog.py).
        self.may_move_back = {"rest"}

    def committed(self, table: str, before: TableMetadata | None, after: TableMetadata) -> bool:
        """Note the head of main after a commit, and return whether it is a new one."""
        head = after.current_snapshot_id
        is_moved = head is not None and (before is None or before.current_snapshot_id != head)
        if head is None or not is_moved or table.endswith("__dead_letters"):
            return False
        self.published.setdefault(table, []).append(head)
        return True

    def on_shown(self, reader: str, table: str, location: str | None) -> None:
        """Judge what a reader shows from now on; None if it lacks the table."""
        if location is None:
            return
        head = self._metadata_at(location).current_snapshot_id
        published, key = self.published.get(table, []), (reader, table)
        if head not in published:
            self.violations.append(f"{reader} shows snapshot {head} of {table}, which was never the head of main")
            return
        position = len(published) - 1 - published[::-1].index(head)
        if position < self.shown.get(key, 0) and reader not in self.may_move_back:
            self.violations.append(f"{key} moved back from snapshot {self.shown[key]} to {position}")
        self.may_move_back -= {"glue", "snowflake"} & {reader}
        self.shown[key] = position


def newest_batch(table: TableMetadata) -> str:
    """Return the token of the newest batch on main."""
    snapshot = table.current_snapshot()
    while snapshot and snapshot.summary and TOKEN not in snapshot.summary.additional_properties:
        snapshot = table.snapshot_by_id(snapshot.parent_snapshot_id or 0)
    return snapshot.summary.additional_properties[TOKEN] if snapshot and snapshot.summary else ""
