"""State shared by the phases of one batch: its offsets, its table, and the schemas that decode its records."""

from __future__ import annotations

import logging
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace

from pyiceberg.table import Table

from lakehouse.config.checks import RowCount
from lakehouse.config.model import Topic
from lakehouse.core.errors import TransientError
from lakehouse.core.offsets.batch import Batch, Positions
from lakehouse.core.tables.naming import TableRef
from lakehouse.pipeline.batches.poison import first_aborting_record, unreadable_record
from lakehouse.pipeline.clients import Clients
from lakehouse.pipeline.commits import column_checks
from lakehouse.pipeline.commits.audit import CheckResult
from lakehouse.pipeline.commits.staged_commit import OnPhase, Phase, StagedCommit, no_report
from lakehouse.pipeline.engine import Decided, Engine
from lakehouse.pipeline.engine_values import JobFailed, LogRange, Place
from lakehouse.pipeline.schemas.decoding import TopicSchemas
from lakehouse.pipeline.schemas.foreign_writers import BATCH, Lookup, with_foreign_writers

_LOG = logging.getLogger(__name__)

_CAUSE = re.compile(r"^[\w.]*(?:Error|Exception): .+$", re.MULTILINE)
"""The line of a traceback with the error, which may be one of Spark's Python workers."""


@dataclass(frozen=True)
class BatchContext:
    """One batch of a topic: new records, or records that are read again.

    Attributes:
        topic: The topic as declared in lakehouse.yaml.
        ref: The table that currently receives the topic's records.
        clients: Clients of the systems.
        batch: The offsets to read.
        table: The table as loaded when the batch was chosen; None if it did not exist.
        base: The snapshot of main at that time; None if main had none.
        schemas: The schemas that decode the records.
        is_poison: Whether the batch is a single record that must not be decoded.
        on_phase: Called when a phase begins.
        left_out: Records that are not read again.
    """

    topic: Topic
    ref: TableRef
    clients: Clients
    batch: Batch
    table: Table | None
    base: int | None
    schemas: TopicSchemas
    is_poison: bool = False
    on_phase: OnPhase = no_report
    left_out: Sequence[Place] = ()

    @property
    def engine(self) -> Engine:
        """The engine that reads and writes the batch."""
        return self.clients.engine

    @property
    def commit(self) -> StagedCommit:
        """The staged commit that publishes the batch."""
        return StagedCommit(self.clients, self.ref, self.base, self.batch, self.topic.key, self.report)

    def report(self, phase: Phase) -> None:
        """Log the beginning of a phase and report it to the caller."""
        _LOG.debug("%s: %s", self.topic.name, phase)
        self.on_phase(phase)

    def decided(self, *, headers: bool = False) -> Decided:
        """Return the decided records of the batch. Each use of them reads Kafka again.

        Args:
            headers: Whether the message headers are needed.
        """
        refused = "poison" if self.is_poison else None
        return self.engine.decide(self.records(self.batch), self.schemas.decoding(), headers=headers, refused=refused)

    def with_foreign_writers(self, decided: Decided, lookup: Lookup = BATCH) -> BatchContext:
        """Return the context extended by the schemas of other subjects that records refer to."""
        registry = self.clients.schema_registry
        return replace(self, schemas=with_foreign_writers(registry, self.schemas, decided, lookup))

    def is_decodable(self, batch: Batch) -> bool:
        """Return whether the engine can decode all records of a batch without aborting. Dead letters count as decoded.

        Raises:
            JobFailed: The records cannot be read at all, whether decoded or not.
        """
        records = self.records(batch)
        if self.engine.decide(records, replace(self.schemas.decoding(), metadata={})).completes():
            return True
        self.engine.is_readable(records)
        return False

    def records(self, batch: Batch) -> LogRange:
        """Return the records of a part of the batch, except those that are left out."""
        return LogRange(batch, tuple(self.left_out))

    def aborting_record(self) -> Place | None:
        """Return the first record of the batch whose decoding aborts the Spark job; None if none does.

        Raises:
            JobFailed: The records cannot be read at all, whether decoded or not.
            TransientError: Spark does not decode messages at all.
        """
        place = first_aborting_record(self.is_decodable, self.batch)
        if place:
            self.require_decoder()
        return place

    def require_readable(self) -> None:
        """Require that Spark's Kafka source reads the only record of the batch.

        Raises:
            UnclearState: It does not.
        """
        if not self.engine.is_readable(self.records(self.batch)):
            raise unreadable_record(self.topic, self.batch)

    def require_decoder(self) -> None:
        """Require that Spark decodes messages at all, before a record is blamed for a failure.

        Raises:
            TransientError: It does not, for example because executors lack a library.
        """
        try:
            self.engine.require_decoder(self.schemas.decoding(), explained=self.topic.keeps_dead_letters)
        except JobFailed as error:
            causes = _CAUSE.findall(str(error))
            raise TransientError(
                f"Spark fails with an empty message of '{self.topic.name}' as well, so no record is to blame: "
                f"{causes[0] if causes else error.condition}",
                "No record was skipped, and nothing was published",
                "Install what the executors need (docs/clusters.md), and retry the run",
            ) from error

    def declared_checks(
        self, table: Table, snapshot_id: int, since: Positions, *, again: bool = False
    ) -> list[CheckResult]:
        """Run the checks declared in lakehouse.yaml on the rows of a snapshot.

        Checks with `severity: quarantine` are left out, because the rows that fail them are not in the table.

        Args:
            table: The table that contains the snapshot.
            snapshot_id: The snapshot.
            since: The first offset of each partition (inclusive).
            again: Whether the rows were read before. Row count checks are left out then: the size of a replay is
                arbitrary.

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
        return column_checks.run_checks(self.engine, self.clients.catalog, topic, declared, table, snapshot_id, since)
