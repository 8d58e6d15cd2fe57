"""Publish the dead letters of a batch before the batch: exactly those that were decided on while it was staged.

A batch defines its dead letters. Those of an earlier attempt at the same offsets are replaced.
"""

from collections.abc import Sequence

from pyiceberg.table import Table

from lakehouse.config.model import Topic
from lakehouse.core.errors import CommitConflict, UnclearState
from lakehouse.core.offsets.batch import Batch, Counts
from lakehouse.core.tables.letter_columns import PLACE, letter_schema
from lakehouse.core.tables.naming import TableRef
from lakehouse.pipeline.batches.batch_context import BatchContext
from lakehouse.pipeline.clients import Clients
from lakehouse.pipeline.commits.audit import CheckResult, committed_rows
from lakehouse.pipeline.commits.staged_commit import StagedCommit
from lakehouse.pipeline.dead_letters import filters
from lakehouse.pipeline.engine import Decided, LetterAttempt
from lakehouse.pipeline.engine_values import (
    ExistingRows,
    LetterOrigin,
    LetterSet,
    LettersOf,
    PoisonLetters,
    Rejected,
    Target,
    WaitingLetters,
)
from lakehouse.pipeline.row_files import LetterFiles, LetterTable
from resources.iceberg.catalog import Catalog
from resources.iceberg.commits import layout_error


def load(catalog: Catalog, topic: Topic, ref: TableRef) -> Table | None:
    """Load the table of a topic's dead letters; None if it does not exist.

    Raises:
        UnclearState: The dead letters do not record their topic id.
        Unreachable: The catalog does not answer.
    """
    table = catalog.load(ref)
    if table is not None and "topic_id" not in table.schema().column_names:
        raise UnclearState(
            f"Table {ref} was created by an older release, and its dead letters do not record the id of topic "
            f"'{topic.topic}'. Nothing was changed. Rename or drop the table, and read its records again with "
            f"`lakehouse replay {topic.name}`"
        )
    return table


def existing(context: BatchContext) -> LetterTable | None:
    """Return the table of a batch's dead letters; None if it does not exist.

    Raises:
        UnclearState: The dead letters do not record their topic id.
        Unreachable: The catalog does not answer.
    """
    table = load(context.clients.catalog, context.topic, context.ref.dead_letters)
    return None if table is None else LetterTable(table, _origin(context))


def keep(context: BatchContext, expected: LetterSet, files: LetterFiles | None, branch: str) -> None:
    """Replace the dead letters of a batch's offsets by exactly those that were decided on.

    Args:
        context: The batch.
        expected: Its dead letters, except those in files.
        files: Files of dead letters; None if there are none.
        branch: The branch on which the batch is staged.

    Raises:
        AuditFailed: The dead letters are incomplete. Nothing was published.
        CommitConflict: Another writer published the batch or dead letters meanwhile, or changed their table.
        UnclearState: Decoding again did not result in the same dead letters. Nothing was published.
    """
    topic, batch, catalog, ref = context.topic, context.batch, context.clients.catalog, context.ref.dead_letters
    table = catalog.refreshed(files.table) if files else load(catalog, topic, ref)
    number = expected.count + (files.count if files else 0)
    if table is None and not number:
        return
    table = catalog.ensure_table(ref, letter_schema(), existing=table)
    if files and table.schema() != files.table.schema():
        raise layout_error(str(ref))
    previous, engine = LetterSet(), context.engine
    if may_hold(catalog, table, batch):
        previous = engine.count(LettersOf(ref, batch))
    if previous == expected and not files:
        return

    def replace_letters(target: Target) -> None:
        parts = 1
        if previous.count:
            engine.letters.discard(target, batch)
            parts += 1
        if expected.count:
            rejected = Rejected(context.decided(headers=True), _origin(context))
            engine.letters.put(rejected, target.adding() if files else target.completing(parts))
            parts += 1
        if files:
            catalog.append_files(ref, target.branch, files.files, target.completing(parts).properties)

    commit = StagedCommit(context.clients, ref, table.metadata.current_snapshot_id, batch, place=PLACE)
    stage, _ = commit.stage(table, replace_letters, {})

    def same_decision(*_: object) -> list[CheckResult]:
        # Those in files were decided once, and the audit has counted them.
        is_one_part = bool(files) and not expected.count and not previous.count
        written = expected if is_one_part else engine.count(LettersOf(ref, batch, stage.target.branch))
        is_same = is_one_part or (written.count == number if files else written == expected)
        if not is_same:
            raise UnclearState(
                f"{number:,} records of '{topic.name}' were dead letters when their batch was written, but "
                f"{written.count:,} (or others) when the dead letters were written. The batch was not published. Retry "
                f"the run or command, because a schema or the log may have changed; if it fails again, correct "
                f"the quarantining check that is not deterministic (`lakehouse dead-letters {topic.name}`)"
            )
        # The last step before the publication: another writer may have audited the batch since this one did.
        _require_not_excluded(context, branch)
        return []

    writes = [Counts(consumed=number, rows=number)] if number else []
    commit.publish(commit.audit(stage, writes, batch.offsets, same_decision, since=batch.start))


def _origin(context: BatchContext) -> LetterOrigin:
    topic = context.topic
    # Without the policy `log`, records that do not decode are skipped, and only quarantined rows are kept.
    return LetterOrigin(topic.topic, context.batch.topic_id, topic.name, context.ref, topic.errors != "log")


