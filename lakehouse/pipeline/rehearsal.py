"""A sample of a topic, taken as a batch would be, on a branch that nobody reads and that is dropped in the end."""

from __future__ import annotations

import time
from dataclasses import dataclass, replace

from lakehouse.config.topic import Topic
from lakehouse.core import naming
from lakehouse.core.batch import Batch, split
from lakehouse.core.counts import Counts
from lakehouse.core.words import counted
from lakehouse.pipeline.audit import Finding
from lakehouse.pipeline.clients import Clients
from lakehouse.pipeline.ingestion import read_log
from lakehouse.pipeline.replay import Replayed, read_again, replay_context

DECODES = "decodes"
"""The name of what a rehearsal finds besides the topic's checks."""


@dataclass(frozen=True)
class Rehearsed:
    """What became of the sample's records, and what the checks found in them."""

    counts: Counts
    findings: list[Finding]


def rehearse(namespace: str, topic: Topic, systems: Clients, records: int) -> Rehearsed:
    """Take the newest records of a topic to a branch, check them there, and drop the branch.

    Main and the position stay as they are. Columns that the registry's newest schema adds are added to the table, as
    by the next batch; a table that is made for this is dropped again.

    Parameters: `records` is the most offsets to take, from all partitions together.
    Raises: LakehouseError when the topic cannot be read or decoded, or a check does not fit.
    """
    topic, table = systems.catalog.resolve_table(namespace, topic)
    log = read_log(systems.kafka, topic.topic)
    sample = _newest(Batch(log.cluster_id, log.topic, log.topic_id, log.start, log.end), records)
    context = replay_context(namespace, topic, systems, sample, table)
    branch = naming.rehearsal_branch(time.time())
    try:
        done = read_again(context, branch)
        return Rehearsed(done.counts, [_decodes(topic, done), *done.findings])
    finally:
        _leave(namespace, topic, systems, branch, table is not None)


def _newest(whole: Batch, records: int) -> Batch:
    """The last part of a batch, of at most so many offsets."""
    lengths = {p: whole.end[p] - whole.start[p] for p in whole.end}
    taken = split(replace(whole, start=dict.fromkeys(lengths, 0), end=lengths), records).end
    return replace(whole, start={p: whole.end[p] - taken[p] for p in whole.end})


def _decodes(topic: Topic, done: Replayed) -> Finding:
    consumed, bad = done.counts.consumed, done.counts.dead_letters - done.quarantined
    said = f"{bad:,} of {counted(consumed, 'record')} cannot be decoded"
    if topic.quarantine:
        said += f", {done.quarantined:,} would be in quarantine ({', '.join(topic.quarantine)})"
    numbers = {"records": consumed, "bad_records": bad, "quarantined": done.quarantined}
    return Finding(DECODES, not bad or topic.errors != "suspend", said, numbers)


def _leave(namespace: str, topic: Topic, systems: Clients, branch: str, there: bool) -> None:
    table = systems.catalog.load(namespace, topic.table)
    if table is None:
        return
    if branch in table.metadata.refs:
        with table.manage_snapshots() as manage:
            manage.remove_branch(branch)
    if not there and table.current_snapshot() is None:
        systems.catalog.iceberg().drop_table((namespace, topic.table))
