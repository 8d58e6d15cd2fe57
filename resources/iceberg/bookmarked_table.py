"""The state of a source's table that bookmarks record, and the properties that decide what a bookmark covers."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lakehouse.core.offsets.batch import Batch, Positions
from lakehouse.core.offsets.bookmark import Bookmark
from lakehouse.core.table_protocol import IDENTITY, RECREATED, REPLAYS, SUCCESSOR

if TYPE_CHECKING:
    from pyiceberg.table import Table


def bookmark_of(
    source: Batch, target_id: str, table: Table, offsets: Positions, entry: str, reason: str = ""
) -> Bookmark:
    """Return a bookmark of an entry at the current snapshot of the table of a source."""
    snapshot = table.current_snapshot()
    assert snapshot is not None
    uuid, name = str(table.metadata.table_uuid), ".".join(table.name())
    identity = *source.identity, target_id, identity_of(table), name, entry, uuid
    return Bookmark(*identity, snapshot.snapshot_id, replays(table), offsets, reason)


def identity_of(table: Table) -> str:
    """Return the identity of a table: the UUID of the first of the tables that continue each other.

    A table has it as a property from its first publication on, and one that continues another from its creation on, so
    that it does not depend on the name, the catalog or the address of the table.
    """
    return table.properties.get(IDENTITY) or str(table.metadata.table_uuid)


def replays(table: Table) -> int:
    """Return the number of times that rows may have been added behind the position of a derived topic."""
    return int(table.properties.get(REPLAYS, 0))


def is_continued(table: Table) -> bool:
    """Return whether another table continues it, so that it receives no further records."""
    return SUCCESSOR in table.properties


def has_recreated_topic(table: Table) -> bool:
    """Return whether it has rows of a topic that was recreated, so that an offset does not identify a row."""
    return RECREATED in table.properties
