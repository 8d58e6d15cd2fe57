"""Snowflake: an Iceberg table over the Glue registration, refreshed to the state that Glue exposes; or a database that
Snowflake links to the REST catalog of the tables, and keeps up to date itself."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING

from lakehouse.config.model import Topic
from lakehouse.core.errors import ConfigError, LakehouseError
from lakehouse.core.polling import poll
from lakehouse.core.sql import SNOWFLAKE
from lakehouse.core.tables import naming
from lakehouse.core.tables.naming import TableRef
from lakehouse.readers.engine_totals import TableTotals
from lakehouse.readers.reader import Publish, Reader, Registration
from resources.iceberg.snapshots import history
from resources.protocols import Resources, resource_of
from resources.snowflake.snowflake import LINKED, Snowflake

if TYPE_CHECKING:
    from pyiceberg.table import Table

ATTEMPTS = 3

POLL_SECONDS = 3.0
MAX_WAIT_SECONDS = 600.0
"""Limit of the time in which Snowflake is expected to show a snapshot. It looks for new tables and new snapshots every
30 seconds by default."""


class SnowflakeReader(Reader):
    """Creates and refreshes an Iceberg table in Snowflake, and the account objects that it needs."""

    name = "snowflake"
    label = "Snowflake"
    resource = "snowflake"
    upstream = "glue"
    engine = "Snowflake"
    kinds = frozenset({"snowflake", "iceberg"})
    description = "An Iceberg table in Snowflake over Glue's registration."
    check = "matches_iceberg"
    check_description = "Snowflake exposes a published snapshot that is not outdated, with as many rows as Iceberg."
    is_blocking = False
    min_interval_seconds = 3.0
    """Each refresh costs credits. Commits within the interval are exposed by the next refresh."""

    def of_environment(self, systems: Mapping[str, Mapping[str, object]]) -> Reader:
        if not systems[self.resource].get(LINKED):
            return self
        catalog = systems.get("catalog", {}).get("type", "sql")
        if catalog != "rest" and isinstance(catalog, str):
            raise ConfigError(
                f"`{LINKED}` shows the tables of a REST catalog, and the environment has a catalog of type {catalog}. "
                f"Nothing was changed. Remove `{LINKED}`, and add the settings of Glue"
            )
        return LinkedSnowflakeReader()

    def publish(self, topic: Topic, ref: TableRef, table: Table, resources: Resources) -> Registration:
        snowflake = _snowflake(resources)
        snowflake.ensure_account_objects(resources.catalog.folder(table))
        volume = "" if topic.is_ingested else snowflake.tableflow_external_volume
        snowflake.ensure_iceberg_table(*ref.shown, *ref.identifier, volume=volume)
        snowflake.disable_auto_refresh(*ref.shown)
        snowflake.refresh(*ref.shown)
        return self.require(topic, ref, resources, count=True)

    def current(self, ref: TableRef, resources: Resources) -> Registration | None:
        # This uses no warehouse.
        location = _snowflake(resources).metadata_location(*ref.shown)
        return Registration.of(location, ref, resources) if location else None

    def counted(self, ref: TableRef, resources: Resources) -> Registration | None:
        # The number of rows requires a warehouse.
        state = _snowflake(resources).table_state(*ref.shown)
        return Registration.of(state.metadata_location, ref, resources, state.row_count) if state else None

    def dataset(self, ref: TableRef, resources: Resources) -> tuple[str, str]:
        snowflake = _snowflake(resources)
        table = ".".join((snowflake.database, *map(snowflake.stored_name, ref.shown)))
        return f"snowflake://{snowflake.account_identifier}", table

    def table_name(self, ref: TableRef) -> str:
        return naming.snowflake_name(str(ref))

    @contextmanager
    def session(self, resources: Resources) -> Iterator[Publish]:
        # One connection stays open, and tables that this session has already created or looked up are only refreshed.
        ready: set[TableRef] = set()
        snowflake = _snowflake(resources)

        def publish(topic: Topic, ref: TableRef, table: Table) -> Registration:
            if ref not in ready:
                registration = self.publish(topic, ref, table, resources)
                ready.add(ref)
                return registration
            snowflake.refresh(*ref.shown)
            return Registration(table.metadata_location, table.metadata.current_snapshot_id)

        with snowflake.keep_session():
            yield publish

    def query_totals(self, topic: Topic, ref: TableRef, resources: Resources) -> TableTotals:
        from lakehouse.readers.engine_totals import scales, served

        snowflake = _snowflake(resources)
        name = SNOWFLAKE.identifier(snowflake.database, *map(snowflake.stored_name, ref.shown))
        # The query is repeated if the table was refreshed meanwhile.
        for _ in range(ATTEMPTS):
            before = self.require(topic, ref, resources)
            table, snapshot_id = served(self.label, topic, ref, before.metadata_location, resources)
            columns = scales(topic, ref, table, resources)
            quoted = {column: SNOWFLAKE.identifier(snowflake.stored_name(column)) for column in columns}
            sums = "".join(f", SUM({quoted[column]}::NUMBER(38,{scale}))" for column, scale in columns.items())
            _, [row] = snowflake.query(f"SELECT COUNT(*){sums} FROM {name}")  # noqa: S608 (all quoted)
            after = self.current(ref, resources)
            if after and after.metadata_location == before.metadata_location:
                return TableTotals.of(self.engine, snapshot_id, columns, row)
        raise LakehouseError(
            f"Snowflake's table of '{topic.name}' was refreshed during each of {ATTEMPTS} queries. Nothing was "
            f"compared. Run the check again"
        )


class LinkedSnowflakeReader(SnowflakeReader):
    """Creates the linked database, and waits until Snowflake shows what is published in the catalog."""

    upstream = "iceberg"
    description = "The Iceberg table in a Snowflake database that is linked to the REST catalog."

    def publish(self, topic: Topic, ref: TableRef, table: Table, resources: Resources) -> Registration:
        snowflake = _snowflake(resources)
        snowflake.ensure_linked_database(ref.namespace)

        def look() -> tuple[bool, list[str]]:
            is_shown = _is_shown(self.current(ref, resources), ref, table, resources)
            return is_shown, [] if is_shown else snowflake.link_failures(*ref.shown)

        seconds = min(topic.max_lag_seconds, MAX_WAIT_SECONDS)
        is_shown, failures = poll(look, pause=POLL_SECONDS, deadline_seconds=seconds, until=any)
        if not is_shown:
            shown, reason = self.current(ref, resources), "; ".join(failures)
            state = f"snapshot {shown.snapshot_id}" if shown else "no such table"
            raise LakehouseError(
                f"Snowflake's database {snowflake.database} does not show snapshot {table.metadata.current_snapshot_id}"
                f" of {ref}, but {state}{reason and f' ({reason})'}. The table itself is published. Check "
                f"SYSTEM$CATALOG_LINK_STATUS('{snowflake.database}') and SHOW ICEBERG TABLES in Snowflake, then "
                f"materialize {topic.name}/{self.name}"
            )
        return self.require(topic, ref, resources, count=True)

    @contextmanager
    def session(self, resources: Resources) -> Iterator[Publish]:
        with _snowflake(resources).keep_session():
            yield lambda topic, ref, table: self.publish(topic, ref, table, resources)


def _is_shown(shown: Registration | None, ref: TableRef, table: Table, resources: Resources) -> bool:
    """Return whether Snowflake shows the snapshot of a table as it was loaded, or a later one."""
    published = table.metadata.current_snapshot_id
    if shown is None or shown.snapshot_id == published:
        return shown is not None
    newest = resources.catalog.load(ref)
    line = [snapshot.snapshot_id for snapshot in history(newest)] if newest else []
    # After a rollback behind it, no snapshot of main is later.
    return published in line and shown.snapshot_id in line[: line.index(published)]


def _snowflake(resources: Resources) -> Snowflake:
    return resource_of(resources, SnowflakeReader.resource, Snowflake)
