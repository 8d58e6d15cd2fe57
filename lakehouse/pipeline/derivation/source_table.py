"""A table that a topic is derived from, and the order in which the tables of its source are."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from pyiceberg.table import Table

from lakehouse.config.model import Topic
from lakehouse.core.tables import metadata_columns
from lakehouse.core.tables.naming import TableRef
from lakehouse.pipeline.clients import Clients
from lakehouse.pipeline.derivation.derived_topic import DerivedTopic
from lakehouse.pipeline.engine import Engine
from lakehouse.pipeline.engine_values import SnapshotRows
from lakehouse.pipeline.schemas import recorded_settings
from lakehouse.pipeline.schemas.schema_decision import require_naming
from lakehouse.pipeline.table_location import catalog_of
from resources.iceberg.bookmarked_table import is_continued
from resources.iceberg.table_chain import TableChain, has_rows_of


@dataclass(frozen=True)
class SourceTable:
    """A table of a source at one snapshot of main, and the engine that reads it."""

    topic: Topic
    """The source."""
    chain: TableChain
    """The tables of the source."""
    table: Table
    rows: SnapshotRows
    """The rows of main when the table was loaded."""
    engine: Engine

    @staticmethod
    def of(source: Topic, chain: TableChain, ref: TableRef, table: Table, engine: Engine) -> SourceTable:
        """Return a table that has a snapshot of main."""
        snapshot = table.current_snapshot()
        assert snapshot is not None
        names = source.metadata.names
        if not source.is_ingested:
            columns = (*metadata_columns.registered(), *metadata_columns.TABLEFLOW_ONLY)
            names = metadata_columns.names(columns, source.metadata.naming)
        return SourceTable(source, chain, table, SnapshotRows(ref, snapshot.snapshot_id, names), engine)

    @property
    def snapshot_id(self) -> int:
        """The snapshot of main when the table was loaded."""
        return self.rows.snapshot_id

    @property
    def uuid(self) -> str:
        """The Iceberg UUID of the table."""
        return str(self.table.metadata.table_uuid)

    def rows_of(self, snapshot_id: int) -> SnapshotRows:
        """Return the rows of a snapshot of the table."""
        return replace(self.rows, snapshot_id=snapshot_id)

    def closed_rows(self) -> list[SnapshotRows]:
        """Return the rows of the tables that the newest one of the chain continues."""
        current = [(ref, table.current_snapshot()) for ref, table in self.chain.closed]
        return [SnapshotRows(ref, snapshot.snapshot_id, self.rows.names) for ref, snapshot in current if snapshot]

    def has(self, snapshot_id: int) -> bool:
        """Return whether the table still has a snapshot, on main or not."""
        return self.table.snapshot_by_id(snapshot_id) is not None


def newest_source_table(source: Topic, chain: TableChain, clients: Clients) -> SourceTable | None:
    """Return the newest table of a chain; None if it has no snapshot.

    Raises:
        SchemaError: The rows of the table were made with other settings, or it has other names of metadata columns.
    """
    ref, table = chain.newest
    if table is None or table.current_snapshot() is None:
        return None
    if not source.is_ingested:
        require_naming(source, table.schema(), str(ref))
    elif not is_continued(table):
        # The rows of a table that another one continues do not change, and their metadata columns have the same names.
        recorded_settings.require_ingestible(source, table)
    engine = clients.engine_of(catalog_of(source, clients))
    return SourceTable.of(source, chain, ref, table, engine)


def source_chains(target: DerivedTopic) -> Iterator[TableChain]:
    """Yield the tables from which a derived topic lacks rows, in order, each as the newest one of a chain.

    Only a source that rolled over has several. The first one is the table of the bookmark, and the last one may not
    exist yet. Groups are derived from all tables again if the source topic was recreated, or the table of the bookmark
    dropped, or closed after a rollback: those that had rows which no table has any more may have other rows in a table
    before it.

    Raises:
        UnclearState: An earlier release created one of the tables.
        Unreachable: A system does not answer.
    """
    chain = target.chain()
    bookmark = target.read_bookmark(chain) if chain.closed else None
    if bookmark is None:
        return chain.since(None)
    last = chain.last_batch if target.derived.group_by else None
    if last is not None and not (bookmark.is_of(last) and has_rows_of(chain, bookmark)):
        return chain.since(None)
    return chain.since(bookmark.table_uuid)
