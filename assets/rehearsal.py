"""A sample of a topic, taken as a batch would be, on a branch that nobody reads and that is dropped in the end."""

from __future__ import annotations

import uuid
from dataclasses import dataclass, replace

from assets import quality
from assets.audit import Finding
from assets.ingestion import Systems, read_log
from assets.replay import Replayed, again
from lakehouse.batch import Batch, split
from lakehouse.checks import RowCount
from lakehouse.counts import Counts
from lakehouse.topic import Topic
from lakehouse.words import counted

DECODES = "decodes"
"""The name of what a rehearsal finds besides the topic's checks."""


@dataclass(frozen=True)
class Rehearsed:
    """What became of the sample's records, and what the checks found in them."""

    counts: Counts
    findings: list[Finding]


def rehearse(namespace: str, topic: Topic, systems: Systems, records: int) -> Rehearsed:
    """Take the newest records of a topic to a branch, check them there, and drop the branch.

    Main and the position stay as they are. Columns that the registry's newest schema adds are added to the table, as
    by the next batch; a table that is made for this is dropped again.

    Parameters: `records` is the most offsets to take, from all partitions together.
    Raises: LakehouseError when the topic cannot be read or decoded, or a check does not fit.
    """
    from assets.codecs import formats

    topic = systems.catalog.current(namespace, topic)
    log = read_log(systems.kafka, topic.topic)
    known = formats(systems.schema_registry, topic)
    sample = _newest(Batch(log.cluster_id, log.topic, log.topic_id, log.start, log.end), records)
    there = systems.catalog.load(namespace, topic.table) is not None
    branch = f"rehearsal_{uuid.uuid4().hex[:12]}"
    try:
        done = again(namespace, topic, systems, known, sample, branch)
        return Rehearsed(done.counts, _findings(namespace, topic, systems, done, branch))
    finally:
        _leave(namespace, topic, systems, branch, there)


def _newest(whole: Batch, records: int) -> Batch:
    """The last part of a batch, of at most so many offsets."""
    lengths = {p: whole.end[p] - whole.start[p] for p in whole.end}
    taken = split(replace(whole, start=dict.fromkeys(lengths, 0), end=lengths), records).end
    return replace(whole, start={p: whole.end[p] - taken[p] for p in whole.end})


def _findings(namespace: str, topic: Topic, systems: Systems, done: Replayed, branch: str) -> list[Finding]:
    consumed, bad = done.counts.consumed, done.counts.dead_letters - done.quarantined
    said = f"{bad:,} of {counted(consumed, 'record')} cannot be decoded"
    if topic.quarantine:
        said += f", {done.quarantined:,} would be in quarantine ({', '.join(topic.quarantine)})"
    numbers = {"records": consumed, "bad_records": bad, "quarantined": done.quarantined}
    decodes = Finding(DECODES, not bad or topic.errors != "suspend", said, numbers)
    table = systems.catalog.load(namespace, topic.table)
    if table is None or branch not in table.metadata.refs:
        return [decodes]
    # A sample says nothing of how many rows are usual; and what a check puts into quarantine is not on the branch.
    declared = {
        name: check
        for name, check in topic.checks.items()
        if not isinstance(check, RowCount) and name not in topic.quarantine
    }
    spark, staged = systems.spark.session(systems.catalog.spark_settings()), table.metadata.refs[branch].snapshot_id
    found = quality.findings(spark, systems.catalog, namespace, topic, declared, table, staged, done.batch.start)
    return [decodes, *found]


def _leave(namespace: str, topic: Topic, systems: Systems, branch: str, there: bool) -> None:
    table = systems.catalog.load(namespace, topic.table)
    if table is None:
        return
    if branch in table.metadata.refs:
        with table.manage_snapshots() as manage:
            manage.remove_branch(branch)
    if not there and table.current_snapshot() is None:
        systems.catalog.iceberg().drop_table((namespace, topic.table))
