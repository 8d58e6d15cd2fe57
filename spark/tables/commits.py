"""Commits on a branch whose summaries have exactly the intended properties.

The server may keep a session, and its settings, from a run that was interrupted. An append has its properties as
options. A MERGE accepts no options, so the property that it may have is a setting, which every commit sets or unsets.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import DataFrame, SparkSession

from lakehouse.core.table_protocol import PART
from lakehouse.pipeline.engine_values import Target

if TYPE_CHECKING:
    from pyspark.sql import MergeIntoWriter

PART_SETTING = f"spark.sql.iceberg.snapshot-property.{PART}"
"""Setting of a session for the property PART of all its commits (Iceberg, Spark writes: snapshot properties)."""


def path(target: Target) -> str:
    """Return a branch as Spark addresses it."""
    return target.ref.spark_path(target.branch)


def append(rows: DataFrame, target: Target) -> None:
    """Append rows in one commit."""
    rows.sparkSession.conf.unset(PART_SETTING)
    writer = rows.writeTo(path(target))
    for name, value in target.properties.items():
        writer = writer.option(f"snapshot-property.{name}", value)
    writer.append()


def merge(spark: SparkSession, merge: MergeIntoWriter, target: Target) -> None:
    """Run a MERGE, whose only property may be that it is a part."""
    assert target.properties.keys() <= {PART}
    if PART in target.properties:
        spark.conf.set(PART_SETTING, target.properties[PART])
    else:
        spark.conf.unset(PART_SETTING)
    merge.merge()
