"""Records read again: a range of the log, or dead letters whose reason is gone. Doing it twice changes nothing.

Rows are told by partition and offset (or by key, where a table has one row a key), so what is there already is replaced
by itself. The position does not move.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from lakehouse.config.topic import Topic
from lakehouse.core import naming
from lakehouse.core.batch import REPLAY, REPLAYS, Batch, Log, Positions, next_batch, split
from lakehouse.core.counts import Counts
from lakehouse.core.errors import LakehouseError, UnclearState
from lakehouse.pipeline import fingerprints, letters, quality
from lakehouse.pipeline.clients import Clients
from lakehouse.pipeline.ingestion import ensure_table, fitting, read_log, require_same_topic
from lakehouse.pipeline.position import at, named
from lakehouse.pipeline.staging import Staging
from resources.catalog import RECREATED
from resources.snapshots import last_batch

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from lakehouse.pipeline.audit import Finding
    from lakehouse.pipeline.codecs import Formats
    from spark.decision import Decision
    from spark.write import Written


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
        said: What the snapshot's summary says of them.
        records: The most records there are in all pieces.
        since: The first offset of each partition.
        log: The range that was read, where the records are from the log.
        staying: The records that are no rows, where that was decided before.
    """

    pieces: Sequence[DataFrame]
    said: Mapping[str, object]
    records: int
    since: Positions
    log: Batch | None = None
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
    from lakehouse.pipeline.audit import AuditFailed

    topic = systems.catalog.current(namespace, topic)
    log, position = _ingested(namespace, topic, systems, in_place=branch is None)
    _require_ingested(topic, named(since), position)
    start = at(log, systems.kafka, since, unnamed=dict.fromkeys(log.end, 0) | dict(position.end)).end
    wanted = replace(position, start={p: min(start.get(p, o), o) for p, o in position.end.items()})
    known = _formats(namespace, topic, systems)
    done = again(namespace, topic, systems, known, _within(wanted, log), branch)
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
    from lakehouse.pipeline.codecs import BY_HAND, with_foreign_writers
    from spark import dead_letters
    from spark.decode import decode

    topic = systems.catalog.current(namespace, topic)
    name = naming.dead_letter_table(topic.table)
    letter_table = letters.load(systems.catalog, namespace, topic)
    snapshot = letter_table.current_snapshot() if letter_table else None
    if snapshot is None:
        return Redriven(0, 0)
    log, position = _ingested(namespace, topic, systems, in_place=True)
    spark = systems.spark.session(systems.catalog.spark_settings())
    # One snapshot for every step: a letter that comes meanwhile must not be marked as landed.
    waiting = dead_letters.waiting(spark, namespace, name, snapshot.snapshot_id, position)
    known = _formats(namespace, topic, systems)
    known = with_foreign_writers(systems.schema_registry, known, decode(waiting, known.decoding()), BY_HAND)
    # A letter that nobody looked up is one more that stays.
    known = replace(known, absent=None)
    decoded = decode(waiting, known.decoding())
    tried = dead_letters.tried(decoded)
    first = dead_letters.first_offsets(tried)
    count, staying = dead_letters.staying(tried)
    landing = count - staying.count
    if landing and topic.replaces:
        # A newer record may have replaced or deleted the row since: only the log knows.
        since = {p: min(first.get(p, o), o) for p, o in position.end.items()}
        again(namespace, topic, systems, known, _within(replace(position, start=since), log), None)
    elif landing:
        read = _Read([decoded], {"dead_letters": landing}, count, first, staying=staying)
        _publish(namespace, topic, systems, known, read)
    if count:
        dead_letters.mark(tried, namespace, name, position.topic_id)
    return Redriven(count, landing)


def _formats(namespace: str, topic: Topic, systems: Clients) -> Formats:
    """What reads the topic's records. A schema that the table does not take, by policy, reads none of them."""
    from lakehouse.pipeline.codecs import formats

    known = formats(systems.schema_registry, topic)
    return fitting(systems.catalog, namespace, topic, known)[1] if topic.on_incompatible == "dead_letter" else known


def _ingested(namespace: str, topic: Topic, systems: Clients, in_place: bool) -> tuple[Log, Batch]:
    """The topic's log, and the table's position in it."""
    table = systems.catalog.load(namespace, topic.table)
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
    quality.fit(systems.spark.session(systems.catalog.spark_settings()), namespace, topic)
    return log, last


def _within(wanted: Batch, log: Log) -> Batch:
    """The range, all of which the log must still have."""
    for partition, offset in wanted.start.items():
        if offset < min(log.start[partition], wanted.end[partition]):
            raise UnclearState(
                f"Topic '{wanted.topic}' partition {partition} no longer has offsets {offset} to "
                f"{log.start[partition] - 1}. Nothing was changed. Begin at `earliest`, which is what is left"
            )
    return wanted


