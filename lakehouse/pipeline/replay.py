"""Read records again: a range of the log, or dead letters that may decode by now. Repeating it changes nothing.

Rows are identified by partition and offset, or by key in tables with one row per key, so existing rows are replaced by
equal ones. The stored offsets do not change.
"""

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
from lakehouse.core.text import pluralize
from lakehouse.pipeline.batches.batch_context import BatchContext
from lakehouse.pipeline.batches.offsets import parse_offsets, parse_position
from lakehouse.pipeline.batches.poison import listed, report_aborted
from lakehouse.pipeline.batches.positions import read_log, within
from lakehouse.pipeline.clients import Clients
from lakehouse.pipeline.commits import column_checks
from lakehouse.pipeline.commits.audit import AuditFailed, CheckResult
from lakehouse.pipeline.commits.staged_commit import Audited
from lakehouse.pipeline.dead_letters import letters
from lakehouse.pipeline.engine import Decided
from lakehouse.pipeline.engine_values import JobFailed, LetterSet, Mode, Place, Target, WaitingLetters, Written
from lakehouse.pipeline.schemas import decoding, foreign_writers, schema_fingerprints
from lakehouse.pipeline.schemas.schema_decision import decide_schema, ensure_table
from resources.iceberg.snapshots import last_batch
from resources.iceberg.table_chain import TableChain

MOST_NAMED = 10
"""Maximum number of dead letters that a redrive names."""


@dataclass(frozen=True)
class Replayed:
    """Result of reading records again.

    Attributes:
        batch: The offsets.
        counts: Outcomes of the records.
        snapshot_id: The snapshot that contains the rows; None if there was nothing to read.
        quarantined: How many of the dead letters, which are left unchanged, fail a check.
        findings: Results of the audit.
    """

    batch: Batch
    counts: Counts
    snapshot_id: int | None
    quarantined: int = 0
    findings: Sequence[CheckResult] = ()


@dataclass(frozen=True)
class _Read:
    """Decided records to write as rows again.

    Attributes:
        pieces: The records; each piece is one write.
        summary: Properties for the summary of the snapshot.
        records: The upper bound of the number of records in all pieces.
        since: The first offset of each partition (inclusive).
        remaining: The records that were decided to remain dead letters; None if there was no such decision.
    """

    pieces: Sequence[Decided]
    summary: Mapping[str, object]
    records: int
    since: Positions
    remaining: LetterSet | None = None


@dataclass(frozen=True)
class Redriven:
    """Result of a redrive.

    Attributes:
        attempted: Number of dead letters that were decoded again.
        recovered: Number of them that became rows.
        gone: Number of those that decode, and remain because their records were not read again.
        first_gone: The partitions and offsets of the first of the latter.
        aborting: Records whose decoding aborts the Spark job, so that no earlier ones of their partitions were read.
    """

    attempted: int
    recovered: int
    gone: int = 0
    first_gone: tuple[Place, ...] = ()
    aborting: tuple[Place, ...] = ()

    def describe(self) -> str:
        """Return the result as a sentence."""
        text = f"{pluralize(self.attempted, 'dead letter')} decoded again: {pluralize(self.recovered, 'new row')}"
        if not self.gone:
            return text
        more = f", and {self.gone - len(self.first_gone):,} more" if self.gone > len(self.first_gone) else ""
        text += f". No row for {pluralize(self.gone, 'decodable dead letter')} ({listed(self.first_gone)}{more}): "
        if not self.aborting:
            return f"{text}the broker deleted the record, and perhaps a newer one of its key"
        return (
            f"{text}the broker deleted the record, or a later one aborts the Spark job ({listed(self.aborting)}), and "
            f"perhaps a newer one of its key. Give Spark what that one needs, such as more memory, and run "
            f"`lakehouse redrive` again"
        )


