"""One topic into its table, exactly once: stored offsets → branch → audit → atomic publication.

Nothing here knows of Dagster; the asset in assets/iceberg.py reports what happens here. docs/exactly-once.md has the
reasons.
"""

from __future__ import annotations

import time
from collections.abc import Generator
from dataclasses import asdict, dataclass, replace
from functools import partial
from typing import TYPE_CHECKING

from lakehouse.config.topic import Topic
from lakehouse.core.batch import TOKEN, Batch, Log, Positions, next_batch, split, until
from lakehouse.core.errors import BadRecords, CommitConflict, Paused
from lakehouse.pipeline import fingerprints, letters, quality
from lakehouse.pipeline.batch_context import BatchContext
from lakehouse.pipeline.clients import Clients
from lakehouse.pipeline.codecs import formats
from lakehouse.pipeline.poison import before_poison
from lakehouse.pipeline.position import begin, roll_over
from lakehouse.pipeline.refusals import Refusals, publish_unless_refused
from lakehouse.pipeline.schema_decision import decide_schema, ensure_table
from lakehouse.pipeline.staged_commit import OnPhase, Stage, no_report
from resources.catalog import Catalog, in_table
from resources.kafka import Kafka
from resources.pauses import pauses
from resources.snapshots import last_batch

if TYPE_CHECKING:
    from pyiceberg.table import Table

    from lakehouse.core.counts import Counts
    from lakehouse.pipeline.audit import Finding
    from spark.write import Target, Written

ATTEMPTS = 3
"""How often a batch is tried when another writer publishes first."""


@dataclass(frozen=True)
class Published:
    """A batch that readers can see now. `seconds` is the batch's duration; `data_bytes` are what it added to the table,
    which has so many `data_files` now."""

    batch: Batch
    counts: Counts
    findings: list[Finding]
    snapshot_id: int
    seconds: float
    data_bytes: int
    data_files: int


def ingest(
    namespace: str,
    topic: Topic,
    systems: Clients,
    refusals: Refusals | None = None,
    on_phase: OnPhase = no_report,
) -> Generator[Published, None, None]:
    """Publish everything up to the end of the topic as it is now, batch by batch.

    Args:
        refusals: Remembers batches that could not be published, for a caller that repeats them.
        on_phase: Called when a phase of a batch begins.

    Yields:
        Each batch after it was published; nothing when there was nothing new. A pause ends it after the batch.

    Raises: Paused; AuditFailed, BadRecords, UnclearState, SchemaError, Unreachable; CommitConflict when another writer
    keeps publishing first.
    """
    end: Positions = {}
    conflicts, is_begun = 0, False
    while True:
        if (held := pauses(systems.catalog, namespace).get(topic.name)) and is_begun:
            return
        if held:
            raise Paused(topic.name, held.describe())
        # In this order: another writer may have taken records that are newer than an end read before.
        topic, table, last = stored(systems.catalog, namespace, topic)
        base = table.metadata.current_snapshot_id if table else None
        log = read_log(systems.kafka, topic.topic)
        end = end or log.end
        try:
            if last is None and topic.start != "earliest":
                begin(systems, namespace, topic, table, log)
                continue
            whole = until(next_batch(last, log, topic.table), end)
            if not whole.offsets:
                return
            batch = split(whole, topic.max_records_per_batch)
            known = formats(systems.schema_registry, topic)
            context = BatchContext(namespace, topic, systems, batch, table, base, known, on_phase=on_phase)
            context.report("schema")
            fingerprints.check(table, topic, known)
            decision = decide_schema(topic, known, table)
            if decision.action == "roll_over" and table and last:
                roll_over(systems, namespace, topic, table, last, str(decision.error))
                continue
            published = _published(replace(context, formats=decision.require_readable()), refusals)
        except CommitConflict:
            conflicts += 1
            if conflicts == ATTEMPTS:
                raise
        else:
            conflicts, is_begun = 0, True
            yield published


def _published(context: BatchContext, refusals: Refusals | None) -> Published:
    """Publish the batch; or, where a record in it ends the work that decodes it, the part before that record, or that
    record alone as a dead letter."""
    from pyspark.errors import PySparkException

    try:
        return publish(context) if refusals is None else publish_unless_refused(context, refusals, publish)
    except PySparkException:
        part, is_poison = before_poison(context.is_decodable, context.batch)
        if part == context.batch and not is_poison:
            # The schema of such a record may be of another subject.
            part, is_poison = before_poison(context.with_foreign_writers().is_decodable, context.batch)
        if part == context.batch and not is_poison:
            # Whatever it was, it was not a record.
            raise
        return publish(replace(context, batch=part, is_poison=is_poison))


