"""The tables of a topic: after an incompatible schema change, another table continues the one before it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from lakehouse.core.errors import LakehouseError, UnclearState
from lakehouse.core.offsets.batch import Batch, Positions
from lakehouse.core.offsets.bookmark import Bookmark
from lakehouse.core.table_protocol import OLD_SUCCESSOR, SUCCESSOR
from lakehouse.core.tables.naming import TableRef
from resources.iceberg.bookmarked_table import identity_of, is_continued, replays
from resources.iceberg.snapshots import last_batch

if TYPE_CHECKING:
    from pyiceberg.table import Table


@dataclass(frozen=True)
class TableChain:
    """The tables of a topic as loaded at one time, in order. A topic that never rolled over has one.

    All rules about which of the tables has something are here: callers name what they need.
    """

    newest: tuple[TableRef, Table | None]
    """The table that receives new records, and None if it does not exist yet."""
    closed: tuple[tuple[TableRef, Table], ...] = ()
    """The tables before it, which receive no further rows."""

    @property
    def existing(self) -> tuple[tuple[TableRef, Table], ...]:
        """All tables that exist, in order."""
        ref, table = self.newest
        return (*self.closed, (ref, table)) if table else self.closed

    @property
    def identity(self) -> str:
        """The identity that the tables share; empty if none exists."""
        return identity_of(self.existing[0][1]) if self.existing else ""

    @property
    def published(self) -> tuple[TableRef, Table] | None:
        """The newest table that has a published snapshot, which readers show; None if none has."""
        tables = [(ref, table) for ref, table in self.existing if table.current_snapshot()]
        return tables[-1] if tables else None

    def require_published(self) -> tuple[TableRef, Table]:
        """Return the newest table that has a published snapshot."""
        if self.published is None:
            ref = self.newest[0]
            name = ref.first or ref.name
            raise LakehouseError(
                f"Table {ref.namespace}.{name} has no published snapshot. Materialize {name}/iceberg first"
            )
        return self.published

    @property
    def last_batch(self) -> Batch | None:
        """The newest batch of all tables: the next one begins where it ends. None if there is none.

        Raises:
            UnclearState: A table has rows, and its position is unknown.
        """
        return next((batch for _, table in reversed(self.existing) if (batch := last_batch(table))), None)

    @property
    def begin(self) -> Positions:
        """The offsets by partition at which the newest table begins; none if it continues no table of the same topic.

        A topic that was recreated since the roll-over has no records in the tables before.

        Raises:
            UnclearState: A table has rows, and its position is unknown.
        """
        before = next((batch for _, table in reversed(self.closed) if (batch := last_batch(table))), None)
        newest = last_batch(self.newest[1]) or before
        if before is None or newest is None:
            return {}
        return before.end if before.identity == newest.identity else {}

    def with_uuid(self, uuid: str) -> Table | None:
        """Return the table with an Iceberg UUID; None if none of them has it."""
        return next((table for _, table in self.existing if str(table.metadata.table_uuid) == uuid), None)

    def at(self, topic_id: str, offsets: Positions) -> tuple[TableRef, Table | None]:
        """Return the table that has the records from a position on; the last one with a batch if none has.

        Args:
            topic_id: Id of the topic that the position is in.
            offsets: The position by partition.

        Raises:
            UnclearState: A table has rows, and its position is unknown.
        """
        with_rows: tuple[TableRef, Table | None] = self.existing[0] if self.existing else self.newest
        for ref, table in self.existing:
            if batch := last_batch(table):
                with_rows = ref, table
                if batch.topic_id == topic_id and any(offsets.get(p, 0) < end for p, end in batch.end.items()):
                    break
        return with_rows

    def since(self, uuid: str | None) -> Iterator[TableChain]:
        """Yield the chain as it was when each table was the newest one, in order.

        Args:
            uuid: The Iceberg UUID of the table to begin with; if no closed table has it, only the whole chain follows.
                None begins with the first table.
        """
        uuids = [str(table.metadata.table_uuid) for _, table in self.closed]
        first = 0 if uuid is None else uuids.index(uuid) if uuid in uuids else len(uuids)
        for end in range(first, len(uuids)):
            yield TableChain(self.closed[end], self.closed[:end])
        yield self


def successor(first: TableRef, table: Table) -> TableRef | None:
    """Return the table that continues a table; None if none does.

    Args:
        first: The topic's first table.
        table: The table as loaded.

    Raises:
        UnclearState: An earlier release created the next table.
    """
    if old := table.properties.get(OLD_SUCCESSOR):
        raise UnclearState(
            f"Table {'.'.join(table.name())} was continued in '{old}' by an earlier release, which stored the dead "
            f"letters of each table separately. Nothing was changed. Rename or drop both tables and those of their "
            f"dead letters, and ingest the topic again"
        )
    name = table.properties.get(SUCCESSOR)
    return TableRef(first.namespace, name, first=first.name) if name else None


def has_rows_of(chain: TableChain, bookmark: Bookmark) -> bool:
    """Return whether the table of a bookmark is in a chain, and was not closed after a rollback behind the bookmark.

    A table that receives new records catches up after a rollback.
    """
    derived = chain.with_uuid(bookmark.table_uuid)
    if derived is not None and derived is chain.newest[1] and not is_continued(derived):
        return True
    last = last_batch(derived)
    is_repeated = derived is not None and replays(derived) != bookmark.replays
    return last is not None and not (is_repeated and bookmark.is_past(last.end))
