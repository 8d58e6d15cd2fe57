"""The Iceberg tables of a deployment in Snowflake, over those that a catalog has: Glue, or a REST catalog."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from lakehouse.core.errors import UnclearState
from lakehouse.deploy.snowflake.session import Administrator
from lakehouse.deploy.step import Found, Step
from resources import snowflake_sql as sql


@dataclass(frozen=True)
class Source:
    """A table in the catalog, and the name that it gets in Snowflake."""

    name: str
    catalog_table: str


Tables = tuple[tuple[str, str, str], ...]
"""Full names of the deployment's tables in Snowflake."""


@dataclass(frozen=True)
class IcebergTables(Step):
    """A table for each declared topic that the catalog has by now. The others come with the next `create`, or with the
    lakehouse when it runs.

    The deployment's tables are those on its external volume, also those that the lakehouse made: a volume cannot be
    dropped while one of them is there.
    """

    name: str
    administrator: Administrator
    is_registered: Callable[[str, str], bool]
    """Whether the catalog has a table, by its namespace and name."""
    namespace: Callable[[Found], str]
    """In the catalog."""
    sources: tuple[Source, ...]
    database: str
    schema: str
    role: str
    """Will own them, as it must to refresh them (Snowflake, ALTER ICEBERG TABLE ... REFRESH)."""
    warehouse: str
    volume: str
    integration: str
    needs: tuple[str, ...] = ()

    @property
    def what(self) -> str:
        """Where they are."""
        return f"Snowflake Iceberg tables in {self.database}.{self.schema}"

    def find(self, found: Found) -> Tables:
        """Never None: some alone are not all.

        Raises: UnclearState when a topic's name is taken by a table on another volume.
        """
        shown = self.administrator.rows(sql.show_iceberg_tables(self.database))
        on_volume = {
            (row["database_name"], row["schema_name"], row["name"]): row["external_volume_name"] == self.volume
            for row in shown
        }
        for source in self.sources:
            if on_volume.get((self.database, self.schema, source.name)) is False:
                raise UnclearState(
                    f"Snowflake has an Iceberg table {self.database}.{self.schema}.{source.name} that is not on the "
                    f"external volume {self.volume}. It was left untouched. Rename or drop it"
                )
        return tuple(sorted(name for name, ours in on_volume.items() if ours))

    def create(self, found: Found) -> Tables:
        """Make those that the catalog has."""
        return self.change(found, self.find(found))

    def differences(self, found: Found, it: Tables) -> list[str]:
        """Those that the catalog has and Snowflake lacks."""
        return [f"{source.name} is missing" for source in self._lacking(found, it)]

    def change(self, found: Found, it: Tables) -> Tables:
        """Make those that are missing."""
        lacking = self._lacking(found, it)
        with self.administrator.acting_as(self.role, self.warehouse):
            for source in lacking:
                self.administrator.change(
                    sql.create_iceberg_table(
                        self.database,
                        self.schema,
                        source.name,
                        volume=self.volume,
                        integration=self.integration,
                        namespace=self.namespace(found),
                        catalog_table=source.catalog_table,
                        auto_refresh=True,
                        comment=self.administrator.comment,
                    )
                )
        return self.find(found)

    def delete(self, found: Found, it: Tables) -> None:
        """Drop all on the volume; the catalog and the files stay as they are."""
        for name in it:
            self.administrator.change(sql.drop("ICEBERG TABLE", *name))

    def kept(self, found: Found, it: Tables) -> str:
        """There may be none."""
        return "" if it else "there are none"

    def _lacking(self, found: Found, it: Tables) -> list[Source]:
        # Not asked by `find`: a catalog that does not answer must not keep a deletion from finding the tables.
        namespace = self.namespace(found)
        return [
            source
            for source in self.sources
            if (self.database, self.schema, source.name) not in it
            and self.is_registered(namespace, source.catalog_table)
        ]
