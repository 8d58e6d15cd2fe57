"""State shared by the phases of one batch: its offsets, its table, and the schemas that decode its records."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial

from pyiceberg.table import Table

from lakehouse.config.model import Topic
from lakehouse.core.log_entry import IN_PROGRESS
from lakehouse.core.offsets.batch import Batch
from lakehouse.core.tables.naming import TableRef
from lakehouse.pipeline.clients import Clients
from lakehouse.pipeline.commits.staged_commit import OnPhase, Phase, StagedCommit, no_report
from lakehouse.pipeline.engine import Decided, Engine
from lakehouse.pipeline.engine_values import (
    Decoding,
    KnownRows,
    LogRange,
    Place,
    Side,
)
from lakehouse.pipeline.row_files import NoRowFiles, RowFiles
from lakehouse.pipeline.schemas.decoding import TopicSchemas
from lakehouse.pipeline.schemas.foreign_writers import BATCH, Lookup, with_foreign_writers
from lakehouse.pipeline.spilled_records import SpilledRecords, is_small
from resources.iceberg.snapshots import had_dead_letters

_LOG = logging.getLogger(__name__)


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
        others: The records that files of rows lack, or the dead letters that the write of the rows kept; None if there
            are neither, and each record is decided.
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
    others: SpilledRecords | None = None

    @property
    def engine(self) -> Engine:
        """The engine that reads and writes the batch."""
        return self.clients.engine

    @property
    def commit(self) -> StagedCommit:
        """The staged commit that publishes the batch."""
        place = self.topic.metadata.place
        return StagedCommit(self.clients, self.ref, self.base, self.batch, self.topic.key, self.report, place)

    def report(self, phase: Phase) -> None:
        """Log the beginning of a phase and report it to the caller."""
        _LOG.debug("%s: %s", self.topic.name, phase)
        IN_PROGRESS.set((self.batch, phase))
        self.on_phase(phase)

    def decided(self, *, headers: bool = False) -> Decided:
        """Return the decided records of the batch, or the other ones if the write of its rows kept them.

        All dead letters are among the other ones. Each use of the records of the batch reads Kafka again.

        Args:
            headers: Whether the message headers are needed.
        """
        refused = "poison" if self.is_poison else None
        records = self.others or self.records(self.batch)
        return self.engine.decide(records, self.decoding(), headers=headers, refused=refused)

    def row_files(self, table: Table, *, required: bool = False) -> RowFiles | NoRowFiles:
        """Write the rows of the batch to files that no snapshot has, if the engine can.

        Args:
            table: The table.
            required: Whether the files are needed whatever the environment declares.
        """
        if self.is_poison or self.left_out:
            return NoRowFiles("a record aborts decoding")
        on_begin = partial(self.report, "write")
        return self.engine.row_files(self.batch, self.decoding(), table, on_begin, required=required)

    def decoding(self, *, again: bool = False) -> Decoding[Side]:
        """Return the instructions that decode the records.

        Args:
            again: Whether the table has the records.
        """
        decoding = self.schemas.decoding(len(self.batch.end))
        if self.base is None:
            return decoding
        return replace(decoding, known=KnownRows(self.ref, self.base, self.topic.metadata.place, self.batch, again))

    def keeps_dead_letters(self, table: Table) -> bool:
        """Return whether the write of all records of the batch should keep the dead letters in a cache of the rows.

        Some are likely, and the batch is merged, for which its rows are cached, or small. Change events are decided
        with regard to each other, so their dead letters alone may be decided otherwise.
        """
        mode = self.topic.mode
        is_cached = mode in ("dedup", "upsert") or (mode == "append" and is_small(self.batch))
        is_likely = bool(self.topic.quarantine) or had_dead_letters(table)
        return self.others is None and not self.is_poison and is_cached and is_likely

    def with_others(self, others: SpilledRecords | None) -> BatchContext:
        """Return the context of a batch whose rows were written, with its dead letters if the write kept them."""
        return self if others is None else replace(self, others=others)

    def reading_header_ids(self) -> BatchContext:
        """Return the context with instructions that read schema ids from headers."""
        return replace(self, schemas=replace(self.schemas, reads_header_ids=True))

    def with_foreign_writers(self, decided: Decided, lookup: Lookup = BATCH) -> BatchContext:
        """Return the context extended by the schemas of other subjects that records refer to."""
        registry = self.clients.schema_registry
        return replace(self, schemas=with_foreign_writers(registry, self.schemas, decided, lookup))

    def first_faults(self) -> list[tuple[int, int, str]]:
        """Return partition, offset and reason of the first records that do not decode."""
        is_extended = self.schemas.unusable_ids is not None
        known = self if is_extended else self.with_foreign_writers(self.decided())
        return known.decided().first_faults(shows_keys=not self.topic.sensitive)

    def records(self, batch: Batch) -> LogRange:
        """Return the records of a part of the batch, except those that are left out."""
        return LogRange(batch, tuple(self.left_out))
