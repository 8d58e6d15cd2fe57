"""Records read again: a range of the log, or dead letters whose reason is gone. Doing it twice changes nothing.

Rows are told by partition and offset (or by key, where a table has one row a key), so what is there already is replaced
by itself. The position does not move.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING

from lakehouse.config.topic import Topic
from lakehouse.core import naming
from lakehouse.core.batch import REPLAY, REPLAYS, Batch, Log, Positions, next_batch, split
from lakehouse.core.counts import Counts
from lakehouse.core.errors import LakehouseError, UnclearState
from lakehouse.pipeline import codecs, fingerprints, letters, quality
from lakehouse.pipeline.audit import AuditFailed, Finding
from lakehouse.pipeline.batch_context import BatchContext
from lakehouse.pipeline.clients import Clients
from lakehouse.pipeline.ingestion import read_log
from lakehouse.pipeline.position import at, named
from lakehouse.pipeline.schema_decision import decide_schema, ensure_table
from resources.catalog import RECREATED
from resources.snapshots import last_batch

if TYPE_CHECKING:
    from pyiceberg.table import Table
    from pyspark.sql import DataFrame

    from lakehouse.pipeline.staged_commit import Audited
    from spark.decision import Decision
    from spark.write import Target, Written


@dataclass(frozen=True)
class Replayed:
    """What was read again. `snapshot_id` is None where there was nothing; of the dead letters, which stay where they
    are, `quarantined` fail a check. `findings` are those of the rows' audit."""

    batch: Batch
    counts: Counts
    snapshot_id: int | None
    quarantined: int = 0
    findings: Sequence[Finding] = ()


@dataclass(frozen=True)
class _Read:
    """Decoded records that become rows again.

    Attributes:
        pieces: The records, each piece written by itself.
        summary: What the snapshot's summary says of them.
        records: The most records there are in all pieces.
        since: The first offset of each partition.
        staying: The records that are no rows, where that was decided before.
    """

    pieces: Sequence[DataFrame]
    summary: Mapping[str, object]
    records: int
    since: Positions
    staying: Decision | None = None


@dataclass(frozen=True)
class Redriven:
    """Dead letters that were decoded again: how many, and how many are rows now."""

    tried: int
    landed: int


def replay(namespace: str, topic: Topic, systems: Clients, since: str, branch: str | None = None) -> Replayed:
    """Read the log again from `since` up to the table's position, and replace the rows of those records.

    Args:
        namespace: The table's namespace.
        topic: The topic.
        systems: Where everything is.
        since: As lakehouse.yaml writes a start, or offsets such as `0:12,1:40`: partitions that are not named are not
            read.
        branch: Where rows go instead of main. It is made where it is missing.

    Raises:
        LakehouseError: Nothing was ingested yet, or the table does not have what `since` names.
        UnclearState: The log no longer has the range, or is another one.
        AuditFailed: The rows did not pass the audit that a batch has to pass.
        CommitConflict: Another writer published meanwhile.
    """
    log, context = _ingested(namespace, topic, systems, in_place=branch is None)
    position, topic = context.batch, context.topic
    _require_ingested(topic, named(since), position)
    start = at(log, systems.kafka, since, unnamed=dict.fromkeys(log.end, 0) | dict(position.end)).end
    wanted = replace(position, start={p: min(start.get(p, o), o) for p, o in position.end.items()})
    done = read_again(replace(context, batch=_within(wanted, log)), branch)
    if branch is not None and any(finding.blocks for finding in done.findings):
        raise AuditFailed(topic.table, branch, list(done.findings), "the branch stays as it is")
    return done


def _require_ingested(topic: Topic, start: Positions, position: Batch) -> None:
    """Compare the offsets that a replay begins at with the table's position.

    Raises:
        LakehouseError: The table does not have one of them yet.
    """
    for partition, offset in start.items():
        end = position.end.get(partition)
        if end is None or offset > end:
            there = f"has partition {partition} up to offset {end}" if end else f"has nothing of partition {partition}"
            raise LakehouseError(
                f"Table {topic.table} {there} of '{topic.topic}', so it cannot be read again from {offset}. Nothing "
                f"was changed. Name offsets that the table has, and leave out partitions that are not meant"
            )


def redrive(namespace: str, topic: Topic, systems: Clients) -> Redriven:
    """Decode the table's dead letters again; those that decode become rows with their original offsets.

    Raises: UnclearState when a table with one row a key would need records that the log no longer has.
    """
    from spark import dead_letters
    from spark.decode import decode

    topic, _ = systems.catalog.resolve_table(namespace, topic)
    name = naming.dead_letter_table(topic.table)
    letter_table = letters.load(systems.catalog, namespace, topic)
    snapshot = letter_table.current_snapshot() if letter_table else None
    if snapshot is None:
        return Redriven(0, 0)
    log, context = _ingested(namespace, topic, systems, in_place=True)
    position = context.batch
    # One snapshot for every step: a letter that comes meanwhile must not be marked as landed.
    waiting = dead_letters.waiting(context.spark, namespace, name, snapshot.snapshot_id, position)
    decoded = decode(waiting, context.formats.decoding())
    known = codecs.with_foreign_writers(systems.schema_registry, context.formats, decoded, codecs.BY_HAND)
    # A letter that nobody looked up is one more that stays.
    known = replace(known, absent=None)
    context = replace(context, formats=known)
    decoded = decode(waiting, known.decoding())
    tried = dead_letters.tried(decoded)
    first = dead_letters.first_offsets(tried)
    count, staying = dead_letters.staying(tried)
    landing = count - staying.count
    if landing and topic.replaces:
        # A newer record may have replaced or deleted the row since: only the log knows.
        since = {p: min(first.get(p, o), o) for p, o in position.end.items()}
        read_again(replace(context, batch=_within(replace(position, start=since), log)), None)
    elif landing:
        _write(context, _Read([decoded], {"dead_letters": landing}, count, first, staying), None)
    if count:
        dead_letters.mark(tried, namespace, name, position.topic_id)
    return Redriven(count, landing)


