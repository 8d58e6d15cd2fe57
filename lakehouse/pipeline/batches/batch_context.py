"""State shared by the phases of one batch: its offsets, its table, and the schemas that decode its records."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from pyiceberg.table import Table

from lakehouse.config.model import Topic
from lakehouse.core.errors import LakehouseError
from lakehouse.core.log_entry import IN_PROGRESS
from lakehouse.core.offsets.batch import Batch
from lakehouse.core.tables.naming import TableRef
from lakehouse.pipeline.clients import Clients
from lakehouse.pipeline.commits.staged_commit import OnPhase, Phase, StagedCommit, no_report
from lakehouse.pipeline.engine import Decided, Engine
from lakehouse.pipeline.engine_values import (
    Decoding,
    JobFailed,
    KnownRows,
    LogRange,
    Place,
    Side,
)
from lakehouse.pipeline.row_files import LetterTable, NoRowFiles, RowFiles
from lakehouse.pipeline.schemas import schema_fingerprints
from lakehouse.pipeline.schemas.decoding import TopicSchemas
from lakehouse.pipeline.schemas.foreign_writers import BATCH, Lookup, with_foreign_writers
from lakehouse.pipeline.spilled_records import SpilledRecords, is_small
from resources.iceberg.snapshots import newest_counts

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
        kept: The records of the batch as the engine keeps them; None if each use reads the log.
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
    kept: LogRange | None = None

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

        All dead letters are among the other ones.

        Args:
            headers: Whether the message headers are needed.
        """
        refused = "poison" if self.is_poison else None
        records = self.others or self.records(self.batch)
        return self.engine.decide(records, self.decoding(), headers=headers, refused=refused)

    def row_files(
        self, table: Table, *, required: bool = False, letters: LetterTable | None = None
    ) -> RowFiles | NoRowFiles:
        """Write the rows of the batch to files that no snapshot has, if the engine can.

        Args:
            table: The table.
            required: Whether the files are needed whatever the environment declares.
            letters: The table of dead letters, of which the engine may write files; None if it must not.
        """
        if self.is_poison or self.left_out:
            return NoRowFiles("a record aborts decoding")
        on_begin = partial(self.report, "write")
        likely = self.expects_others(table)
        settings: Any = {"required": required, "others": likely, "letters": letters}
        return self.engine.row_files(self.batch, self.decoding(), table, on_begin, **settings)

    def decoding(self, *, again: bool = False) -> Decoding[Side]:
        """Return the instructions that decode the records.

        Args:
            again: Whether the table has the records.
        """
        decoding = self.schemas.decoding(len(self.batch.end))
        if self.base is None:
            return decoding
        return replace(decoding, known=KnownRows(self.ref, self.base, self.topic.metadata.place, self.batch, again))

    def expects_others(self, table: Table | None) -> bool:
        """Return whether the batch probably has records that do not become rows at once: checks quarantine rows, the
        newest batch had records that did not decode, or schema ids are probably unknown."""
        newest = newest_counts(table) if table else None
        is_rejecting = self.topic.quarantine or (newest and newest.keys() & {"dead_letters", "skipped"})
        return bool(is_rejecting) or self._expects_unknown_ids(table)

    def _expects_unknown_ids(self, table: Table | None) -> bool:
        """Return whether the batch probably has schema ids that are not known yet, or in headers: it is the first one,
        or the table has records of schemas of other subjects."""
        is_first = table is None or newest_counts(table) is None
        return is_first or schema_fingerprints.has_others(table, self.schemas)

    def read_once(self) -> AbstractContextManager[BatchContext]:
        """Return `keeping_records` for a batch that several passes probably read, else the context itself.

        A large batch in mode `append` is written to files of rows instead, in one pass. A merge keeps its dead letters,
        so only schema ids that were not known make it read records again.
        """
        match self.topic.mode:
            case "append":
                is_read_again = is_small(self.batch) and self.expects_others(self.table)
            case "debezium":
                is_read_again = True
            case _:
                is_read_again = self._expects_unknown_ids(self.table)
        return self.keeping_records() if is_read_again else nullcontext(self)

    def keeps_dead_letters(self, table: Table) -> bool:
        """Return whether the write of all records of the batch should keep the dead letters in a cache of the rows.

        Some are likely, and the batch is merged, for which its rows are cached. Change events are decided with regard
        to each other, so their dead letters alone may be decided otherwise.
        """
        is_merged = self.topic.mode in ("dedup", "upsert")
        return is_merged and self.others is None and not self.is_poison and self.expects_others(table)

    @contextmanager
    def keeping_records(self) -> Iterator[BatchContext]:
        """Yield the context of the batch whose records the engine keeps within the block, so the log is read once.

        The records of a longer range than a batch are not kept, because they may exceed the disk.
        """
        if self.batch.offsets > self.topic.max_records_per_batch:
            yield self
            return
        kept = self.engine.keep(self.records(self.batch))
        try:
            yield replace(self, kept=kept)
        finally:
            try:
                self.engine.release(kept)
            except (JobFailed, LakehouseError) as error:
                # The batch is published by now, or another error has interrupted it.
                cause = type(error).__name__
                _LOG.warning("%s: Spark may keep the records of a batch until it restarts (%s)", self.topic.name, cause)

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
        records = LogRange(batch, tuple(self.left_out))
        return self.kept if self.kept == records else records