def replay(namespace: str, topic: Topic, clients: Clients, since: str, branch: str | None = None) -> Replayed:
    """Read the log again from `since` up to the table's offsets, and replace the rows of those records.

    Args:
        namespace: The namespace of the table.
        topic: The topic.
        clients: Clients of the systems.
        since: A start position as in lakehouse.yaml, or offsets such as `0:12,1:40`: partitions that are not named are
            not read. Nothing is read from before the table to which the topic rolled over.
        branch: The branch that receives the rows instead of main; it is created if it does not exist.

    Raises:
        AuditFailed: The rows did not pass the audit that every batch must pass.
        CommitConflict: Another writer published meanwhile.
        LakehouseError: Nothing was ingested yet, or the table does not have the offsets in `since`.
        TransientError: The Spark job was aborted, for example by a skipped record, or the broker compacted the topic.
        UnclearState: The log no longer has the range, or the topic was recreated.
    """
    log, chain, context = _ingested(namespace, topic, clients, in_place=branch is None)
    position, first = context.batch, chain.begin
    _require_ingested(context, parse_offsets(since), first)
    start = parse_position(log, clients.kafka, since, unnamed=dict.fromkeys(log.end, 0) | dict(position.end)).end
    whole = replace(position, start={p: min(max(start.get(p, o), first.get(p, 0)), o) for p, o in position.end.items()})
    remedy = (
        "Retry the command. If a record that was skipped by `lakehouse resume` aborts the job, begin after it, for "
        "example with `--since 0:12,1:40`, or give Spark what it needs, such as more memory for its executors"
    )
    context = replace(context, batch=within(whole, log))
    with report_aborted(topic, "No row was changed", remedy, context.aborting_record):
        replayed = read_again(context, branch)
    if branch is not None and any(finding.blocks for finding in replayed.findings):
        raise AuditFailed(context.ref.name, branch, list(replayed.findings), "the branch is left unchanged")
    if branch is None:
        # Otherwise, they would wait for a redrive, although their records are rows.
        letters.mark_existing_rows(clients, topic, context.ref, position, position)
    return replayed


def _require_ingested(context: BatchContext, start: Positions, first: Positions) -> None:
    """Require that the table, which begins at the offsets in `first`, has the offsets at which a replay begins.

    Raises:
        LakehouseError: It does not have one of them.
    """
    for partition, offset in start.items():
        end = context.batch.end.get(partition)
        if offset < first.get(partition, 0):
            raise LakehouseError(
                f"In table {context.ref.name}, to which '{context.topic.name}' rolled over, partition {partition} "
                f"begins at offset {first[partition]}. Nothing was changed. Begin there: earlier records are in the "
                f"table before it"
            )
        if end is None or offset > end:
            extent = f"partition {partition} up to offset {end}" if end else f"nothing of partition {partition}"
            raise LakehouseError(
                f"Table {context.ref.name} has {extent} of '{context.topic.topic}', so it cannot be replayed from "
                f"offset {offset}. Nothing was changed. Name offsets that the table has, and omit partitions that "
                f"should not be replayed"
            )


def redrive(namespace: str, topic: Topic, clients: Clients, *, poison: bool = False) -> Redriven:
    """Decode the table's dead letters again; those that decode become rows with their original offsets.

    In a table where a record replaces the row of its key, a dead letter remains if neither its record nor a later one
    of its key is read again: one that the broker deleted, or that aborts the job, may have replaced its row.

    Args:
        namespace: The namespace of the table.
        topic: The topic.
        clients: Clients of the systems.
        poison: Whether to decode the records whose decoding aborted the Spark job, too.

    Raises:
        UnclearState: The table has rows of a topic that was recreated, or the topic was recreated meanwhile.
        CommitConflict: Another writer changed the table or the dead letters meanwhile.
        TransientError: The Spark job was aborted, for example by a poisonous record, or the broker compacted the topic.
    """
    others = f", or run `lakehouse redrive {topic.name}` without --poison for the others" if poison else ""
    remedy = f"Give Spark what the records need, such as more memory for its executors{others}"
    with report_aborted(topic, "No dead letter was marked as recovered, and published rows are complete", remedy):
        return _redrive(namespace, topic, clients, poison)