def again(
    namespace: str, topic: Topic, systems: Clients, known: Formats, wanted: Batch, branch: str | None
) -> Replayed:
    """Write the rows of a range again, all of them in one publication; with a branch, to that and not to main.

    Raises: LakehouseError when records name more schemas than are looked up: one of them may be the newest of its key.
    """
    from lakehouse.pipeline.codecs import BY_HAND, with_foreign_writers
    from spark.decode import decode
    from spark.records import read_range

    if not wanted.offsets:
        return Replayed(wanted, Counts(), None)
    spark = systems.spark.session(systems.catalog.spark_settings())

    options, pieces, rest = systems.kafka.spark_options(), [], wanted
    while rest.offsets:
        piece = split(rest, topic.max_records_per_batch)
        pieces.append(read_range(spark, options, piece, headers=known.decoding().needs_headers))
        rest = replace(rest, start=piece.end)
    for records in pieces:
        # A record whose schema is not known yet may be the newest of its key.
        known = with_foreign_writers(systems.schema_registry, known, decode(records, known.decoding()), BY_HAND)
        if known.absent is not None:
            raise LakehouseError(
                f"Records of '{topic.name}' name more schema ids that it does not have than are looked up at a time. "
                f"Nothing was changed. Replay a smaller range"
            )
    decoded = [decode(records, known.decoding()) for records in pieces]
    said = {"start": dict(wanted.start), "end": dict(wanted.end)}
    read = _Read(decoded, said, wanted.offsets, wanted.start, wanted)
    written, snapshot_id, findings = _publish(namespace, topic, systems, known, read, branch)
    return Replayed(wanted, written.counts, snapshot_id, written.quarantined, findings)


def _publish(
    namespace: str, topic: Topic, systems: Clients, known: Formats, again: _Read, branch: str | None = None
) -> tuple[Written, int, list[Finding]]:
    """Replace the rows of decoded records on a branch, and make it main unless the branch was asked for.

    Returns:
        What was written, the snapshot that has it, and what the audit found.

    Raises:
        AuditFailed: The rows did not pass their audit, and no branch was asked for.
        UnclearState: Other records than those that were decided on are no rows, or the topic was recreated.
    """
    from lakehouse.pipeline.audit import AuditFailed, Staged
    from lakehouse.pipeline.examination import examine
    from spark import write

    catalog = systems.catalog
    spark = systems.spark.session(catalog.spark_settings())
    fingerprints.check(catalog.load(namespace, topic.table), topic, known)
    table = ensure_table(catalog, namespace, topic, known)
    base = table.metadata.current_snapshot_id
    staging = Staging(catalog, spark, namespace)
    staged = staging.branch(table) if branch is None else staging.kept(table, branch)
    before = table.metadata.refs[staged].snapshot_id if staged in table.metadata.refs else base
    summary = (REPLAY, json.dumps(again.said))
    target = write.Target(namespace, topic.table, staged, dict([summary]))
    written, names = write.Written(Counts()), topic.metadata.names
    key = topic.key if topic.replaces else (names["kafka_partition"], names["kafka_offset"])
    with staging.undisturbed(topic.table, staged):
        for decoded in again.pieces:
            if topic.mode == "dedup":
                written += write.dedup(decoded, target, topic.key, empty=False)
            else:
                written += write.upsert(decoded, target, key, empty=False)
        if again.staying is not None and written.dead != again.staying:
            raise UnclearState(
                f"Of '{topic.name}', {again.staying.count:,} dead letters were found not to decode, and "
                f"{written.dead.count:,} (or others) did not when their rows were written. Nothing was changed. Run "
                f"`lakehouse redrive` again; if it stops again, correct the quarantining check that does not always "
                f"give the same answer"
            )
        if again.log is not None:
            require_same_topic(systems.kafka, again.log)
        table = table.refresh()
        rows = Staged(staged, before, summary, len(again.pieces), again.records, again.since, written.counts)
        findings = examine(spark, catalog, namespace, topic, table, rows, again=True)
    if branch is not None:
        return written, table.metadata.refs[branch].snapshot_id, findings
    if any(finding.blocks for finding in findings):
        raise AuditFailed(topic.table, staged, findings, "the next batch drops the branch")
    replays = {REPLAYS: str(int(table.properties.get(REPLAYS, 0)) + 1)}
    table = catalog.publish(table, staged, base, properties=replays)
    return written, table.metadata.refs["main"].snapshot_id, findings
