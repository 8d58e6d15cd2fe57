"""Simulated maintenance: the functions of spark.tables.maintenance_procedures."""

from __future__ import annotations

from datetime import datetime

from pyspark.errors.exceptions.connect import SparkException

from lakehouse.core.tables.naming import TableRef
from spark.tables.target import Target
from tests.simulation.engine.memory_spark import MemorySpark, data_file, data_files, referenced
from tests.simulation.systems.memory_files import data_rows, delete_data, old_data


def compact(spark: MemorySpark, ref: TableRef, target_bytes: int, small_bytes: int) -> dict[str, int]:
    """Rewrite all data files into one; refused if another commit removed one of them meanwhile."""
    planned = spark.job("plan compaction", lambda: {f.file_path for f in spark.files(ref)})

    def rewrite() -> None:
        table = spark.load(ref)
        files = [file for file in spark.files(ref) if file.file_path in planned]
        if len(files) < len(planned):
            raise SparkException("a file to rewrite was removed")
        rows = [row for file in files for row in data_rows(file.file_path)]
        added = [data_file(spark, table, rows)] if rows else []
        spark.commit_files(table, "main", table.metadata.current_snapshot_id, added, files)

    if len(planned) > 1:
        spark.job("commit compaction", rewrite)
    return {"rewritten_data_files_count": len(planned), "added_data_files_count": 1}


def compact_files(spark: MemorySpark, ref: TableRef) -> dict[str, int]:
    """Rewrite nothing: there are no delete files, and few manifests."""
    return dict.fromkeys(
        (f"{which}_{what}_count" for which in ("rewritten", "added") for what in ("delete_files", "manifests")), 0
    )


def expire(spark: MemorySpark, ref: TableRef, older_than: datetime, retain_last: int) -> dict[str, int]:
    """Expire older snapshots, except the last ones of each branch and those of tags, and delete their data files."""

    def expire() -> dict[str, int]:
        table = spark.load(ref)
        kept = {s.snapshot_id for s in table.metadata.snapshots if s.timestamp_ms >= older_than.timestamp() * 1000}
        for head in table.metadata.refs.values():
            snapshot, number = table.snapshot_by_id(head.snapshot_id), 0
            while snapshot and number < (retain_last if head.snapshot_ref_type == "branch" else 1):
                kept.add(snapshot.snapshot_id)
                snapshot, number = table.snapshot_by_id(snapshot.parent_snapshot_id or 0), number + 1
        expired = [s for s in table.metadata.snapshots if s.snapshot_id not in kept]
        if expired:
            files = {f.file_path for s in expired for f in data_files(table, s.snapshot_id)}
            spark.iceberg.expire(table, {s.snapshot_id for s in expired})
            delete_data(files - referenced(spark.load(ref)))
        return {"deleted_data_files_count": len(expired)}

    return spark.job("expire", expire)


def remove_orphans(spark: MemorySpark, catalog: str, ref: TableRef, older_than: datetime) -> int:
    """Delete data files that no snapshot refers to."""

    def remove() -> int:
        table = spark.load(ref)
        orphans = old_data(table.location(), older_than.timestamp()) - referenced(table)
        delete_data(orphans)
        return len(orphans)

    return spark.job("remove_orphans", remove)


def delete_rows(spark: MemorySpark, ref: TableRef, column: str, older_than: datetime) -> bool:
    """Delete rows whose time is before `older_than`."""
    keep = lambda row: row.record.at >= older_than.timestamp()  # noqa: E731
    planned = spark.job("plan", lambda: spark.head(ref, "main"))
    if all(map(keep, spark.rows(ref))):
        return False
    spark.job("delete rows", lambda: spark.commit(Target(ref, "main", {}), planned, keep=keep))
    return True