def _redrive(namespace: str, topic: Topic, clients: Clients, poison: bool) -> Redriven:
    ref = clients.catalog.chain(topic.table_in(namespace)).newest[0].dead_letters
    letter_table = letters.load(clients.catalog, topic, ref)
    snapshot = letter_table.current_snapshot() if letter_table else None
    if snapshot is None:
        return Redriven(0, 0)
    log, chain, context = _ingested(namespace, topic, clients, in_place=True)
    # Every step reads one snapshot: a dead letter added meanwhile must not be marked as recovered.
    # Which rows of the table before a roll-over a dead letter would replace is unknown: their columns differ.
    position, begin = context.batch, chain.begin if topic.replaces_rows else {}
    engine, waiting = context.engine, WaitingLetters(ref, snapshot.snapshot_id, position, begin, poison)
    decided = engine.decide(waiting, context.schemas.decoding())
    known = foreign_writers.with_foreign_writers(
        clients.schema_registry, context.schemas, decided, foreign_writers.BY_HAND
    )
    # A dead letter whose schema id exceeded the lookup limit remains one.
    context = replace(context, schemas=replace(known, unusable_ids=None))
    decided = engine.decide(waiting, context.schemas.decoding())
    attempt = engine.letters.attempt(decided, topic.key if topic.replaces_rows else ())
    # Partitions without one have no row to check.
    first = dict(position.end) | attempt.first_offsets()
    count, remaining = attempt.count, attempt.remaining
    recovered, gone, aborting = count - remaining.count, 0, list[Place]()
    if recovered and topic.replaces_rows:
        # A newer record may have replaced or deleted the row since, so the log must be read from there on.
        since = {p: max(o, log.start[p]) for p, o in first.items()}
        read, aborting = _write_since(replace(context, batch=replace(position, start=since)), poison)
        attempt = engine.letters.confirm(attempt, read.pieces, context.ref, topic.key, topic.metadata.place)
        decodable, recovered = recovered, count - attempt.remaining.count
        gone = decodable - recovered
    elif recovered:
        _write(context, _Read([decided], {"dead_letters": recovered}, count, first, remaining), None)
    if count:
        letters.mark(clients, topic, ref, attempt, position.topic_id, position)
    first_gone = attempt.without_record(MOST_NAMED) if gone else []
    return Redriven(count, recovered, gone, tuple(first_gone), tuple(aborting) if gone else ())


def _write_since(context: BatchContext, poison: bool) -> tuple[_Read, list[Place]]:
    """Write the rows of a range again, in each partition after the last record whose decoding aborts the Spark job.

    An operator skipped such a record, which may have the key of any record before it.

    Returns:
        What was read, and those records.
    """
    aborting: list[Place] = []
    context = context if poison else replace(context, left_out=letters.poisonous_records(context))
    while True:
        try:
            decoding_context, read = _decided(context)
            if read.pieces:
                _write(decoding_context, read, None)
        except JobFailed:
            place = None if poison else context.aborting_record()
            if place is None:
                raise
            partition, offset = place
            aborting.append(place)
            batch = context.batch
            context = replace(context, batch=replace(batch, start={**batch.start, partition: offset + 1}))
        else:
            return read, aborting


def replay_context(topic: Topic, ref: TableRef, clients: Clients, batch: Batch, table: Table | None) -> BatchContext:
    """Return the context for reading records again with the schema that ingestion uses.

    Raises:
        IncompatibleSchema: Ingestion would refuse the newest schema, or roll over to a new table.
    """
    base = table.metadata.current_snapshot_id if table else None
    decision = decide_schema(topic, decoding.resolve_schemas(clients.schema_registry, topic), table)
    return BatchContext(topic, ref, clients, batch, table, base, decision.require_readable())


