"""The steps that publish a batch, in order: `execute` runs them, and `lakehouse dry-run` prints their texts.

A step has what is known before the batch begins; what the steps before it have done is the argument of its `run`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields, replace
from functools import partial

from pyiceberg.table import Table

from lakehouse.config.checks import SOURCE_SNAPSHOT
from lakehouse.core.errors import BadRecords
from lakehouse.core.offsets.batch import Counts
from lakehouse.core.table_protocol import DECODER, TOKEN
from lakehouse.core.text import pluralize
from lakehouse.pipeline.batches.batch_context import BatchContext
from lakehouse.pipeline.commits import column_checks
from lakehouse.pipeline.commits.audit import CheckResult
from lakehouse.pipeline.commits.staged_commit import Audited, Stage
from lakehouse.pipeline.dead_letters import letters
from lakehouse.pipeline.engine_values import Mode, Target, Written
from lakehouse.pipeline.row_files import LetterFiles, NoRowFiles, RowFiles
from lakehouse.pipeline.schemas import header_ids, recorded_settings, schema_fingerprints
from lakehouse.pipeline.schemas.schema_decision import columns, columns_of_key, ensure_table, schema_changes
from resources.iceberg.snapshots import live_rows_at

ROWS: Mapping[Mode, str] = {
    "append": "append a row for each record",
    "dedup": "append the first row of each key that the table lacks",
    "upsert": "replace the row of each key by its newest record",
    "debezium": "replace the row of each key by its newest change event",
}
"""Effects on rows by mode."""

BAD_RECORDS: Mapping[str, str] = {
    "suspend": "stop if a record does not decode",
    "skip": "skip records that do not decode",
    "log": "records that do not decode become dead letters",
}
"""Effects of records that do not decode, by the topic's `errors`."""


@dataclass(frozen=True)
class StagedBatch:
    """A batch on its branch."""

    context: BatchContext
    """The batch with the schemas of other subjects that its records refer to."""
    stage: Stage
    written: Written
    """The result of the write."""
    counts: Counts
    """Outcomes of the records according to the topic's policy."""
    letters: LetterFiles | None
    """Files of dead letters, which the write did not decide about; None if there are none."""


@dataclass(frozen=True)
class AuditedBatch(StagedBatch):
    """A batch on its branch, which passed its audit."""

    audited: Audited


@dataclass(frozen=True)
class PrepareTable:
    """Create the table, or alter its columns, partition spec and sort order."""

    context: BatchContext

    def __str__(self) -> str:
        topic, schemas, table = self.context.topic, self.context.schemas, self.context.table
        of_key = columns_of_key(schemas)
        note = f" ({', '.join(of_key)} from the message key)" if of_key else ""
        if table is None:
            names = ", ".join(field.name for field in columns(topic, schemas).fields)
            return f"create table {self.context.ref} with the columns {names}{note}"
        changes = "; ".join(map(str, schema_changes(topic, schemas, table)))
        action = f"alter table {self.context.ref}: {changes}" if changes else f"keep the columns of {self.context.ref}"
        return f"{action}{note}"

    def run(self) -> Table:
        """Return the table."""
        context = self.context
        table = ensure_table(context.clients.catalog, context.topic, context.ref, context.schemas, context.table)
        column_checks.validate_quarantine(context.engine, context.topic, context.ref)
        return table


