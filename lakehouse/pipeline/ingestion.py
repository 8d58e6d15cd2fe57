"""Ingest one topic into its table, exactly once: stored offsets → branch → audit → atomic publication.

This module does not depend on Dagster; the asset in assets/topics/iceberg_asset.py reports the results.
docs/exactly-once.md has the reasons.
"""

import time
from collections.abc import Callable, Generator
from dataclasses import dataclass, replace
from functools import partial

from pyiceberg.table import Table

from lakehouse.config.model import Topic
from lakehouse.core.errors import BadRecords, CommitConflict, Paused
from lakehouse.core.offsets.batch import Batch, Counts, Positions, clip, head, next_batch
from lakehouse.core.polling import SYSTEM_CLOCK
from lakehouse.core.table_protocol import TOKEN
from lakehouse.pipeline.batches.batch_context import BatchContext
from lakehouse.pipeline.batches.offsets import record_start, roll_over
from lakehouse.pipeline.batches.poison import publishable_part
from lakehouse.pipeline.batches.positions import read_log
from lakehouse.pipeline.batches.refusals import Refusals, publish_unless_refused
from lakehouse.pipeline.clients import Clients
from lakehouse.pipeline.commits import column_checks
from lakehouse.pipeline.commits.audit import CheckResult
from lakehouse.pipeline.commits.staged_commit import OnPhase, Stage, no_report
from lakehouse.pipeline.dead_letters import letters
from lakehouse.pipeline.engine_values import JobFailed, Target, Written
from lakehouse.pipeline.schemas import schema_fingerprints
from lakehouse.pipeline.schemas.decoding import resolve_schemas
from lakehouse.pipeline.schemas.schema_decision import decide_schema, ensure_table
from resources.iceberg.pauses import pauses
from resources.iceberg.snapshots import summary_of

ATTEMPTS = 3
"""Number of attempts at a batch when other writers publish first."""


@dataclass(frozen=True)
class Published:
    """A published batch.

    Attributes:
        batch: The offsets.
        counts: Outcomes of the records.
        findings: Results of the audit.
        snapshot_id: The snapshot of main that contains the batch.
        seconds: Duration of the batch.
        data_bytes: Bytes that the batch added to the table.
        data_files: Number of data files that the table has now.
    """

    batch: Batch
    counts: Counts
    findings: list[CheckResult]
    snapshot_id: int
    seconds: float
    data_bytes: int
    data_files: int


def ingest(
    namespace: str, topic: Topic, clients: Clients, refusals: Refusals | None = None, on_phase: OnPhase = no_report
) -> Generator[Published, None, None]:
    """Publish everything up to the present end of the topic, batch by batch.

    Args:
        namespace: The namespace of the table.
        topic: The topic.
        clients: Clients of the systems.
        refusals: Batches that could not be published, for callers that retry.
        on_phase: Called when a phase of a batch begins.

    Yields:
        Each batch after it was published; nothing if there is nothing new. A pause ends the iteration after a batch.

    Raises:
        AuditFailed: A batch failed its audit.
        BadRecords: Records cannot be decoded, and the topic's policy is to stop.
        CommitConflict: Other writers kept publishing first.
        Paused: The topic is paused.
        SchemaError: The schema cannot become the table's columns.
        UnclearState: The stored offsets do not match the topic.
        Unreachable: A system does not answer.
    """
    end: Positions = {}
    conflicts, is_begun = 0, False
    while True:
        began = SYSTEM_CLOCK.now()
        if (topic_pause := pauses(clients.catalog, namespace).get(topic.name)) and is_begun:
            return
        if topic_pause:
            raise Paused(topic.name, topic_pause.describe())
        # Read the table first: another writer may publish records beyond an end that was read before.
        chain = clients.catalog.chain(topic.table_in(namespace))
        (ref, table), last = chain.newest, chain.last_batch
        base = table.metadata.current_snapshot_id if table else None
        log = read_log(clients.kafka, topic.topic)
        end = end or log.end
        try:
            if last is None and topic.start != "earliest":
                record_start(clients, topic, ref, table, log)
                continue
            available = clip(next_batch(last, log, ref.name), end)
            if not available.offsets:
                return
            batch = head(available, topic.max_records_per_batch)
            known = resolve_schemas(clients.schema_registry, topic)
            context = BatchContext(topic, ref, clients, batch, table, base, known, on_phase=on_phase)
            context.report("schema")
            schema_fingerprints.check(table, topic, known)
            decision = decide_schema(topic, known, table)
            if decision.action == "roll_over" and table:
                roll_over(clients, topic, ref, table, last or replace(batch, end=batch.start), str(decision.error))
                continue
            published = _published(replace(context, schemas=decision.require_readable()), refusals)
        except CommitConflict:
            conflicts += 1
            if conflicts == ATTEMPTS:
                raise
            # A writer that retries at once may exclude the one that excluded it, before that one publishes.
            SYSTEM_CLOCK.sleep(SYSTEM_CLOCK.now() - began)
        else:
            conflicts, is_begun = 0, True
            yield published