def _ingested(namespace: str, topic: Topic, clients: Clients, in_place: bool) -> tuple[Log, TableChain, BatchContext]:
    """Return the topic's log and tables, and a context whose batch ends at the table's offsets."""
    chain = clients.catalog.chain(topic.table_in(namespace))
    ref, table = chain.newest
    last = last_batch(table)
    if table is None or last is None:
        raise LakehouseError(
            f"No record of '{topic.name}' was ingested yet. Nothing was changed. Materialize iceberg/{topic.name} first"
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
    context = replay_context(topic, ref, clients, last, table)
    column_checks.validate_quarantine(context.engine, topic, ref)
    return log, chain, context


def read_again(context: BatchContext, branch: str | None) -> Replayed:
    """Write the rows of a range again, all in one publication; into a branch instead of main if one is named.

    Dead letters whose decoding aborts the Spark job are not read.

    Raises:
        LakehouseError: Records refer to more schemas than the lookup limit: one of them may be the newest of its key.
    """
    whole = context.batch
    if not whole.offsets:
        return Replayed(whole, Counts(), None)
    context, read = _decided(replace(context, left_out=letters.poisonous_records(context)))
    written, audited = _write(context, read, branch)
    return Replayed(whole, written.counts, audited.snapshot_id, written.quarantined, audited.findings)


def _decided(context: BatchContext) -> tuple[BatchContext, _Read]:
    """Return the records of the context's batch, and the context with the schemas that decode them.

    Raises:
        LakehouseError: Records refer to more schemas than the lookup limit: one of them may be the newest of its key.
    """
    whole, topic = context.batch, context.topic
    pieces, remaining = [], whole
    while remaining.offsets:
        piece = head(remaining, topic.max_records_per_batch)
        pieces.append(context.records(piece))
        remaining = replace(remaining, start=piece.end)
    schemas = context.schemas
    for records in pieces:
        # Look up the schemas of all pieces first: a record with an unknown schema may be the newest of its key.
        decided = context.engine.decide(records, schemas.decoding())
        schemas = foreign_writers.with_foreign_writers(
            context.clients.schema_registry, schemas, decided, foreign_writers.BY_HAND
        )
        if schemas.unusable_ids is not None:
            raise LakehouseError(
                f"Records of '{topic.name}' refer to more schema ids of other subjects than are looked up at a time. "
                f"Nothing was changed. Replay a smaller range"
            )
    decided_pieces = [
        context.engine.decide(records, schemas.decoding(), headers=topic.keeps_dead_letters) for records in pieces
    ]
    summary = {"start": dict(whole.start), "end": dict(whole.end)}
    return replace(context, schemas=schemas), _Read(decided_pieces, summary, whole.offsets, whole.start)


def _write(context: BatchContext, read: _Read, branch: str | None) -> tuple[Written, Audited]:
    """Replace the rows of records on a branch, and publish it unless `branch` is named.

    Returns:
        The result of the write, and the audit.

    Raises:
        AuditFailed: The rows did not pass their audit, and `branch` is None.
        CommitConflict: Another writer published meanwhile, and `branch` is None.
        TransientError: The broker compacted the topic.
        UnclearState: The records that do not decode are not those that were decided on, or the topic was recreated.
    """
    topic = context.topic
    schema_fingerprints.check(context.table, topic, context.schemas)
    catalog = context.clients.catalog
    table = ensure_table(catalog, topic, context.ref, context.schemas, context.table)
    # Reading the records may have taken long.
    table = catalog.load(context.ref) or table
    key = topic.key if topic.replaces_rows or topic.mode == "dedup" else topic.metadata.place

    def rows(target: Target) -> list[Written]:
        mode: Mode = "dedup" if topic.mode == "dedup" else "upsert"
        written = [context.engine.write(piece, target, mode, key, empty=False) for piece in read.pieces]
        if topic.replaces_rows and branch is None:
            _require_no_lost_rows(context, read, target, key)
        return written

    stage, writes = context.commit.stage(table, rows, {REPLAY: json.dumps(read.summary)}, branch)
    written = sum(writes, Written(Counts()))
    if read.remaining is not None and written.dead != read.remaining:
        raise UnclearState(
            f"{read.remaining.count:,} dead letters of '{topic.name}' did not decode, but {written.dead.count:,} (or "
            f"others) did not decode when the rows were written. Nothing was changed. Run `lakehouse redrive` again; "
            f"if it fails again, correct the quarantining check that is not deterministic"
        )
    checks = partial(context.declared_checks, since=read.since, again=True)
    audited = context.commit.audit(stage, [part.counts for part in writes], read.records, checks)
    if branch is None:
        audited.require_passed()
        dead = written.dead if topic.errors == "log" else written.failing
        if read.remaining is None and topic.keeps_dead_letters and dead.count:
            letters.add_missing(context, read.pieces, stage.target)
        context.commit.publish(audited)
    return written, audited


def _require_no_lost_rows(context: BatchContext, read: _Read, target: Target, key: tuple[str, ...]) -> None:
    """Require that each row of main is on a branch, or that a record which was read replaces or removes it.

    A replay first writes an older record of a key, then the newest one. If the broker deletes the latter in between
    (Kafka, Log compaction), a newer record of the key may not decode, or not be in the range yet: the key would have
    the older row, or none.
    """
    lost = context.engine.lost_rows(context.base, target, read.pieces, context.batch, key, context.topic.metadata.place)
    if lost:
        raise TransientError(
            f"The broker compacted '{context.batch.topic}' while its records were read, so keys would lose their "
            f"newest rows ({listed(lost)})",
            "Nothing was published",
            "Run the command again",
        )
