"""Snowflake: an Iceberg table over the Glue registration, refreshed to what Glue exposes."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from lakehouse.config.topic import Topic
from lakehouse.core import naming
from lakehouse.core.errors import LakehouseError
from lakehouse.core.sql import SNOWFLAKE
from lakehouse.readers.reader import Publish, Reader, Registration

if TYPE_CHECKING:
    from pyiceberg.table import Table

    from lakehouse.readers.truth import Answer

ATTEMPTS = 3


class SnowflakeReader(Reader):
    """An Iceberg table of Snowflake's, and the objects of the account that it needs."""

    name = "snowflake"
    label = "Snowflake"
    resource = "snowflake"
    is_optional = False
    upstream = "glue"
    engine = "Snowflake"
    kinds = frozenset({"snowflake", "iceberg"})
    description = "An Iceberg table in Snowflake over Glue's registration."
    check = "same_as_iceberg"
    check_description = "Snowflake shows a published snapshot, not an old one, and as many rows as Iceberg has in it."
    is_blocking = False
    min_interval_seconds = 3.0
    """Refreshes cost credits. A commit that arrives in between is shown by the next one."""

    def publish(self, namespace: str, topic: Topic, table: Table, clients: Any) -> Registration:
        """Create the table and what it needs, where they are missing, and refresh it."""
        clients.snowflake.ensure_account_objects(clients.catalog.warehouse)
        clients.snowflake.ensure_iceberg_table(namespace, topic.table, namespace, topic.table)
        clients.snowflake.take_over(namespace, topic.table)
        clients.snowflake.refresh(namespace, topic.table)
        return self.require(namespace, topic, clients, count=True)

    def current(self, namespace: str, topic: Topic, clients: Any) -> Registration | None:
        """Return the metadata file that Snowflake reads. No warehouse works for it."""
        location = clients.snowflake.metadata_location(namespace, topic.table)
        return _registration(location, clients) if location else None

    def counted(self, namespace: str, topic: Topic, clients: Any) -> Registration | None:
        """Return the metadata file and the number of rows, which a warehouse counts."""
        state = clients.snowflake.table_state(namespace, topic.table)
        return _registration(state.metadata_location, clients, state.row_count) if state else None

    def dataset(self, namespace: str, topic: Topic, clients: Any) -> tuple[str, str]:
        """Return the account, and the table by database and schema."""
        table = f"{naming.snowflake_name(clients.snowflake.database)}.{self.table_name(namespace, topic.table)}"
        return f"snowflake://{clients.snowflake.account_identifier}", table

    def table_name(self, namespace: str, table: str) -> str:
        """Return schema and table as Snowflake spells them."""
        return f"{naming.snowflake_name(namespace)}.{naming.snowflake_name(table)}"

    @contextmanager
    def session(self, namespace: str, clients: Any) -> Iterator[Publish]:
        """Keep one connection, and only refresh tables that were created or found before."""
        ready: set[str] = set()

        def publish(topic: Topic, table: Table) -> Registration:
            if topic.table not in ready:
                registration = self.publish(namespace, topic, table, clients)
                ready.add(topic.table)
                return registration
            clients.snowflake.refresh(namespace, topic.table)
            return Registration(table.metadata_location, table.metadata.current_snapshot_id)

        with clients.snowflake.staying():
            yield publish

    def answer(self, namespace: str, topic: Topic, clients: Any) -> Answer:
        """Count and sum in SQL, again where the table was refreshed meanwhile."""
        from lakehouse.readers.metadata_file import scales, served
        from lakehouse.readers.truth import Answer

        parts = (clients.snowflake.database, namespace, topic.table)
        name = SNOWFLAKE.identifier(*map(naming.snowflake_name, parts))
        for _ in range(ATTEMPTS):
            before = self.require(namespace, topic, clients)
            table, snapshot_id = served(self.label, topic, before.metadata_location, clients)
            columns = scales(namespace, topic, table, clients)
            quoted = {column: SNOWFLAKE.identifier(naming.snowflake_name(column)) for column in columns}
            sums = "".join(f", SUM({quoted[column]}::NUMBER(38,{scale}))" for column, scale in columns.items())
            _, [row] = clients.snowflake.query(f"SELECT COUNT(*){sums} FROM {name}")  # noqa: S608 (all quoted)
            after = self.current(namespace, topic, clients)
            if after and after.metadata_location == before.metadata_location:
                return Answer.of(self.engine, snapshot_id, columns, row)
        raise LakehouseError(
            f"Snowflake's table of '{topic.name}' was refreshed each time it was asked. Check it again"
        )


def _registration(location: str, clients: Any, rows: int | None = None) -> Registration:
    from resources.catalog import snapshot_at

    return Registration(location, snapshot_at(clients.catalog, location), rows)