def _published(context: BatchContext, refusals: Refusals | None) -> Published:
    """Publish the batch. If a record aborts decoding, publish the records before it, or that record as a dead
    letter."""
    publish_once: Callable[[BatchContext], Published] = publish
    if refusals is not None:
        publish_once = partial(publish_unless_refused, refusals=refusals, publish=publish)
    try:
        return publish_once(context)
    except JobFailed:
        part = publishable_part(context)
        if part is None:
            raise
        return publish_once(part)


def publish(context: BatchContext) -> Published:
    """Write a batch to a branch, audit it, publish its dead letters, then publish the batch.

    Raises:
        AuditFailed: The batch failed its audit.
        BadRecords: Records cannot be decoded, and the topic's policy is to stop.
        CommitConflict: Another writer published first.
        SchemaError: The schema cannot become the table's columns.
        UnclearState: The topic was recreated meanwhile, or decoding is not deterministic.
        Unreachable: A system does not answer.
    """
    began, topic, batch = time.monotonic(), context.topic, context.batch
    table = ensure_table(context.clients.catalog, topic, context.ref, context.schemas, context.table)
    column_checks.validate_quarantine(context.engine, topic, context.ref)
    context, stage, written = _stage(context, table)
    counts = _counts(context, written)
    checks = partial(column_checks.batch_results, context, since=batch.start), partial(_quarantined, context, written)
    audited = context.commit.audit(stage, [counts], batch.offsets, *checks)
    audited.require_passed()
    context.report("dead_letters")
    # Even if the topic keeps none by now: an earlier attempt at the batch may have published some.
    letters.keep(context, written.dead if topic.errors == "log" else written.failing, audited.branch)
    fingerprint_properties = schema_fingerprints.properties(audited.table, context.schemas)
    table = context.commit.publish(audited, vars(counts), fingerprint_properties)
    snapshot = table.current_snapshot()
    assert snapshot is not None
    summary = summary_of(snapshot)
    added, files = (int(summary.get(name, 0)) for name in ("added-files-size", "total-data-files"))
    seconds = time.monotonic() - began
    return Published(batch, counts, audited.findings, snapshot.snapshot_id, seconds, added, files)


def _stage(context: BatchContext, table: Table) -> tuple[BatchContext, Stage, Written]:
    """Write a batch to a branch; write it again if its records refer to schemas that were not known.

    Returns:
        The context with those schemas, the branch, and the result of the write.
    """

    def rows(target: Target) -> Written:
        topic, is_empty = context.topic, context.base is None
        return context.engine.write(context.decided(), target, topic.mode, topic.key, empty=is_empty)

    token = {TOKEN: context.batch.to_json()}
    stage, written = context.commit.stage(table, rows, token)
    if written.unknown_schema or written.bad_key:
        previous, context = context.schemas, context.with_foreign_writers(context.decided())
        # `unusable_ids` only distinguishes reasons of dead letters, so a change of it alone changes no row.
        if replace(context.schemas, unusable_ids=None) != previous:
            schema_fingerprints.check(table, context.topic, context.schemas)
            stage, written = context.commit.stage(context.clients.catalog.refreshed(table), rows, token)
    return context, stage, written


def _counts(context: BatchContext, written: Written) -> Counts:
    """Apply the topic's policy to records that could not be decoded, and return the outcomes.

    Raises:
        BadRecords: The policy is to stop.
    """
    topic, counts = context.topic, written.counts
    bad = counts.dead_letters - written.quarantined
    if not bad or topic.errors == "log":
        return counts
    if topic.errors == "skip":
        return replace(counts, skipped=bad, dead_letters=written.quarantined)
    faults = context.decided().first_faults(shows_keys=not topic.sensitive)
    raise BadRecords(topic.name, bad, faults)


def _quarantined(context: BatchContext, written: Written, table: Table, snapshot_id: int) -> list[CheckResult]:
    """Return the results of the checks that quarantine rows."""
    if not context.topic.quarantine:
        return []
    row_count, since = written.counts.rows + written.quarantined, context.batch.start
    return column_checks.quarantine_results(
        context.decided(), context.topic, context.ref, table, since, row_count, written.quarantined
    )
