"""Maintenance of tables with Iceberg's own procedures (Iceberg, Spark procedures).

They commit like any other writer: a batch that is published meanwhile makes them fail. They are safe to run again.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime

from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from lakehouse.core.sql import SPARK
from lakehouse.core.tables import naming
from lakehouse.core.tables.naming import TableRef
from lakehouse.pipeline.compaction_values import Compactable, DataFiles, Rewritten


def compact(spark: SparkSession, ref: TableRef, files: Compactable) -> Rewritten:
    """Rewrite files into fewer ones."""
    match files:
        case DataFiles():
            options = {
                "target-file-size-bytes": files.target_bytes,
                "min-file-size-bytes": files.small_bytes,
                # Spark keeps one delete file for each data file, however many commits delete rows of it.
                **({"delete-file-threshold": 1} if files.applies_deletes else {}),
                # Delete files of removed data files have no effect, but readers still open them.
                "remove-dangling-deletes": "true",
            }
            row = _call(spark, "rewrite_data_files", ref, f"options => {_map(options)}")
            return Rewritten(row["rewritten_data_files_count"], row["added_data_files_count"])
        case "delete files":
            row = _call(spark, "rewrite_position_delete_files", ref, f"options => {_map({'rewrite-all': 'true'})}")
            return Rewritten(row["rewritten_delete_files_count"], row["added_delete_files_count"])
        case "manifests":
            row = _call(spark, "rewrite_manifests", ref)
            return Rewritten(row["rewritten_manifests_count"], row["added_manifests_count"])


def expire(spark: SparkSession, ref: TableRef, older_than: datetime, retain_last: int) -> int:
    """Expire older snapshots, except the last ones and those of branches and tags, such as the offsets tag.

    Returns:
        The number of data files deleted.
    """
    bounds = f"older_than => {_moment(older_than)}, retain_last => {retain_last}"
    deleted: int = _call(spark, "expire_snapshots", ref, bounds)["deleted_data_files_count"]
    return deleted


def remove_orphans(spark: SparkSession, catalog: str, ref: TableRef, older_than: datetime) -> int:
    """Delete files that no metadata refers to.

    Args:
        spark: The Spark session.
        catalog: The name of a catalog in the session that may delete files.
        ref: The table.
        older_than: The time after which files are kept.

    Returns:
        The number of files deleted.
    """
    bounds = f"older_than => {_moment(older_than)}, prefix_listing => true"
    return spark.sql(_statement("remove_orphan_files", ref, bounds, catalog=catalog)).count()


def delete_rows(spark: SparkSession, ref: TableRef, column: str, older_than: datetime) -> bool:
    """Delete rows whose time is before `older_than`, and return whether there were any."""
    path = ref.spark_path()
    before = f"{SPARK.identifier(column)} < {_moment(older_than)}"
    if spark.table(path).filter(F.expr(before)).limit(1).count() == 0:
        return False
    spark.sql(f"DELETE FROM {path} WHERE {before}")  # noqa: S608 (both quoted)
    return True


def _call(spark: SparkSession, procedure: str, ref: TableRef, *arguments: str) -> Mapping[str, int]:
    row = spark.sql(_statement(procedure, ref, *arguments)).first()
    assert row is not None
    return row.asDict()


def _statement(procedure: str, ref: TableRef, *arguments: str, catalog: str = naming.CATALOG) -> str:
    # The procedures parse the table argument as an identifier in their catalog.
    name = SPARK.literal(SPARK.identifier(*ref.identifier))
    argument_list = ", ".join((f"table => {name}", *arguments))
    return f"CALL {catalog}.system.{procedure}({argument_list})"


def _map(options: dict[str, object]) -> str:
    return f"map({', '.join(SPARK.literal(str(text)) for pair in options.items() for text in pair)})"


def _moment(time: datetime) -> str:
    return f"TIMESTAMP '{time.isoformat(' ')}'"
