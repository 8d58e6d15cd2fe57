"""Read a range of the log again, and replace the rows of its records. Repeating it changes nothing.

Rows are identified by partition and offset, or by key in tables with one row per key, so existing rows are replaced by
equal ones. The stored offsets do not change.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial

from lakehouse.config.model import Topic
from lakehouse.core.errors import LakehouseError
from lakehouse.core.offsets.batch import Batch, Counts, Positions
from lakehouse.pipeline import rewriting
from lakehouse.pipeline.batches.batch_context import BatchContext
from lakehouse.pipeline.batches.offsets import parse_offsets, parse_position
from lakehouse.pipeline.batches.poison import aborting_record, report_aborted
from lakehouse.pipeline.batches.positions import within
from lakehouse.pipeline.clients import Clients
from lakehouse.pipeline.commits.audit import AuditFailed, CheckResult
from lakehouse.pipeline.dead_letters import letters
from resources.iceberg.reservation import in_turn


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
        CommitConflict: Writers that do not yield to commands kept publishing first.
        LakehouseError: Nothing was ingested yet, or the table does not have the offsets in `since`.
        TransientError: The Spark job was aborted, for example by a skipped record, or the broker compacted the topic.
        UnclearState: The log no longer has the range, or the topic was recreated.
    """
    attempt = partial(_replay, namespace, topic, clients, since, branch)
    return in_turn(clients.catalog, topic.table_in(namespace), f"replay {topic.name}", attempt)


def _replay(namespace: str, topic: Topic, clients: Clients, since: str, branch: str | None) -> Replayed:
    log, first, context = rewriting.ingested(namespace, topic, clients, in_place=branch is None)
    position = context.batch
    _require_ingested(context, parse_offsets(since), first)
    start = parse_position(log, clients.kafka, since, unnamed=dict.fromkeys(log.end, 0) | dict(position.end)).end
    whole = replace(position, start={p: min(max(start.get(p, o), first.get(p, 0)), o) for p, o in position.end.items()})
    remedy = (
        "Retry the command. If a record that was skipped by `lakehouse resume` aborts the job, begin after it, for "
        "example with `--since 0:12,1:40`, or give Spark what it needs, such as more memory for its executors"
    )
    context = replace(context, batch=within(whole, log))
    with report_aborted(topic, "No row was changed", remedy, partial(aborting_record, context)):
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


def read_again(context: BatchContext, branch: str | None) -> Replayed:
    """Write the rows of a range again, all in one publication; into a branch instead of main if one is named.

    Dead letters whose decoding aborts the Spark job are not read.

    Raises:
        LakehouseError: Records refer to more schemas than the lookup limit: one of them may be the newest of its key.
    """
    whole = context.batch
    if not whole.offsets:
        return Replayed(whole, Counts(), None)
    with replace(context, left_out=letters.poisonous_records(context)).keeping_records() as kept:
        context, rewrite = rewriting.of_range(kept)
        if branch is None:
            written, audited = rewriting.publish_range(context, rewrite)
        else:
            staged = rewriting.stage(context, rewrite, branch)
            written, audited = staged.written, rewriting.audit(context, rewrite, staged)
    return Replayed(whole, written.counts, audited.snapshot_id, written.quarantined, audited.findings)
