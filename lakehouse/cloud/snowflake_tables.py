"""The Iceberg tables of a deployment in Snowflake, over those that Glue has."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from lakehouse.cloud.snowflake_session import Administrator
from lakehouse.cloud.step import Found, Step
from lakehouse.errors import UnclearState
from resources import snowflake_sql as sql
from resources.aws import Glue


@dataclass(frozen=True)
class Source:
    """A table in Glue, and the name that it gets in Snowflake."""

    name: str
    glue_table: str


@dataclass(frozen=True)
class Tables:
    """What there is: full names of the deployment's tables in Snowflake, and what Glue has that Snowflake lacks."""

    there: tuple[tuple[str, str, str], ...]
    lacking: tuple[Source, ...]


@dataclass(frozen=True)
class IcebergTables(Step):
    """A table for each declared topic that Glue has by now. The others are left to the lakehouse when it runs.

    The deployment's tables are those on its external volume, also those that the lakehouse made: a volume cannot be
    dropped while one of them is there.
    """

    name: str
    administrator: Administrator
    glue: Glue
    glue_database: Callable[[Found], str]
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
        there = tuple(sorted(name for name, ours in on_volume.items() if ours))
        glue_database = self.glue_database(found)
        lacking = tuple(
            source
            for source in self.sources
            if (self.database, self.schema, source.name) not in there
            and self.glue.registration(glue_database, source.glue_table)
        )
        return Tables(there, lacking)

    def create(self, found: Found) -> Tables:
        """Make those that Glue has."""
        return self.change(found, self.find(found))

    def differences(self, found: Found, it: Tables) -> list[str]:
        """Those that Glue has and Snowflake lacks."""
        return [f"{source.name} is missing" for source in it.lacking]

    def change(self, found: Found, it: Tables) -> Tables:
        """Make those that are missing."""
        with self.administrator.acting_as(self.role, self.warehouse):
            for source in it.lacking:
                self.administrator.change(
                    sql.create_iceberg_table(
                        self.database,
                        self.schema,
                        source.name,
                        volume=self.volume,
                        integration=self.integration,
                        glue_database=self.glue_database(found),
                        glue_table=source.glue_table,
                        auto_refresh=True,
                        comment=self.administrator.comment,
                    )
                )
        return self.find(found)

    def delete(self, found: Found, it: Tables) -> None:
        """Drop all on the volume; Glue and the files stay as they are."""
        for name in it.there:
            self.administrator.change(sql.drop("ICEBERG TABLE", *name))

    def kept(self, found: Found, it: Tables) -> str:
        """There may be none."""
        return "" if it.there else "there are none"
