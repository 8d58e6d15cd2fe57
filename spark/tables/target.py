"""A branch that rows are written to, and commits on it whose summaries have exactly the intended properties."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from pyspark.sql import DataFrame, SparkSession

from lakehouse.core.table_protocol import PART, PARTS
from lakehouse.core.tables.naming import TableRef

if TYPE_CHECKING:
    from pyspark.sql import MergeIntoWriter

PART_SETTING = f"spark.sql.iceberg.snapshot-property.{PART}"
"""Setting of a session for the property PART of all its commits (Iceberg, Spark writes: snapshot properties)."""


@dataclass(frozen=True)
class Target:
    """A branch that rows are written to.

    The server may keep a session, and its settings, from a run that was interrupted. An append has its properties as
    options. A MERGE accepts no options, so the property that it may have is a setting, which every commit sets or
    unsets.

    Attributes:
        ref: The table.
        branch: The name of the branch.
        properties: Properties for the summary of the snapshot that completes the write.
    """

    ref: TableRef
    branch: str
    properties: Mapping[str, str]

    @property
    def path(self) -> str:
        """The branch as Spark addresses it."""
        return self.ref.spark_path(self.branch)

    @property
    def options(self) -> Mapping[str, str]:
        """The properties as options of an append."""
        return {f"snapshot-property.{name}": value for name, value in self.properties.items()}

    def deleting(self) -> Target:
        """Return the target for a commit that deletes rows and that another commit completes."""
        return replace(self, properties={PART: "delete"})

    def completing(self) -> Target:
        """Return the target for the commit that completes the deleting one.

        The audit requires both commits: if another writer drops the branch between them, Iceberg creates it again
        without the first.
        """
        return replace(self, properties={**self.properties, PARTS: "2"})

    def append(self, rows: DataFrame) -> None:
        """Append rows in one commit."""
        rows.sparkSession.conf.unset(PART_SETTING)
        writer = rows.writeTo(self.path)
        for name, value in self.options.items():
            writer = writer.option(name, value)
        writer.append()

    def merge(self, spark: SparkSession, merge: MergeIntoWriter) -> None:
        """Run a MERGE, whose only property may be that it is a part."""
        assert self.properties.keys() <= {PART}
        if PART in self.properties:
            spark.conf.set(PART_SETTING, self.properties[PART])
        else:
            spark.conf.unset(PART_SETTING)
        merge.merge()
