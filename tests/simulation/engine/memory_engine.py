"""The engine in memory: the semantics of the jobs in `spark/`; see lakehouse.pipeline.engine.

All that calls it is production code.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from lakehouse.config.checks import Check, Query, RowCheck, Scope
from lakehouse.core.offsets.batch import Batch, Counts
from lakehouse.core.tables.naming import TableRef
from lakehouse.pipeline.engine_values import (
    Answer,
    CheckedRows,
    Deciding,
    Decoding,
    JobFailed,
    LogRange,
    Mode,
    Question,
    Reading,
    Records,
    Rows,
    Side,
    Target,
    Transform,
    Trial,
    Written,
)
from lakehouse.pipeline.row_files import LetterFiles, LetterTable, NoRowFiles, RowFiles
from lakehouse.pipeline.spilled_records import SpilledRecords
from resources.protocols import KafkaClient
from tests.simulation.engine.checks import RAISING, checked_rows, fails
from tests.simulation.engine.counts import count
from tests.simulation.engine.decisions import (
    Decision,
    MemoryDecided,
    MemoryRecords,
    digest,
    is_late,
    one_a_key,
    planned,
    read,
)
from tests.simulation.engine.derived_rows import MemoryDerivation, MemoryDerived
from tests.simulation.engine.letters import MemoryLetters
from tests.simulation.engine.maintenance import MemoryMaintenance
from tests.simulation.engine.tables import Letter, MemoryTables, Row, branch_at, data_file
from tests.simulation.systems.kafka import Record

if TYPE_CHECKING:
    from pyiceberg.table import Table

AGE_LIMIT_MS = 36_500 * 86_400_000
"""The age limit of branches that an engine creates."""


class MemoryEngine(MemoryTables):
    """The engine, and the client that returns it. A session has no state here.

    Attributes:
        is_compiled: Whether the engine writes files of rows, as Spark does with the compiled decoder.
    """

    is_compiled = False

    def engine(self, settings: Mapping[str, str], kafka: KafkaClient | None = None) -> MemoryEngine:
        return self

    def with_own_session(self) -> MemoryEngine:
        return self

    def close(self) -> None:
        """Close nothing."""

    @property
    def letters(self) -> MemoryLetters:
        return MemoryLetters(self)

    @property
    def maintenance(self) -> MemoryMaintenance:
        return MemoryMaintenance(self)

    def keep(self, records: LogRange) -> LogRange:
        """Keep nothing: an engine that has lost all records reads the log again."""
        return records

    def release(self, records: LogRange) -> None:
        """Release nothing."""

    def decide(
        self, records: Records, decoding: Decoding[Side], *, headers: bool = False, refused: str | None = None
    ) -> MemoryDecided:
        return MemoryDecided(self, records, decoding, refused)

    def row_files(
        self,
        batch: Batch,
        decoding: Decoding[Side],
        table: Table,
        on_begin: Callable[[], None],
        *,
        required: bool = False,
        others: bool = False,
        letters: LetterTable | None = None,
    ) -> RowFiles | NoRowFiles:
        """Write the rows and dead letters that need no further decision; a failed job leaves the batch to `decide`.

        If a check quarantines rows, or the offsets are odd, all records are decided, as Spark does in one pass.
        """
        if not (self.is_compiled or required) or decoding.mode != "append" or decoding.reads_header_ids:
            return NoRowFiles("not compiled")
        on_begin()
        if decoding.quarantine or sum(batch.end.values()) % 2:
            return self.job("row_files", lambda: self._decided_files(batch, decoding, table))
        known = {version.id for version in decoding.value.schema.versions}

        def write() -> RowFiles:
            records = read(self, LogRange(batch))
            good = [record for record in records if is_row(record, known)]
            files = [data_file(self.world, table, [Row(record) for record in good])] if good else []
            others = MemoryRecords(record for record in records if record not in good)
            dead = [letter for record in others if (letter := certain_letter(record, known))] if letters else []
            of_letters = None
            if letters and dead:
                of_letters = LetterFiles(letters.table, [data_file(self.world, letters.table, dead)])
            left = MemoryRecords(record for record in others if all(letter.record != record for letter in dead))
            return RowFiles(files, len(good), SpilledRecords(batch, left), letters=of_letters)

        try:
            files: RowFiles = self.job("row_files", write)
        except JobFailed:
            return NoRowFiles("a job failed")
        return files

    def _decided_files(self, batch: Batch, decoding: Decoding[Side], table: Table) -> RowFiles:
        records = MemoryRecords(read(self, LogRange(batch)))
        decisions = MemoryDecided(self, SpilledRecords(batch, records), decoding).decide()
        rows = [Row(decision.record) for decision in decisions if decision.is_good]
        files = [data_file(self.world, table, rows)] if rows else []
        others = MemoryRecords(decision.record for decision in decisions if not decision.is_good)
        written = _written(decisions, rows=len(rows))
        return RowFiles(files, len(rows), SpilledRecords(batch, others), "one pass", written)

    def completes(self, trial: Trial) -> bool:
        """Run the job; the decoder always works, and each check fits the table."""
        match trial:
            case Reading():
                self.job("is_readable", lambda: read(self, trial.records))
            case Deciding():
                try:
                    self.job("is_decodable", trial.decided.decide)
                except JobFailed:
                    return False
        return True

    def create_branch(self, ref: TableRef, branch: str, snapshot_id: int | None = None) -> None:
        def create() -> None:
            table = self.load(ref)
            if branch in table.metadata.refs:
                raise JobFailed(f"branch {branch} already exists")
            if snapshot_id is not None and table.snapshot_by_id(snapshot_id) is None:
                raise JobFailed(f"snapshot {snapshot_id} does not exist")
            if (head := snapshot_id or table.metadata.current_snapshot_id) is None:
                self.commit_files(table, branch, None, [])
                head = self.load(ref).metadata.refs[branch].snapshot_id
            self.iceberg.commit_now(self.load(ref), (), (branch_at(branch, head, AGE_LIMIT_MS),))

        self.job("create_branch", create)

    def write(
        self,
        decided: Any,
        target: Target,
        mode: Mode = "append",
        key: tuple[str, ...] = (),
        *,
        empty: bool = False,
        keeping: Batch | None = None,
    ) -> Written:
        if decided is None:
            head = self.job("plan", lambda: self.head(target.ref, target.branch))
            self.job("commit", lambda: self.commit(target, head))
            return Written(Counts())
        decisions = planned(decided, target)
        match mode:
            case "append":
                written = self._append(decisions, target)
            case "dedup":
                written = self._add_first(decisions, target, empty)
            case _:
                written = self._replace(decisions, target, key, empty)
        if keeping is None:
            return written
        dead = MemoryRecords(decision.record for decision in decisions if decision.reason)
        return replace(written, others=SpilledRecords(keeping, dead))

    def count(self, question: Question[Answer]) -> Answer:
        return count(self, question)

    def derive(self, rows: Rows, transform: Transform) -> MemoryDerived:
        return MemoryDerivation(self).derive(rows, transform)

    def check(
        self, declared: Mapping[str, Check], scope: Scope, shown: Mapping[str, list[str]]
    ) -> dict[str, CheckedRows]:
        rows: list[Row] = self.job("run checks", lambda: checked_rows(self, scope))
        conditions = {name: check.failure_condition for name, check in declared.items() if isinstance(check, RowCheck)}
        failing = {name: sum(fails(sql, row.record) for row in rows) for name, sql in conditions.items()}
        error = "DIVIDE_BY_ZERO" if rows else ""
        raising = {name: error for name, check in declared.items() if isinstance(check, Query) and RAISING in check.sql}
        return {
            name: CheckedRows(len(rows), failing.get(name, 0), scope.rows, error=raising.get(name, ""))
            for name in declared
        }

    def _append(self, decisions: Sequence[Decision], target: Target) -> Written:
        """Append the good rows."""
        good = [d.record for d in decisions if d.is_good]
        self.job("commit", lambda: self.commit(target, None, [Row(record) for record in good]))
        return _written(decisions, rows=len(good))

    def _add_first(self, decisions: Sequence[Decision], target: Target, empty: bool) -> Written:
        """Append the first good record of each key that the table lacks."""
        good = [d.record for d in decisions if d.is_good]
        present = set() if empty else {row.record.key for row in self.rows(target.ref, target.branch)}
        oldest = one_a_key(good, min, lambda record: record.key)
        first = {key: record for key, record in oldest.items() if key not in present}
        self.job("commit", lambda: self.commit(target, None, [Row(record) for record in first.values()]))
        return _written(decisions, rows=len(first), deduplicated=len(good) - len(first))

    def _replace(self, decisions: Sequence[Decision], target: Target, key: tuple[str, ...], empty: bool) -> Written:
        """Replace the row of each key by its newest good record, in two commits; a tombstone deletes the row."""
        good, identity = [d.record for d in decisions if d.is_good], _identity(key)
        newest = one_a_key(good, max, identity)
        for row in () if empty else self.rows(target.ref, target.branch):
            if (new := newest.get(identity(row.record))) and is_late(new, row.record):
                del newest[identity(row.record)]
        deletions = {d.record for d in decisions if d.is_deletion}
        rows = [Row(record) for record in newest.values() if record not in deletions]
        if empty:
            self.job("commit", lambda: self.commit(target, None, rows))
        else:
            head = self.job("plan", lambda: self.head(target.ref, target.branch))
            keep = lambda row: identity(row.record) not in newest  # noqa: E731
            self.job("commit deletes", lambda: self.commit(target.deleting(), head, keep=keep))
            self.job("plan", lambda: self.head(target.ref, target.branch))
            self.job("commit", lambda: self.commit(target.completing(), None, rows))
        tombstones = len(newest) - len(rows)
        return _written(decisions, rows=len(rows), tombstones=tombstones, superseded=len(good) - len(newest))


def certain_letter(record: Record, known: Collection[int]) -> Letter | None:
    """Return a record as a dead letter; None if it needs a further decision."""
    if record.value is None:
        return Letter(record, "null_value")
    is_garbage = record.is_garbage and not record.is_poison and record.schema_id in known
    return Letter(record, "undecodable") if is_garbage else None


def is_row(record: Record, known: Collection[int]) -> bool:
    """Return whether a record is a row for certain: no other rule than its own schema applies to it."""
    return record.value is not None and record.schema_id in known and not (record.is_garbage or record.is_poison)


def _identity(key: tuple[str, ...]) -> Callable[[Record], Any]:
    if key == ("kafka_partition", "kafka_offset"):
        return lambda record: (record.partition, record.offset)
    return lambda record: record.key


def _written(decisions: Sequence[Decision], **counts: int) -> Written:
    dead = [d for d in decisions if d.reason]
    failing = [d for d in dead if d.reason == "check"]
    return Written(
        Counts(
            consumed=len(decisions), dead_letters=len(dead), filtered=sum(d.is_filtered for d in decisions), **counts
        ),
        unknown_schema=sum(d.reason == "unknown_schema" for d in dead),
        quarantined=len(failing),
        dead_digest=digest(d.record for d in dead),
        check_digest=digest(d.record for d in failing),
    )
