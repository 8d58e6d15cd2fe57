"""Ingest one topic into its table, exactly once: stored offsets → branch → audit → atomic publication.

This module does not depend on Dagster; the asset in assets/topics/iceberg_asset.py reports the results.
docs/exactly-once.md has the reasons.
"""

import time
from collections.abc import Callable, Generator, Mapping
from dataclasses import dataclass, field, replace
from functools import partial

from lakehouse.config.model import Topic
from lakehouse.core.errors import CommitConflict, Paused
from lakehouse.core.offsets.batch import Batch, Counts, Positions, clip, head, next_batch
from lakehouse.core.polling import SYSTEM_CLOCK
from lakehouse.core.table_protocol import DECODER, PARTS
from lakehouse.pipeline.batches.batch_context import BatchContext
from lakehouse.pipeline.batches.batch_plan import BatchPlan
from lakehouse.pipeline.batches.offsets import record_start, roll_over
from lakehouse.pipeline.batches.poison import publishable_part
from lakehouse.pipeline.batches.positions import read_log
from lakehouse.pipeline.batches.refusals import Refusals, publish_unless_refused
from lakehouse.pipeline.clients import Clients
from lakehouse.pipeline.commits.audit import CheckResult
from lakehouse.pipeline.commits.phase_clock import PhaseClock
from lakehouse.pipeline.commits.staged_commit import OnPhase, Phase, no_report
from lakehouse.pipeline.engine_values import JobFailed
from lakehouse.pipeline.metadata_limit import keep_within_limit
from lakehouse.pipeline.schemas import header_ids, schema_fingerprints
from lakehouse.pipeline.schemas.decoding import resolve_schemas
from lakehouse.pipeline.schemas.schema_decision import decide_schema
from resources.iceberg.pauses import pauses
from resources.iceberg.reservation import await_unreserved, require_unreserved, reservation_of
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
        decoder: `compiled`, or why the reference decoder read the batch.
        phases: Seconds of each phase, attempts that other writers excluded included.
    """

    batch: Batch
    counts: Counts
    findings: list[CheckResult]
    snapshot_id: int
    seconds: float
    data_bytes: int
    data_files: int
    decoder: str = ""
    phases: Mapping[Phase, float] = field(default_factory=dict)


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
        TransientError: The table's metadata is near the limit of its catalog.
        UnclearState: The stored offsets do not match the topic.
        Unreachable: A system does not answer.
        Yielded: A command waits to publish in the table, and `refusals` is given; else the batch waits for it.
    """
    end: Positions = {}
    conflicts, is_begun, clock = 0, False, PhaseClock(on_phase)
    while True:
        began = SYSTEM_CLOCK.now()
        if (topic_pause := pauses(clients.catalog, namespace).get(topic.table)) and is_begun:
            return
        if topic_pause:
            raise Paused(topic.name, topic_pause.describe())
        # Read the table first: another writer may publish records beyond an end that was read before.
        chain = clients.catalog.chain(topic.table_in(namespace))
        (ref, table), last = chain.newest, chain.last_batch
        base = table.metadata.current_snapshot_id if table else None
        if reservation_of(table):
            if refusals is not None:
                require_unreserved(topic.name, table)
            await_unreserved(clients.catalog, ref)
            continue
        if keep_within_limit(topic, ref, table, clients, clients.catalog.metadata_limit):
            continue
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
            context = BatchContext(topic, ref, clients, batch, table, base, known, on_phase=clock)
            context.report("schema")
            schema_fingerprints.check(table, topic, known)
            decision = decide_schema(topic, known, table)
            if decision.action == "roll_over" and table:
                roll_over(clients, topic, ref, table, last or replace(batch, end=batch.start), str(decision.error))
                continue
            schemas = replace(decision.require_readable(), reads_header_ids=header_ids.are_known(table))
            published = _published(replace(context, schemas=schemas), refusals)
        except CommitConflict:
            conflicts += 1
            if conflicts == ATTEMPTS:
                raise
            # A writer that retries at once may exclude the one that excluded it, before that one publishes.
            SYSTEM_CLOCK.sleep(SYSTEM_CLOCK.now() - began)
        else:
            published = replace(published, phases=clock.seconds())
            conflicts, is_begun, clock = 0, True, PhaseClock(on_phase)
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
        part = publishable_part(context.reading_header_ids())
        if part is None:
            raise
        return publish_once(part)


def publish(context: BatchContext) -> Published:
    """Publish a batch by the steps of its plan (lakehouse/pipeline/batches/batch_plan.py), and measure it."""
    began = time.monotonic()
    with context.read_once() as read:
        batch, table = BatchPlan.of(read).execute()
    snapshot = table.current_snapshot()
    assert snapshot is not None
    summary = summary_of(snapshot)
    added, files = (int(summary.get(name, 0)) for name in ("added-files-size", "total-data-files"))
    parent = table.snapshot_by_id(snapshot.parent_snapshot_id) if snapshot.parent_snapshot_id else None
    if PARTS in summary and parent is not None:
        added += int(summary_of(parent).get("added-files-size", 0))
    seconds, findings = time.monotonic() - began, batch.audited.findings
    decoder = summary.get(DECODER, "")
    return Published(context.batch, batch.counts, findings, snapshot.snapshot_id, seconds, added, files, decoder)