def publish(context: BatchContext) -> Published:
    """Write a batch to a branch, audit it there, and publish it, its dead letters first.

    Raises: AuditFailed; BadRecords; UnclearState; SchemaError; CommitConflict; Unreachable.
    """
    began, topic, batch = time.monotonic(), context.topic, context.batch
    table = ensure_table(context.clients.catalog, context.namespace, topic, context.formats, context.table)
    quality.fit(context.spark, context.namespace, topic)
    context, stage, written = _stage(context, table)
    counts = _counts(context, written)
    checks = partial(context.declared_checks, since=batch.start), partial(_quarantined, context, written)
    audited = context.commit.audit(stage, counts, batch.offsets, *checks)
    audited.require_passed()
    if topic.keeps_dead_letters:
        context.report("dead_letters")
        letters.keep(context, written.dead if topic.errors == "log" else written.failing)
    schemas = fingerprints.properties(audited.table, context.formats)
    table = context.commit.publish(audited, asdict(counts), schemas)
    snapshot = table.current_snapshot()
    assert snapshot is not None and snapshot.summary is not None
    summary = snapshot.summary.additional_properties
    added, files = (int(summary.get(name, 0)) for name in ("added-files-size", "total-data-files"))
    seconds = time.monotonic() - began
    return Published(batch, counts, audited.findings, snapshot.snapshot_id, seconds, added, files)


def _stage(context: BatchContext, table: Table) -> tuple[BatchContext, Stage, Written]:
    """Write a batch to a branch; once more where its records name schemas that were not known.

    Returns:
        The context with those schemas, the branch, and what was written to it.
    """
    from spark import write

    def rows(target: Target) -> Written:
        return write.rows(context.decoded(), target, context.topic.mode, context.topic.key, empty=context.base is None)

    token = {TOKEN: context.batch.to_json()}
    stage, written = context.commit.stage(table, rows, token)
    if written.unknown_schema or written.bad_key:
        before, context = context.formats, context.with_foreign_writers()
        # Which of the dead letters nobody looked up changes no row.
        if replace(context.formats, absent=None) != before:
            fingerprints.check(table, context.topic, context.formats)
            stage, written = context.commit.stage(table.refresh(), rows, token)
    return context, stage, written


def _counts(context: BatchContext, written: Written) -> Counts:
    """Apply the topic's policy to records that could not be decoded.

    Raises:
        BadRecords: The policy is to stop.
    """
    from spark.explain import first_faults

    topic, counts = context.topic, written.counts
    bad = counts.dead_letters - written.quarantined
    if not bad or topic.errors == "log":
        return counts
    if topic.errors == "skip":
        return replace(counts, skipped=bad, dead_letters=written.quarantined)
    faults = first_faults(context.decoded(), context.formats.decoding(), shows_keys=not topic.sensitive)
    raise BadRecords(topic.name, bad, faults)


def _quarantined(context: BatchContext, written: Written, table: Table, snapshot_id: int) -> list[Finding]:
    """Return what the checks that quarantine rows kept from the table."""
    if not context.topic.quarantine:
        return []
    checked, since = written.counts.rows + written.quarantined, context.batch.start
    return quality.quarantine(
        context.decoded(), context.namespace, context.topic, table, since, checked, written.quarantined
    )


def stored(catalog: Catalog, namespace: str, topic: Topic) -> tuple[Topic, Table | None, Batch | None]:
    """The topic with the table that its records go to now, that table, and the newest batch it holds.

    A table that goes on where another ended begins at that one's last batch.

    Raises: UnclearState; Unreachable.
    """
    tables = list(catalog.successive_tables(namespace, topic.table))
    batches = [batch for _, table in tables if (batch := last_batch(table))]
    name, table = tables[-1]
    return in_table(topic, name), table, batches[-1] if batches else None


def read_log(kafka: Kafka, topic: str, *, committed: bool = True) -> Log:
    """The topic's identity and its offsets, captured once.

    Parameters: `committed` as `Kafka.offsets` takes it.
    Raises: Unreachable; LakehouseError when the topic does not exist.
    """
    offsets = kafka.offsets([topic], committed=committed)[topic]
    if (described := kafka.describe([topic]).get(topic)) is None:
        raise kafka.missing(topic)
    return Log(
        cluster_id=kafka.cluster_id(),
        topic=topic,
        topic_id=described.topic_id,
        start={partition: found.start for partition, found in offsets.items()},
        end={partition: found.end for partition, found in offsets.items()},
    )
