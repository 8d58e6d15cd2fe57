"""What the steps of a batch share: its offsets, its table, and how its records are decoded."""

from __future__ import annotations

import logging
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from lakehouse.config.checks import RowCount
from lakehouse.config.topic import Topic
from lakehouse.core.batch import Batch, Positions
from lakehouse.pipeline import quality
from lakehouse.pipeline.audit import Finding
from lakehouse.pipeline.clients import Clients
from lakehouse.pipeline.codecs import BATCH, Formats, with_foreign_writers
from lakehouse.pipeline.poison import unreadable
from lakehouse.pipeline.staged_commit import OnPhase, Phase, StagedCommit, no_report

if TYPE_CHECKING:
    from pyiceberg.table import Table
    from pyspark.sql import DataFrame, SparkSession

_LOG = logging.getLogger(__name__)


@dataclass(frozen=True)
class BatchContext:
    """One batch of a topic: new records, or some that are read again.

    Attributes:
        topic: The topic, with the table that its records go to now.
        batch: The offsets.
        table: The table as it was when the batch was chosen; None where there was none.
        base: Main's snapshot at that time; None where it had none.
        formats: How the records are decoded.
        is_poison: Whether the batch is one record that must not be decoded.
        on_phase: Called when a phase begins.
    """

    namespace: str
    topic: Topic
    clients: Clients
    batch: Batch
    table: Table | None
    base: int | None
    formats: Formats
    is_poison: bool = False
    on_phase: OnPhase = no_report

    @property
    def spark(self) -> SparkSession:
        """The Spark session."""
        return self.clients.spark.session(self.clients.catalog.spark_settings())

    @property
    def commit(self) -> StagedCommit:
        """The publication of the batch in the topic's table."""
        return StagedCommit(
            self.clients, self.namespace, self.topic.table, self.base, self.batch, self.topic.key, self.report
        )

    def report(self, phase: Phase) -> None:
        """Log a phase that begins, and pass it on."""
        _LOG.debug("%s: %s", self.topic.name, phase)
        self.on_phase(phase)

    def decoded(self, *, headers: bool = False) -> DataFrame:
        """Read the batch from Kafka, each time anew, and decode it."""
        from spark.decode import decode, refused
        from spark.records import read_range

        how = self.formats.decoding()
        options = self.clients.kafka.spark_options()
        records = read_range(self.spark, options, self.batch, headers=headers or how.needs_headers)
        return refused(records, how, "poison") if self.is_poison else decode(records, how)

    def with_foreign_writers(self) -> BatchContext:
        """Return the context with the schemas of other subjects that records of the batch name."""
        registry = self.clients.schema_registry
        return replace(self, formats=with_foreign_writers(registry, self.formats, self.decoded(), BATCH))

    def is_decodable(self, batch: Batch) -> bool:
        """Return whether decoding the records of a batch comes to an end.

        Raises:
            PySparkException: They cannot be read, decoded or not.
            UnclearState: One record cannot be read.
        """
        from spark.decode import decode, is_decodable
        from spark.records import is_readable, read_range

        records = read_range(self.spark, self.clients.kafka.spark_options(), batch)
        if is_decodable(decode(records, replace(self.formats.decoding(), metadata={}))):
            return True
        if not is_readable(records) and batch.offsets == 1:
            raise unreadable(self.topic, batch)
        return False

    def declared_checks(
        self, table: Table, snapshot_id: int, since: Positions, *, again: bool = False
    ) -> list[Finding]:
        """Run the checks of lakehouse.yaml on rows in a snapshot.

        Checks with `severity: quarantine` are left out, since what fails them is not among the rows.

        Args:
            since: The first offset of each partition.
            again: Whether the rows were read before: their number then says nothing of how many are usual.

        Raises:
            ConfigError: A check does not fit the table.
            LakehouseError: A table that a check refers to is empty.
        """
        topic = self.topic
        declared = {
            name: check
            for name, check in topic.checks.items()
            if name not in topic.quarantine and not (again and isinstance(check, RowCount))
        }
        return quality.findings(
            self.spark, self.clients.catalog, self.namespace, topic, declared, table, snapshot_id, since
        )
