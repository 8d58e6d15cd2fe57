"""What keeps a table fast and small: Iceberg's own procedures, each run only where it has something to do.

Source: Iceberg, Spark procedures. All of them commit like any other writer: a batch that is published meanwhile makes
them fail, and they are safe to run again.
"""

from __future__ import annotations

from datetime import datetime

from pyspark.sql import Row, SparkSession
from pyspark.sql import functions as F

from lakehouse.core import naming
from lakehouse.core.sql import SPARK


def compact(spark: SparkSession, namespace: str, table: str, target_bytes: int, small_bytes: int) -> Row:
    """Rewrite data files below `small_bytes`, and those that two or more files of deletes belong to, to about
    `target_bytes`."""
    options = {
        "target-file-size-bytes": target_bytes,
        "min-file-size-bytes": small_bytes,
        "delete-file-threshold": 2,
        # Deletes of files that are gone hide nothing, and are counted by readers all the same.
        "remove-dangling-deletes": "true",
    }
    return _call(spark, "rewrite_data_files", namespace, table, f"options => {_map(options)}")


def compact_deletes(spark: SparkSession, namespace: str, table: str) -> Row:
    """Rewrite files of position deletes into fewer."""
    return _call(spark, "rewrite_position_delete_files", namespace, table)


def compact_manifests(spark: SparkSession, namespace: str, table: str) -> Row:
    """Rewrite manifests into fewer, so that planning a read opens fewer files."""
    return _call(spark, "rewrite_manifests", namespace, table)


def expire(spark: SparkSession, namespace: str, table: str, older_than: datetime, retain_last: int) -> Row:
    """Forget snapshots that are older, but not the last ones, nor any that a branch or tag holds: the offsets' does."""
    bounds = f"older_than => {_moment(older_than)}, retain_last => {retain_last}"
    return _call(spark, "expire_snapshots", namespace, table, bounds)


def remove_orphans(spark: SparkSession, catalog: str, namespace: str, table: str, older_than: datetime) -> int:
    """Delete files that no metadata names.

    Args:
        spark: The session.
        catalog: Name of a catalog in it that may delete files.
        namespace: The table's namespace.
        table: The table's name.
        older_than: Files that were written later stay.

    Returns:
        How many files were deleted.
    """
    bounds = f"older_than => {_moment(older_than)}, prefix_listing => true"
    return spark.sql(_statement("remove_orphan_files", namespace, table, bounds, catalog=catalog)).count()


def delete_rows(spark: SparkSession, namespace: str, table: str, column: str, older_than: datetime) -> bool:
    """Delete rows whose time is before; returns whether there were any."""
    path = naming.spark_table(namespace, table)
    before = f"{SPARK.identifier(column)} < {_moment(older_than)}"
    if spark.table(path).filter(F.expr(before)).limit(1).count() == 0:
        return False
    spark.sql(f"DELETE FROM {path} WHERE {before}")  # noqa: S608 (both quoted)
    return True


def _call(spark: SparkSession, procedure: str, namespace: str, table: str, *arguments: str) -> Row:
    row = spark.sql(_statement(procedure, namespace, table, *arguments)).first()
    assert row is not None
    return row


def _statement(procedure: str, namespace: str, table: str, *arguments: str, catalog: str = naming.CATALOG) -> str:
    # The procedures parse the name they are given as an identifier of their catalog.
    name = SPARK.literal(SPARK.identifier(namespace, table))
    given = ", ".join((f"table => {name}", *arguments))
    return f"CALL {catalog}.system.{procedure}({given})"


def _map(options: dict[str, object]) -> str:
    return f"map({', '.join(SPARK.literal(str(text)) for pair in options.items() for text in pair)})"


def _moment(time: datetime) -> str:
    return f"TIMESTAMP '{time.isoformat(' ')}'"