@dataclass(frozen=True)
class StageRows:
    """Write the batch to a branch, and again if headers of its records have schema ids that were not read, or if the
    records refer to schemas that were not known."""

    context: BatchContext
    branch: str | None = None
    """The name of a branch that is never published; None for a new staging branch."""

    def __str__(self) -> str:
        topic, batch = self.context.topic, self.context.batch
        rows, bad = ROWS[topic.mode], BAD_RECORDS[topic.errors]
        return f"write {pluralize(batch.offsets, 'offset')} of '{topic.topic}' to a branch: {rows}; {bad}"

    def run(self, table: Table) -> StagedBatch:
        """Return the batch on its branch.

        Raises:
            BadRecords: Records cannot be decoded, and the topic's policy is to stop.
        """
        context, letter_table = self.context, None
        if self.branch is None and context.topic.errors == "log" and context.expects_others(table):
            letter_table = letters.existing(context)
        return self.stage(table, context.row_files(table, letters=letter_table))

    def stage(self, table: Table, files: RowFiles | NoRowFiles) -> StagedBatch:
        """Return the batch on its branch, with the rows that are in files and the other records decoded.

        Raises:
            BadRecords: Records cannot be decoded, and the topic's policy is to stop.
        """
        context = self.context
        if isinstance(files, RowFiles):
            context = replace(context, others=files.others)
        stage, written = self._write(context, table, files)
        if isinstance(files, RowFiles):
            files = replace(files, written=None)
        if written.ignored_header_ids:
            context = context.reading_header_ids()
            stage, written = self._write(context, context.clients.catalog.refreshed(table), files)
        if written.unknown_schema or written.bad_key:
            known = context.with_foreign_writers(context.with_others(written.others).decided())
            # `unusable_ids` only distinguishes reasons of dead letters, so a change of it alone changes no row.
            if replace(known.schemas, unusable_ids=None) != context.schemas:
                schema_fingerprints.check(table, context.topic, known.schemas)
                stage, written = self._write(known, context.clients.catalog.refreshed(table), files)
            context = known
        context = context.with_others(written.others)
        counts = self._counts(context, written)
        of_letters = None if isinstance(files, NoRowFiles) else files.letters
        if of_letters:
            counts += Counts(consumed=of_letters.count, dead_letters=of_letters.count)
        return StagedBatch(context, stage, written, counts, of_letters)

    def _write(self, context: BatchContext, table: Table, files: RowFiles | NoRowFiles) -> tuple[Stage, Written]:
        def decided_rows(target: Target) -> Written:
            topic, keeps = context.topic, context.keeps_dead_letters(table)
            decided, keeping = context.decided(headers=keeps), context.batch if keeps else None
            is_empty = context.base is None
            return context.engine.write(decided, target, topic.mode, topic.key, empty=is_empty, keeping=keeping)

        def rows(target: Target) -> Written:
            if isinstance(files, NoRowFiles) or not files.rows:
                return decided_rows(target)
            is_complete = files.written is not None or not files.others.table.num_rows
            adding = target if is_complete else target.adding()
            context.clients.catalog.append_files(target.ref, target.branch, files.files, adding.properties)
            added = files.written or Written(Counts(consumed=files.rows, rows=files.rows))
            return added if is_complete else added + decided_rows(target.completing())

        decoder = files.reason if isinstance(files, NoRowFiles) else files.decoder
        properties = {TOKEN: context.batch.to_json(), DECODER: decoder}
        return context.commit.stage(table, rows, properties, self.branch)

    @staticmethod
    def _counts(context: BatchContext, written: Written) -> Counts:
        """Apply the topic's policy to records that could not be decoded, and return the outcomes."""
        topic, counts = context.topic, written.counts
        bad = counts.dead_letters - written.quarantined
        if not bad or topic.errors == "log":
            return counts
        if topic.errors == "skip":
            return replace(counts, skipped=bad, dead_letters=written.quarantined)
        raise BadRecords(topic.name, bad, context.first_faults())


