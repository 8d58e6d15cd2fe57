"""The audit of rows on a branch, the same for a batch, a replay, dead letters that are tried again, and a rehearsal."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lakehouse.config.checks import RowCount
from lakehouse.config.topic import Topic
from lakehouse.pipeline import audit, quality
from lakehouse.pipeline.audit import Finding, Staged
from resources.catalog import Catalog

if TYPE_CHECKING:
    from pyiceberg.table import Table
    from pyspark.sql import SparkSession


def examine(
    spark: SparkSession,
    catalog: Catalog,
    namespace: str,
    topic: Topic,
    table: Table,
    staged: Staged,
    *,
    again: bool = False,
) -> list[Finding]:
    """Check rows on a branch: that they are all of the records, whole, with keys, and what lakehouse.yaml declares.

    Checks with `severity: quarantine` are left out, since what fails them is not on the branch.

    Args:
        spark: The session.
        catalog: The catalog of the table.
        namespace: The table's namespace.
        topic: The topic of the rows.
        table: The table, loaded after the rows were written.
        staged: The rows.
        again: Whether the rows were read before: their number then says nothing of how many are usual.

    Raises:
        CommitConflict: Another writer published meanwhile.
        ConfigError: A check does not fit the table.
        LakehouseError: A table that a check refers to is empty.
    """
    declared = {
        name: check
        for name, check in topic.checks.items()
        if name not in topic.quarantine and not (again and isinstance(check, RowCount))
    }
    found = audit.audit(spark, namespace, topic, table, staged)
    head = table.metadata.refs[staged.branch].snapshot_id
    return found + quality.findings(spark, catalog, namespace, topic, declared, table, head, staged.since)