def _require_not_excluded(context: BatchContext, branch: str) -> None:
    """Require that no other writer has published the batch, or dropped this writer's branch to do so.

    One that drops it later drops the staged dead letters, too.

    Raises:
        CommitConflict: Another writer changed the table.
    """
    table = context.clients.catalog.load(context.ref)
    if table is None or table.metadata.current_snapshot_id != context.base or branch not in table.metadata.refs:
        raise CommitConflict(
            f"Another writer changed {context.ref} while this batch was prepared. The batch was not published. Retry "
            f"the run or command"
        )


def add_missing(context: BatchContext, pieces: Sequence[Decided], staged: Target) -> None:
    """Add the dead letters of records that are neither waiting as dead letters nor rows: a replay reads what
    `lakehouse resume` skipped, and in a table with one row per key, an older row may return if the newer one fails a
    check by now. If a redrive had added the newer one, its dead letter waits again.

    Args:
        context: The range that is replayed.
        pieces: Its records, with headers.
        staged: The branch with the rows of the replay.

    Raises:
        CommitConflict: Another writer changed the dead letters meanwhile.
    """
    topic, batch, ref = context.topic, context.batch, context.ref.dead_letters
    previous = load(context.clients.catalog, topic, ref)
    table = context.clients.catalog.ensure_table(ref, letter_schema(), existing=previous)
    letters, rejected = context.engine.letters, [Rejected(piece, _origin(context)) for piece in pieces]
    missing = letters.missing(rejected, ref, batch, staged, topic.metadata.place)
    if not missing.count:
        return
    has_earlier = table.current_snapshot() is not None

    def add(target: Target) -> None:
        if has_earlier:
            letters.discard(target, batch, replaced_by=missing)
        letters.put(missing, target.completing() if has_earlier else target)

    commit = StagedCommit(context.clients, ref, table.metadata.current_snapshot_id, batch, place=PLACE)
    stage, _ = commit.stage(table, add, {})
    counts = Counts(consumed=missing.count, rows=missing.count)
    commit.publish(commit.audit(stage, [counts], batch.offsets, since=batch.start))


def poisonous_records(context: BatchContext) -> list[tuple[int, int]]:
    """Return the partition and offset of each record of the context's batch that is a dead letter because decoding it
    aborts the Spark job."""
    ref = context.ref.dead_letters
    table = load(context.clients.catalog, context.topic, ref)
    if table is None or not may_hold(context.clients.catalog, table, context.batch):
        return []
    return context.engine.count(PoisonLetters(ref, context.batch))


def mark(clients: Clients, topic: Topic, ref: TableRef, attempt: LetterAttempt, topic_id: str, source: Batch) -> None:
    """Publish one more attempt at each dead letter, and mark those that are rows now.

    Args:
        clients: Clients of the systems.
        topic: The topic.
        ref: The table of the dead letters.
        attempt: The dead letters.
        topic_id: Id of the topic that the dead letters come from.
        source: A batch of the present topic, which must not be recreated meanwhile.

    Raises:
        UnclearState: The topic was deleted or recreated meanwhile.
        CommitConflict: Another writer changed the letters meanwhile.
    """
    changed = CommitConflict(
        f"Dead letters of '{topic.name}' were changed by another writer while they were decoded again. Decoded "
        f"rows are in the table, and the dead letters were left unchanged. Run `lakehouse redrive {topic.name}` again"
    )
    table = load(clients.catalog, topic, ref)
    if table is None:
        raise changed

    def each_is_marked(staged: Table, snapshot_id: int) -> list[CheckResult]:
        snapshot = staged.snapshot_by_id(snapshot_id)
        if snapshot is None or committed_rows(snapshot) != attempt.count:
            raise changed
        return []

    commit = StagedCommit(clients, ref, table.metadata.current_snapshot_id, source)
    stage, _ = commit.stage(table, lambda target: clients.engine.letters.mark(attempt, target, topic_id), {})
    counts = Counts(consumed=attempt.count, rows=attempt.count)
    commit.publish(commit.audit(stage, [counts], attempt.count, each_is_marked))


def mark_existing_rows(clients: Clients, topic: Topic, ref: TableRef, previous: Batch, source: Batch) -> None:
    """Mark the dead letters whose records are rows: a redrive was interrupted between the rows and the marks.

    Once the table has rows of a recreated topic, offsets no longer identify rows, and a redrive is refused.

    Args:
        clients: Clients of the systems.
        topic: The topic.
        ref: The table that lacks the dead letters. All its rows are of the topic of `previous`.
        previous: The newest batch of the table.
        source: A batch of the present topic, which must not be recreated meanwhile.

    Raises:
        UnclearState: The topic was deleted or recreated meanwhile.
        CommitConflict: Another writer changed the dead letters meanwhile.
    """
    table = load(clients.catalog, topic, ref.dead_letters)
    snapshot = table.current_snapshot() if table else None
    if snapshot is None:
        return
    waiting = WaitingLetters(ref.dead_letters, snapshot.snapshot_id, previous)
    existing = clients.engine.letters.attempt(ExistingRows(waiting, ref, topic.metadata.place))
    if existing.count:
        mark(clients, topic, ref.dead_letters, existing, previous.topic_id, source)


def may_hold(catalog: Catalog, table: Table, batch: Batch) -> bool:
    """Return whether the statistics of the table's files allow dead letters of a batch's offsets.

    Raises:
        Unreachable: A file of the table could not be read.
    """
    with catalog.translate_errors():
        return table.current_snapshot() is not None and any(table.scan(row_filter=filters.of_batch(batch)).plan_files())
