"""pyiceberg's catalogs, with each commit refused while this machine's clock is behind the table's history.

pyiceberg writes the local time into a table's metadata and compares it with nothing. Iceberg's Java library, and so
Spark, Athena and Trino, refuse to read metadata whose history goes back by more than a minute
(org.apache.iceberg.TableMetadata, "Expected sorted snapshot log entries"), and nothing repairs such a table.
"""

from __future__ import annotations

from typing import Any

from pyiceberg.catalog.glue import GlueCatalog
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.table import CommitTableResponse, Table
from pyiceberg.table.update import TableRequirement, TableUpdate

from lakehouse.core.errors import ClockSkew
from resources.clocks import MAX_SKEW_SECONDS, now_ms, text
from resources.glue_errors import refusals_explained


def require_clock(table: Table) -> None:
    """Compare this machine's clock with the newest entry in a table's history.

    Raises:
        ClockSkew: The clock is more than `MAX_SKEW_SECONDS` behind.
    """
    metadata = table.metadata
    logged = [entry.timestamp_ms for entry in metadata.snapshot_log[-1:]]
    logged += [entry.timestamp_ms for entry in metadata.metadata_log[-1:]]
    newest, now = max(metadata.last_updated_ms, *logged, 0), now_ms()
    if now < newest - MAX_SKEW_SECONDS * 1000:
        raise ClockSkew(
            f"{text(now)} UTC, {(newest - now) / 1000:.0f} s before the newest entry in the history of "
            f"{'.'.join(table.name())} ({text(newest)} UTC)",
            "Spark and Athena could no longer read the table",
        )


class ClockCheckedSqlCatalog(SqlCatalog):
    """Iceberg's catalog in a SQL database."""

    def commit_table(
        self, table: Table, requirements: tuple[TableRequirement, ...], updates: tuple[TableUpdate, ...]
    ) -> CommitTableResponse:
        """Commit, unless the clock is behind the table's history."""
        require_clock(table)
        return super().commit_table(table, requirements, updates)


class ClockCheckedGlueCatalog(GlueCatalog):
    """Iceberg's catalog in AWS Glue, whose refusals are told from silence."""

    def create_namespace(self, *args: Any, **kwargs: Any) -> None:
        """Create a Glue database."""
        with refusals_explained(self.glue.meta.region_name):
            super().create_namespace(*args, **kwargs)

    def create_table(self, *args: Any, **kwargs: Any) -> Table:
        """Create a table."""
        with refusals_explained(self.glue.meta.region_name):
            return super().create_table(*args, **kwargs)

    def commit_table(
        self, table: Table, requirements: tuple[TableRequirement, ...], updates: tuple[TableUpdate, ...]
    ) -> CommitTableResponse:
        """Commit, unless the clock is behind the table's history."""
        require_clock(table)
        with refusals_explained(self.glue.meta.region_name):
            return super().commit_table(table, requirements, updates)
