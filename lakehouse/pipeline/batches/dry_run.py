"""Ingest a sample of a topic into a temporary branch of its table, which is dropped at the end.

The first dry run of a topic has no table to branch from. It uses a temporary table of its own, since ingestion may
create the topic's table meanwhile, and no catalog drops a table only if it is empty.
"""

import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace

from pyiceberg.exceptions import NoSuchTableError

from lakehouse.config.model import Topic
from lakehouse.core.errors import CommitConflict, by_reason
from lakehouse.core.offsets.batch import Batch, Counts, head
from lakehouse.core.tables import naming
from lakehouse.core.tables.naming import TableRef
from lakehouse.core.text import pluralize
from lakehouse.pipeline.batches.batch_context import BatchContext
from lakehouse.pipeline.batches.batch_plan import BatchPlan
from lakehouse.pipeline.batches.positions import read_log
from lakehouse.pipeline.clients import Clients
from lakehouse.pipeline.commits.audit import CheckResult
from lakehouse.pipeline.dead_letters import letters
from lakehouse.pipeline.replay import Replayed, read_again
from lakehouse.pipeline.rewriting import rewriting_context
from resources.iceberg.catalog import Catalog
from resources.iceberg.commits import detect_conflict

DECODES = "decodes"
"""Name of the check result about decoding, besides the topic's own checks."""


@dataclass(frozen=True)
class DryRun:
    """Outcomes of the sample's records, and the results of the checks on its rows."""

    counts: Counts
    findings: list[CheckResult]
    steps: list[str]
    """The steps by which `ingest` would publish these records."""


def dry_run(namespace: str, topic: Topic, clients: Clients, records: int) -> DryRun:
    """Ingest the newest records of a topic into a branch, check them there, and drop the branch.

    main and the stored offsets are unchanged. Columns that the registry's newest schema adds are added to the table, as
    the next batch would do. A table that does not exist is not created.

    Args:
        namespace: The namespace of the table.
        topic: The topic.
        clients: Clients of the systems.
        records: The maximum number of offsets to read, from all partitions together.

    Raises:
        LakehouseError: The topic cannot be read or decoded, or a check does not fit the table.
        Unreachable: A system does not answer.
    """
    with sampled(namespace, topic, clients, records) as (context, branch):
        table = topic.table_in(namespace) if context.table is None else context.ref
        steps = [str(step) for step in BatchPlan.of(replace(context, ref=table))]
        replayed = read_again(context, branch)
        decodes = _decodes(replace(context, left_out=letters.poisonous_records(context)), replayed)
        return DryRun(replayed.counts, [decodes, *replayed.findings], steps)


@contextmanager
def sampled(namespace: str, topic: Topic, clients: Clients, records: int) -> Iterator[tuple[BatchContext, str]]:
    """Yield the newest records of a topic as a batch, and a name for the branch of its table, which is dropped after.

    Args:
        namespace: The namespace of the table.
        topic: The topic.
        clients: Clients of the systems.
        records: The maximum number of offsets, from all partitions together.
    """
    ref, table = clients.catalog.chain(topic.table_in(namespace)).newest
    sample = _newest(read_log(clients.kafka, topic.topic), records)
    branch = naming.dry_run_name(time.time())
    context = rewriting_context(topic, ref if table else replace(ref, name=branch), clients, sample, table)
    try:
        yield context, branch
    finally:
        with clients.catalog.translate_errors():
            _drop(clients.catalog, context.ref, branch)


def _newest(batch: Batch, records: int) -> Batch:
    """Return the last part of a batch, at most `records` offsets long."""
    lengths = {p: batch.end[p] - batch.start[p] for p in batch.end}
    counts = head(replace(batch, start=dict.fromkeys(lengths, 0), end=lengths), records).end
    return replace(batch, start={p: batch.end[p] - counts[p] for p in batch.end})


def _decodes(context: BatchContext, replayed: Replayed) -> CheckResult:
    topic, consumed = context.topic, replayed.counts.consumed
    bad = replayed.counts.dead_letters - replayed.quarantined
    message = f"{bad:,} of {pluralize(consumed, 'record')} cannot be decoded"
    if bad:
        message += f" ({by_reason(context.first_faults())})"
    if topic.quarantine:
        message += f", {replayed.quarantined:,} would be in quarantine ({', '.join(topic.quarantine)})"
    numbers = {"records": consumed, "bad_records": bad, "quarantined": replayed.quarantined}
    return CheckResult(DECODES, not bad or topic.errors != "suspend", message, numbers)


def _drop(catalog: Catalog, ref: TableRef, branch: str) -> None:
    """Drop a branch, or the temporary table of the same name."""
    table = catalog.load(ref)
    if table is None:
        return
    if ref.name == branch:
        # Ingestion may drop no table. Maintenance may have dropped this one, if it considers the program killed.
        with suppress(NoSuchTableError):
            catalog.for_maintenance().iceberg().purge_table(ref.identifier)
    elif branch in table.metadata.refs:
        # Another program may have dropped the branch, or the table.
        with suppress(CommitConflict), detect_conflict(table), table.manage_snapshots() as manage:
            manage.remove_branch(branch)