@dataclass(frozen=True)
class Audit:
    """Run the built-in guards and the topic's checks on the branch."""

    checks: tuple[str, ...]
    """The names of the declared checks."""

    def __str__(self) -> str:
        names = f", and the checks {', '.join(self.checks)}" if self.checks else ""
        return f"audit the branch: the built-in guards{names}"

    def run(self, staged: StagedBatch) -> AuditedBatch:
        """Return the batch, which passed.

        Raises:
            AuditFailed: It did not pass.
        """
        context, batch = staged.context, staged.context.batch
        checks = partial(column_checks.batch_results, context, since=batch.start), partial(self._quarantined, staged)
        snapshots = partial(self._source_snapshots, staged)
        audited = context.commit.audit(
            staged.stage, [staged.counts], batch.offsets, *checks, snapshots, since=batch.start
        )
        audited.require_passed()
        return AuditedBatch(**vars(staged), audited=audited)

    @staticmethod
    def _quarantined(staged: StagedBatch, table: Table, snapshot_id: int) -> list[CheckResult]:
        """Return the results of the checks that quarantine rows."""
        context, written = staged.context, staged.written
        if not context.topic.quarantine:
            return []
        row_count, since = written.counts.rows + written.quarantined, context.batch.start
        return column_checks.quarantine_results(
            context.decided(), context.topic, context.ref, table, since, row_count, written.quarantined
        )

    @staticmethod
    def _source_snapshots(staged: StagedBatch, table: Table, snapshot_id: int) -> list[CheckResult]:
        """Return the check of change events for a snapshot of the source that began while the table had rows.

        The rows of a snapshot that was interrupted remain if they were deleted before the next one began.
        """
        context, starts = staged.context, staged.written.snapshot_starts
        if context.topic.mode != "debezium":
            return []
        rows = live_rows_at(table, context.base) if starts and context.base is not None else 0
        if not rows and starts < 2:
            return [CheckResult(SOURCE_SNAPSHOT, True, "no other snapshot of the source began", {}, "warn")]
        partition, offset = context.topic.metadata.place
        older = " OR ".join(f"({partition} = {p} AND {offset} < {o})" for p, o in sorted(context.batch.start.items()))
        message = (
            f"a snapshot of the source began while the table had {rows:,} rows, or within one that was interrupted. "
            f"Rows that were deleted at the source before it began have no deletes. When it is complete, compare the "
            f"rows of {context.ref} that it did not replace with the source: those with {older}"
        )
        return [CheckResult(SOURCE_SNAPSHOT, False, message, {"starts": starts, "rows": rows}, "warn")]


@dataclass(frozen=True)
class ReplaceDeadLetters:
    """Publish the dead letters of the batch in place of those of an earlier attempt at its offsets."""

    table: str

    def __str__(self) -> str:
        return f"replace the dead letters of these offsets in {self.table}"

    def run(self, batch: AuditedBatch) -> None:
        """Publish them, even if the topic keeps none by now: an earlier attempt at the batch may have published some.

        Raises:
            CommitConflict: Another writer published first.
        """
        batch.context.report("dead_letters")
        expected = batch.written.dead if batch.context.topic.errors == "log" else batch.written.failing
        letters.keep(batch.context, expected, batch.letters, batch.audited.branch)


@dataclass(frozen=True)
class Publish:
    """Move main to the branch, in one commit with the offsets and the outcomes of the batch."""

    table: str

    def __str__(self) -> str:
        return f"publish: move main of {self.table} to the branch"

    def run(self, batch: AuditedBatch) -> Table:
        """Return the table with the batch.

        Raises:
            CommitConflict: Another writer published first.
        """
        context, table = batch.context, batch.audited.table
        properties = schema_fingerprints.properties(table, context.schemas)
        properties |= recorded_settings.changed(context.topic, table)
        properties |= header_ids.properties(table, context.schemas)
        return context.commit.publish(batch.audited, vars(batch.counts), properties)


Step = PrepareTable | StageRows | Audit | ReplaceDeadLetters | Publish


@dataclass(frozen=True)
class BatchPlan:
    """The steps of a batch. Each names the results that it needs, which therefore exist when it runs."""

    table: PrepareTable
    rows: StageRows
    audit: Audit
    letters: ReplaceDeadLetters
    publication: Publish

    @staticmethod
    def of(context: BatchContext) -> BatchPlan:
        """Return the plan of a batch."""
        ref = context.ref
        return BatchPlan(
            PrepareTable(context),
            StageRows(context),
            Audit(tuple(context.topic.checks)),
            ReplaceDeadLetters(str(ref.dead_letters)),
            Publish(str(ref)),
        )

    def __iter__(self) -> Iterator[Step]:
        return (getattr(self, field.name) for field in fields(self))

    def execute(self) -> tuple[AuditedBatch, Table]:
        """Run the steps, and return the batch and the table that contains it.

        Raises:
            AuditFailed: The batch failed its audit.
            BadRecords: Records cannot be decoded, and the topic's policy is to stop.
            CommitConflict: Another writer published first.
            SchemaError: The schema cannot become the table's columns.
            UnclearState: The topic was recreated meanwhile, or decoding is not deterministic.
        """
        table = self.table.run()
        staged = self.rows.run(table)
        audited = self.audit.run(staged)
        self.letters.run(audited)
        return audited, self.publication.run(audited)