def replay_context(namespace: str, topic: Topic, systems: Clients, batch: Batch, table: Table | None) -> BatchContext:
    """Return the context of records that are read again, by the schema that ingestion reads by.

    Raises:
        DoesNotFit: Ingestion would stop at the newest schema, or continue in a new table.
    """
    base = table.metadata.current_snapshot_id if table else None
    decision = decide_schema(topic, codecs.formats(systems.schema_registry, topic), table)
    return BatchContext(namespace, topic, systems, batch, table, base, decision.require_readable())


def _ingested(namespace: str, topic: Topic, systems: Clients, in_place: bool) -> tuple[Log, BatchContext]:
    """The topic's log, and the context whose batch ends at the table's position in it."""
    topic, table = systems.catalog.resolve_table(namespace, topic)
    last = last_batch(table)
    if table is None or last is None:
        raise LakehouseError(f"Nothing of '{topic.name}' was ingested yet. Materialize iceberg/{topic.name} first")
    if in_place and RECREATED in table.properties:
        raise UnclearState(
            f"Table {namespace}.{topic.table} holds rows of a topic that was recreated since, or that lost records, "
            f"whose offsets other records of '{topic.topic}' have now. Nothing was changed. Replay into a branch "
            f"instead"
        )
    log = read_log(systems.kafka, topic.topic)
    next_batch(last, log, topic.table)
    context = replay_context(namespace, topic, systems, last, table)
    quality.fit(context.spark, namespace, topic)
    return log, context


def _within(wanted: Batch, log: Log) -> Batch:
    """The range, all of which the log must still have."""
    for partition, offset in wanted.start.items():
        if offset < min(log.start[partition], wanted.end[partition]):
            raise UnclearState(
                f"Topic '{wanted.topic}' partition {partition} no longer has offsets {offset} to "
                f"{log.start[partition] - 1}. Nothing was changed. Begin at `earliest`, which is what is left"
            )
    return wanted


def read_again(context: BatchContext, branch: str | None) -> Replayed:
    """Write the rows of a range again, all of them in one publication; with a branch, to that and not to main.

    Raises:
        LakehouseError: Records name more schemas than are looked up: one of them may be the newest of its key.
    """
    from spark.decode import decode
    from spark.records import read_range

    wanted, topic = context.batch, context.topic
    if not wanted.offsets:
        return Replayed(wanted, Counts(), None)
    options, headers = context.clients.kafka.spark_options(), context.formats.decoding().needs_headers
    pieces, rest = [], wanted
    while rest.offsets:
        piece = split(rest, topic.max_records_per_batch)
        pieces.append(read_range(context.spark, options, piece, headers=headers))
        rest = replace(rest, start=piece.end)
    known = context.formats
    for records in pieces:
        # A record whose schema is not known yet may be the newest of its key.
        decoded = decode(records, known.decoding())
        known = codecs.with_foreign_writers(context.clients.schema_registry, known, decoded, codecs.BY_HAND)
        if known.absent is not None:
            raise LakehouseError(
                f"Records of '{topic.name}' name more schema ids that it does not have than are looked up at a time. "
                f"Nothing was changed. Replay a smaller range"
            )
    context = replace(context, formats=known)
    every = [decode(records, known.decoding()) for records in pieces]
    summary = {"start": dict(wanted.start), "end": dict(wanted.end)}
    written, audited = _write(context, _Read(every, summary, wanted.offsets, wanted.start), branch)
    return Replayed(wanted, written.counts, audited.snapshot_id, written.quarantined, audited.findings)


def _write(context: BatchContext, read: _Read, branch: str | None) -> tuple[Written, Audited]:
    """Replace the rows of decoded records on a branch, and publish it unless the branch was asked for.

    Returns:
        What was written, and its audit.

    Raises:
        AuditFailed: The rows did not pass their audit, and no branch was asked for.
        UnclearState: Other records than those that were decided on are no rows, or the topic was recreated.
        CommitConflict: Another writer published meanwhile, and no branch was asked for.
    """
    from spark import write

    topic, names = context.topic, context.topic.metadata.names
    fingerprints.check(context.table, topic, context.formats)
    # Loaded anew: reading the records may have taken long.
    table = ensure_table(context.clients.catalog, context.namespace, topic, context.formats)
    key = topic.key if topic.replaces else (names["kafka_partition"], names["kafka_offset"])

    def rows(target: Target) -> Written:
        written = write.Written(Counts())
        for decoded in read.pieces:
            if topic.mode == "dedup":
                written += write.dedup(decoded, target, topic.key, empty=False)
            else:
                written += write.upsert(decoded, target, key, empty=False)
        return written

    stage, written = context.commit.stage(table, rows, {REPLAY: json.dumps(read.summary)}, branch)
    if read.staying is not None and written.dead != read.staying:
        raise UnclearState(
            f"Of '{topic.name}', {read.staying.count:,} dead letters were found not to decode, and "
            f"{written.dead.count:,} (or others) did not when their rows were written. Nothing was changed. Run "
            f"`lakehouse redrive` again; if it stops again, correct the quarantining check that does not always "
            f"give the same answer"
        )
    checks = partial(context.declared_checks, since=read.since, again=True)
    audited = context.commit.audit(stage, written.counts, read.records, checks, writes=len(read.pieces))
    if branch is None:
        replays = {REPLAYS: str(int(audited.table.properties.get(REPLAYS, 0)) + 1)}
        context.commit.publish(audited, properties=replays)
    return written, audited
