"""The Iceberg tables of a deployment in Snowflake, over those that a catalog has: Glue, or a REST catalog."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from lakehouse.core.errors import UnclearState
from lakehouse.deploy.resource import Outputs, Resource, Updatable
from lakehouse.deploy.snowflake.objects import Container, ExternalVolume, SnowflakeResource, namespace_of
from resources.confluent.clusters import Cluster
from resources.snowflake import snowflake_sql as sql
from resources.snowflake.snowflake_responses import Row, text_of, value_of


@dataclass(frozen=True)
class Source:
    """A table in the catalog, and its name in Snowflake."""

    name: str
    catalog_table: str


TableNames = tuple[tuple[str, str, str], ...]
"""Full names of the deployment's tables in Snowflake."""


@dataclass(frozen=True, kw_only=True, repr=False)
class IcebergTables(SnowflakeResource[TableNames], Updatable[TableNames]):
    """A table for each declared topic that the catalog has by now. The others are created later, by `create` or by the
    running lakehouse.

    The deployment's tables are those on its external volume, also those that the lakehouse created: a volume cannot be
    dropped while it has a table.
    """

    is_registered: Callable[[str, str], bool]
    """Returns whether the catalog has a table, by its namespace and name."""
    namespace: str | Resource[Cluster]
    """The catalog's namespace: a name, or the Kafka cluster whose id Tableflow uses as the name."""
    sources: tuple[Source, ...]
    schema: Container
    role: str
    """Owns the tables, as it must to refresh them (Snowflake, ALTER ICEBERG TABLE ... REFRESH)."""
    warehouse: str
    volume: ExternalVolume
    integration: str
    after: tuple[Resource[Any], ...]
    """The integration."""

    @property
    def label(self) -> str:
        """The tables with their schema."""
        return f"Snowflake Iceberg tables in {'.'.join(self.schema.identifier)}"

    def read(self, outputs: Outputs) -> TableNames:
        """List the tables. Never None: some alone are not all.

        Raises:
            UnclearState: A table of a topic's name is on another volume.
        """
        [database, schema], [volume] = self.schema.identifier, self.volume.identifier
        volumes = self.administrator.read(sql.show_iceberg_tables(database), _volumes)
        on_volume = {name: used == volume for name, used in volumes.items()}
        for source in self.sources:
            if on_volume.get((database, schema, source.name)) is False:
                raise UnclearState(
                    f"Snowflake has an Iceberg table {database}.{schema}.{source.name} that is not on the external "
                    f"volume {volume}. It was left unchanged. Rename or drop it"
                )
        return tuple(sorted(name for name, is_on_volume in on_volume.items() if is_on_volume))

    def create(self, outputs: Outputs) -> TableNames:
        """Create the tables that the catalog has."""
        return self.update(outputs, self.read(outputs))

    def diff(self, outputs: Outputs, current: TableNames) -> list[str]:
        """List the tables that the catalog has and Snowflake lacks."""
        return [f"{source.name} is missing" for source in self._missing(outputs, current)]

    def update(self, outputs: Outputs, current: TableNames) -> TableNames:
        """Create the missing tables."""
        missing = self._missing(outputs, current)
        database, schema = self.schema.identifier
        with self.administrator.acting_as(self.role, self.warehouse):
            for source in missing:
                self.administrator.change(
                    sql.create_iceberg_table(
                        database,
                        schema,
                        source.name,
                        volume=self.volume.identifier[0],
                        integration=self.integration,
                        namespace=namespace_of(self.namespace, outputs),
                        catalog_table=source.catalog_table,
                        auto_refresh=True,
                        comment=self.administrator.comment,
                    )
                )
        return self.read(outputs)

    def delete(self, outputs: Outputs, current: TableNames) -> None:
        """Drop all tables on the volume; the catalog and the files are unchanged."""
        for name in current:
            self.administrator.change(sql.drop("ICEBERG TABLE", *name))

    def retained(self, outputs: Outputs, current: TableNames) -> str:
        """Report that the catalog has no tables, if so."""
        return "" if current else "there are none"

    def _missing(self, outputs: Outputs, current: TableNames) -> list[Source]:
        # Not part of `read`: a catalog that does not answer must not keep a deletion from finding the tables.
        namespace = namespace_of(self.namespace, outputs)
        return [
            source
            for source in self.sources
            if (*self.schema.identifier, source.name) not in current
            and self.is_registered(namespace, source.catalog_table)
        ]


def _volumes(rows: list[Row]) -> dict[tuple[str, str, str], str | None]:
    """Return the external volume of each table, by the table's full name."""

    def name(row: Row) -> tuple[str, str, str]:
        return text_of(row, "database_name"), text_of(row, "schema_name"), text_of(row, "name")

    return {name(row): value_of(row, "external_volume_name") for row in rows}
