"""Write records as rows again, in one publication: what a replay, a redrive and a dry run have in common."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial

from pyiceberg.table import Table

from lakehouse.config.model import Topic
from lakehouse.core.errors import LakehouseError, TransientError, UnclearState
from lakehouse.core.offsets.batch import Batch, Counts, Log, Positions, head, next_batch
from lakehouse.core.table_protocol import RECREATED, REPLAY
from lakehouse.core.tables.naming import TableRef
from lakehouse.pipeline.batches.batch_context import BatchContext
from lakehouse.pipeline.batches.poison import listed
from lakehouse.pipeline.batches.positions import read_log
from lakehouse.pipeline.clients import Clients
from lakehouse.pipeline.commits import column_checks
from lakehouse.pipeline.commits.staged_commit import Audited, Stage
from lakehouse.pipeline.dead_letters import letters
from lakehouse.pipeline.engine import Decided
from lakehouse.pipeline.engine_values import LostRows, Mode, Target, Written
from lakehouse.pipeline.schemas import decoding, foreign_writers, schema_fingerprints
from lakehouse.pipeline.schemas.schema_decision import decide_schema, ensure_table
from resources.iceberg.snapshots import last_batch


@dataclass(frozen=True)
class Rewrite:
    """Decided records to write as rows again."""

    pieces: Sequence[Decided]
    """The records; each piece is one write."""
    records: int
    """The upper bound of the number of records in all pieces."""
    since: Positions
    """The first offset of each partition (inclusive)."""
    summary: Mapping[str, object]
    """What was read, for the summary of the snapshot."""


@dataclass(frozen=True)
class StagedRewrite:
    """A rewrite on a branch, before its audit."""

    stage: Stage
    writes: Sequence[Written]
    """The result of each write."""

    @property
    def written(self) -> Written:
        """The result of all writes."""
        return sum(self.writes, Written(Counts()))


def ingested(namespace: str, topic: Topic, clients: Clients, *, in_place: bool) -> tuple[Log, Positions, BatchContext]:
    """Return the topic's log, the offsets at which its newest table begins, and a context whose batch ends at the
    offsets of that table.

    Args:
        namespace: The namespace of the table.
        topic: The topic.
        clients: Clients of the systems.
        in_place: Whether rows of main are replaced.

    Raises:
        LakehouseError: Nothing was ingested yet.
        UnclearState: The topic was recreated.
    """
    chain = clients.catalog.chain(topic.table_in(namespace))
    ref, table = chain.newest
    last = last_batch(table)
    if table is None or last is None:
        raise LakehouseError(
            f"No record of '{topic.name}' was ingested yet. Nothing was changed. Materialize {topic.name}/iceberg first"
        )
    if in_place and RECREATED in table.properties:
        raise UnclearState(
            f"Table {ref} has rows of a topic that was recreated or lost records, and '{topic.topic}' has other "
            f"records at their offsets now. Nothing was changed. Replay into a branch instead (`--branch NAME`)"
        )
    log = read_log(clients.kafka, topic.topic)
    next_batch(last, log, ref.name)
    if topic.on_incompatible == "new_table":
        # Until the next batch continues in a new table, this one has no record of the schema that does not fit it.
        topic = topic.model_copy(update={"on_incompatible": "dead_letter"})
    context = rewriting_context(topic, ref, clients, last, table)
    column_checks.validate_quarantine(context.engine, topic, ref)
    return log, chain.begin, context


def rewriting_context(topic: Topic, ref: TableRef, clients: Clients, batch: Batch, table: Table | None) -> BatchContext:
    """Return the context for reading records again with the schema that ingestion uses.

    Raises:
        IncompatibleSchema: Ingestion would refuse the newest schema, or roll over to a new table.
    """
    base = table.metadata.current_snapshot_id if table else None
    decision = decide_schema(topic, decoding.resolve_schemas(clients.schema_registry, topic), table)
    return BatchContext(topic, ref, clients, batch, table, base, decision.require_readable())


def of_range(context: BatchContext) -> tuple[BatchContext, Rewrite]:
    """Return the rewrite of the context's batch, and the context with the schemas that decode its records.

    Raises:
        LakehouseError: Records refer to more schemas than the lookup limit: one of them may be the newest of its key.
    """
    whole, topic, engine = context.batch, context.topic, context.engine
    ranges, remaining = [], whole
    # Change events omit values that earlier ones have, so all of them are one piece.
    most = whole.offsets if topic.mode == "debezium" else topic.max_records_per_batch
    while remaining.offsets:
        piece = head(remaining, most)
        ranges.append(context.records(piece))
        remaining = replace(remaining, start=piece.end)
    for records in ranges:
        # Look up the schemas of all pieces first: a record with an unknown schema may be the newest of its key.
        context = context.with_foreign_writers(
            engine.decide(records, context.decoding(again=True)), foreign_writers.BY_HAND
        )
        if context.schemas.unusable_ids is not None:
            raise LakehouseError(
                f"Records of '{topic.name}' refer to more schema ids of other subjects than are looked up at a time. "
                f"Nothing was changed. Replay a smaller range"
            )
    instructions, headers = context.decoding(again=True), topic.keeps_dead_letters
    pieces = [engine.decide(records, instructions, headers=headers) for records in ranges]
    return context, Rewrite(pieces, whole.offsets, whole.start, {"start": dict(whole.start), "end": dict(whole.end)})


def stage(context: BatchContext, rewrite: Rewrite, branch: str | None = None) -> StagedRewrite:
    """Replace the rows of records on a new branch that is to be published, or on a named one, which never is.

    Raises:
        CommitConflict: Another writer dropped the branch, or the table.
        TransientError: The broker compacted the topic.
    """
    topic, catalog = context.topic, context.clients.catalog
    schema_fingerprints.check(context.table, topic, context.schemas)
    table = ensure_table(catalog, topic, context.ref, context.schemas, context.table)
    # Reading the records may have taken long.
    table = catalog.load(context.ref) or table
    key = topic.key if topic.replaces_rows or topic.mode == "dedup" else topic.metadata.place
    mode: Mode = "dedup" if topic.mode == "dedup" else "upsert"

    def rows(target: Target) -> list[Written]:
        written = [context.engine.write(piece, target, mode, key, empty=False) for piece in rewrite.pieces]
        if topic.replaces_rows and branch is None:
            _require_no_lost_rows(context, rewrite, target, key)
        return written

    return StagedRewrite(*context.commit.stage(table, rows, {REPLAY: json.dumps(rewrite.summary)}, branch))


def audit(context: BatchContext, rewrite: Rewrite, staged: StagedRewrite) -> Audited:
    """Run the audit that every batch must pass.

    Raises:
        CommitConflict: Another writer published meanwhile, or dropped the branch.
        UnclearState: The topic was recreated meanwhile.
    """
    checks = partial(column_checks.batch_results, context, since=rewrite.since, again=True)
    counts = [part.counts for part in staged.writes]
    return context.commit.audit(staged.stage, counts, rewrite.records, checks, since=rewrite.since)


def publish_range(context: BatchContext, rewrite: Rewrite) -> tuple[Written, Audited]:
    """Replace the rows of a range of the log, and add the dead letters that it lacks.

    Raises:
        AuditFailed: The rows did not pass their audit.
        CommitConflict: Another writer published meanwhile.
        TransientError: The broker compacted the topic.
        UnclearState: The topic was recreated.
    """
    staged, topic = stage(context, rewrite), context.topic
    written, audited = staged.written, audit(context, rewrite, staged)
    audited.require_passed()
    dead = written.dead if topic.errors == "log" else written.failing
    if topic.keeps_dead_letters and dead.count:
        letters.add_missing(context, rewrite.pieces, staged.stage.target)
    context.commit.publish(audited)
    return written, audited


def _require_no_lost_rows(context: BatchContext, rewrite: Rewrite, target: Target, key: tuple[str, ...]) -> None:
    """Require that each row of main is on a branch, or that a record which was read replaces or removes it.

    A replay first writes an older record of a key, then the newest one. If the broker deletes the latter in between
    (Kafka, Log compaction), a newer record of the key may not decode, or not be in the range yet: the key would have
    the older row, or none.
    """
    place = context.topic.metadata.place
    lost = context.engine.count(LostRows(context.base, target, rewrite.pieces, context.batch, key, place))
    if lost:
        raise TransientError(
            f"The broker compacted '{context.batch.topic}' while its records were read, so keys would lose their "
            f"newest rows ({listed(lost)})",
            "Nothing was published",
            "Run the command again",
        )
