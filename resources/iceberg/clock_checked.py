"""pyiceberg's catalogs, with commits refused while this machine's clock is behind the table's history.

pyiceberg writes the local time into a table's metadata without any comparison. Iceberg's Java library, and so Spark,
Athena and Trino, refuse to read metadata whose history goes back by more than a minute
(org.apache.iceberg.TableMetadata, "Expected sorted snapshot log entries"), and nothing repairs such a table.
"""

from typing import Any

from pyiceberg.catalog import MetastoreCatalog
from pyiceberg.catalog.glue import GlueCatalog
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.table import CommitTableResponse, StagedTable, Table
from pyiceberg.table.update import TableRequirement, TableUpdate

from lakehouse.core.errors import ClockSkew
from resources.aws.glue import iceberg_parameters
from resources.aws.glue_errors import translate_permanent_errors
from resources.iceberg.clocks import MAX_SKEW_SECONDS, format_utc, now_ms


def require_clock(table: Table) -> None:
    """Require that this machine's clock is not behind the newest entry in a table's history.

    Raises:
        ClockSkew: The clock is more than `MAX_SKEW_SECONDS` behind.
    """
    metadata = table.metadata
    logged = [entry.timestamp_ms for entry in metadata.snapshot_log[-1:]]
    logged += [entry.timestamp_ms for entry in metadata.metadata_log[-1:]]
    newest, now = max(metadata.last_updated_ms, *logged, 0), now_ms()
    if now < newest - MAX_SKEW_SECONDS * 1000:
        raise ClockSkew(
            f"{format_utc(now)} UTC, {(newest - now) / 1000:.0f} s before the newest entry in the history of "
            f"{'.'.join(table.name())} ({format_utc(newest)} UTC)",
            "Spark and Athena could no longer read the table",
        )


class ClockChecked(MetastoreCatalog):
    """Base class of catalogs that compare the clock with the very metadata that a commit replaces."""

    def _update_and_stage_table(self, current_table: Table | None, *arguments: Any) -> StagedTable:
        # The table that a caller passes to commit_table is older: another machine may have committed since.
        if current_table is not None:
            require_clock(current_table)
        return super()._update_and_stage_table(current_table, *arguments)


class ClockCheckedSqlCatalog(ClockChecked, SqlCatalog):
    """An Iceberg catalog in a SQL database."""


class ClockCheckedGlueCatalog(ClockChecked, GlueCatalog):
    """An Iceberg catalog in AWS Glue, which distinguishes rejections from lost responses."""

    def _get_glue_table(self, database_name: str, table_name: str) -> Any:
        table = super()._get_glue_table(database_name, table_name)
        iceberg_parameters(table, f"{database_name}.{table_name}")
        return table

    def create_namespace(self, *args: Any, **kwargs: Any) -> None:
        """Create a Glue database."""
        with translate_permanent_errors(self.glue.meta.region_name):
            super().create_namespace(*args, **kwargs)

    def create_table(self, *args: Any, **kwargs: Any) -> Table:
        """Create a table."""
        with translate_permanent_errors(self.glue.meta.region_name):
            return super().create_table(*args, **kwargs)

    def commit_table(
        self, table: Table, requirements: tuple[TableRequirement, ...], updates: tuple[TableUpdate, ...]
    ) -> CommitTableResponse:
        """Commit to a table."""
        with translate_permanent_errors(self.glue.meta.region_name):
            return super().commit_table(table, requirements, updates)
