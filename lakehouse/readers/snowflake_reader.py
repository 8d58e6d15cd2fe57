"""Snowflake: an Iceberg table over the Glue registration, refreshed to the state that Glue exposes."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from lakehouse.config.topic import Topic
from lakehouse.core.errors import LakehouseError
from lakehouse.core.sql.quoting import SNOWFLAKE
from lakehouse.core.tables import naming
from lakehouse.core.tables.table_ref import TableRef
from lakehouse.readers.engine_totals import TableTotals
from lakehouse.readers.reader import Publish, Reader, Registration
from resources.iceberg.snapshots import snapshot_at

if TYPE_CHECKING:
    from pyiceberg.table import Table

    from lakehouse.readers.engine_totals import TableTotals

ATTEMPTS = 3


class SnowflakeReader(Reader):
    """Creates and refreshes an Iceberg table in Snowflake, and the account objects that it needs."""

    name = "snowflake"
    label = "Snowflake"
    resource = "snowflake"
    is_optional = False
    upstream = "glue"
    engine = "Snowflake"
    kinds = frozenset({"snowflake", "iceberg"})
    description = "An Iceberg table in Snowflake over Glue's registration."
    check = "matches_iceberg"
    check_description = "Snowflake exposes a published snapshot that is not outdated, with as many rows as Iceberg."
    is_blocking = False
    min_interval_seconds = 3.0
    """Each refresh costs credits. Commits within the interval are exposed by the next refresh."""

    def publish(self, topic: Topic, ref: TableRef, table: Table, clients: Any) -> Registration:
        """Create the table and the objects that it needs if they are missing, and refresh the table."""
        clients.snowflake.ensure_account_objects(clients.catalog.warehouse)
        volume = clients.snowflake.tableflow_external_volume if topic.engine == "tableflow" else ""
        clients.snowflake.ensure_iceberg_table(*ref.shown, *ref.identifier, volume=volume)
        clients.snowflake.disable_auto_refresh(*ref.shown)
        clients.snowflake.refresh(*ref.shown)
        return self.require(topic, ref, clients, count=True)

    def current(self, ref: TableRef, clients: Any) -> Registration | None:
        """Return the metadata file that Snowflake reads, without using a warehouse."""
        location = clients.snowflake.metadata_location(*ref.shown)
        return _registration(location, clients) if location else None

    def counted(self, ref: TableRef, clients: Any) -> Registration | None:
        """Return the metadata file and the number of rows, which requires a warehouse."""
        state = clients.snowflake.table_state(*ref.shown)
        return _registration(state.metadata_location, clients, state.row_count) if state else None

    def dataset(self, ref: TableRef, clients: Any) -> tuple[str, str]:
        """Return the account, and the table with its database and schema."""
        table = f"{naming.snowflake_name(clients.snowflake.database)}.{self.table_name(ref)}"
        return f"snowflake://{clients.snowflake.account_identifier}", table

    def table_name(self, ref: TableRef) -> str:
        """Return schema and table in Snowflake's spelling."""
        return naming.snowflake_name(str(ref))

    @contextmanager
    def session(self, clients: Any) -> Iterator[Publish]:
        """Keep one connection open, and only refresh the tables that this session has already created or looked up."""
        ready: set[TableRef] = set()

        def publish(topic: Topic, ref: TableRef, table: Table) -> Registration:
            if ref not in ready:
                registration = self.publish(topic, ref, table, clients)
                ready.add(ref)
                return registration
            clients.snowflake.refresh(*ref.shown)
            return Registration(table.metadata_location, table.metadata.current_snapshot_id)

        with clients.snowflake.keep_session():
            yield publish

    def query_totals(self, topic: Topic, ref: TableRef, clients: Any) -> TableTotals:
        """Count and sum in SQL; repeat the query if the table was refreshed meanwhile."""
        from lakehouse.readers.metadata_file import scales, served

        parts = (clients.snowflake.database, *ref.shown)
        name = SNOWFLAKE.identifier(*map(naming.snowflake_name, parts))
        for _ in range(ATTEMPTS):
            before = self.require(topic, ref, clients)
            table, snapshot_id = served(self.label, topic, before.metadata_location, clients)
            columns = scales(topic, ref, table, clients)
            quoted = {column: SNOWFLAKE.identifier(naming.snowflake_name(column)) for column in columns}
            sums = "".join(f", SUM({quoted[column]}::NUMBER(38,{scale}))" for column, scale in columns.items())
            _, [row] = clients.snowflake.query(f"SELECT COUNT(*){sums} FROM {name}")  # noqa: S608 (all quoted)
            after = self.current(ref, clients)
            if after and after.metadata_location == before.metadata_location:
                return TableTotals.of(self.engine, snapshot_id, columns, row)
        raise LakehouseError(
            f"Snowflake's table of '{topic.name}' was refreshed during each of {ATTEMPTS} queries. Nothing was "
            f"compared. Run the check again"
        )


def _registration(location: str, clients: Any, rows: int | None = None) -> Registration:
    return Registration(location, snapshot_at(location, clients.catalog.file_io()), rows)
