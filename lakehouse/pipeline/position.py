"""Where a table's position comes from when its snapshots do not say: the configuration, or somebody's decision."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from getpass import getuser
from typing import TYPE_CHECKING

from lakehouse.config.topic import Topic
from lakehouse.core import naming
from lakehouse.core.batch import DECISION, TOKEN, Batch, Log, Positions
from lakehouse.core.counts import Counts
from lakehouse.core.errors import LakehouseError, UnclearState
from lakehouse.pipeline import fingerprints
from lakehouse.pipeline.codecs import formats
from lakehouse.pipeline.schema_decision import ensure_table
from lakehouse.pipeline.staged_commit import StagedCommit
from resources.catalog import CONTINUED, RECREATED
from resources.kafka import Kafka
from resources.snapshots import batch_of, last_batch

if TYPE_CHECKING:
    from pyiceberg.table import Table

    from lakehouse.pipeline.clients import Clients


OFFSETS = re.compile(r"\d+:\d+(,\d+:\d+)*")
"""Offsets by partition, such as `0:12,1:40`."""


def named(where: str) -> dict[int, int]:
    """The offsets that a position names by partition; none where it is of another form.

    Raises:
        LakehouseError: It names a partition twice.
    """
    pairs = [pair.split(":") for pair in where.split(",")] if OFFSETS.fullmatch(where) else []
    found = {int(partition): int(offset) for partition, offset in pairs}
    if len(found) < len(pairs):
        raise LakehouseError(f"'{where}' names a partition twice. Nothing was changed. Name each once")
    return found


def at(log: Log, kafka: Kafka, where: str, unnamed: Positions | None = None) -> Batch:
    """A position, as a batch that ends there and holds nothing.

    Args:
        log: The topic.
        kafka: The cluster.
        where: `earliest`, `latest`, a time (ISO 8601 with offset) or offsets as `0:12,1:40`.
        unnamed: Offsets of partitions that the last form does not name.

    Raises:
        LakehouseError: `where` is none of these, or names partitions that the topic does not have, or leaves out some
            that `unnamed` does not have.
        Unreachable: Kafka does not answer.
    """
    offsets = named(where)
    match where:
        case "earliest":
            end = dict(log.start)
        case "latest":
            end = dict(log.end)
        case _ if offsets:
            end = dict(unnamed or {}) | offsets
            _require_partitions(log, where, end)
        case _:
            end = kafka.offsets_at(log.topic, _milliseconds(where))
    return Batch(log.cluster_id, log.topic, log.topic_id, end, end)


def _require_partitions(log: Log, where: str, offsets: Positions) -> None:
    """Compare partitions that have an offset with those of the topic.

    Raises:
        LakehouseError: They are not the same.
    """
    there, too_many = _listed(log.end), _listed(offsets.keys() - log.end.keys())
    if too_many:
        raise LakehouseError(
            f"'{where}' names partitions {too_many}, which topic '{log.topic}' does not have. Nothing was changed. "
            f"Its partitions are {there}"
        )
    if missing := _listed(log.end.keys() - offsets.keys()):
        raise LakehouseError(
            f"'{where}' names no offset of partitions {missing}, and where they continue is not clear. Nothing was "
            f"changed. Name an offset of each partition of '{log.topic}': {there}"
        )


def _listed(partitions: Iterable[int]) -> str:
    return ", ".join(map(str, sorted(partitions)))


def _milliseconds(where: str) -> int:
    try:
        time = datetime.fromisoformat(where)
    except ValueError:
        time = None
    if time is None or time.tzinfo is None:
        raise LakehouseError(
            f"'{where}' is no position. Write earliest, latest, a time such as 2026-01-31T00:00:00Z, or offsets such "
            f"as 0:12,1:40"
        )
    return int(time.timestamp() * 1000)


def resume(systems: Clients, namespace: str, topic: Topic, where: str, reason: str) -> Batch:
    """Decide where the next batch begins, whatever the table says; returns the position, `start` being the one before.

    Parameters: `where` as `at` takes it: partitions that it does not name stay where they are, while the topic is the
    same one; `reason` is kept with the decision.
    Raises: LakehouseError when `where` is unclear, not in the log, or before what the table has; CommitConflict;
    SchemaError; Unreachable.
    """
    from lakehouse.pipeline.ingestion import read_log

    log = read_log(systems.kafka, topic.topic)
    topic, table = systems.catalog.resolve_table(namespace, topic)
    base = table.metadata.current_snapshot_id if table else None
    before = newest_known(table)
    same_log = before is not None and (before.cluster_id, before.topic_id) == (log.cluster_id, log.topic_id)
    position = at(log, systems.kafka, where, unnamed={**log.start, **before.end} if before and same_log else None)
    for p, offset in position.end.items():
        if not log.start.get(p, 0) <= offset <= log.end.get(p, -1):
            there = f"{log.start.get(p)} to {log.end.get(p)}"
            raise LakehouseError(
                f"Partition {p} of '{topic.topic}' has offsets {there}, not {offset}. Nothing was changed"
            )
        if before and same_log and offset < min(before.end.get(p, 0), log.end[p]):
            raise LakehouseError(
                f"Table {namespace}.{topic.table} has partition {p} up to offset {before.end[p]} already; beginning at "
                f"{offset} would duplicate rows. Nothing was changed. Use `lakehouse replay` to read records again"
            )
    if before:
        position = replace(position, start={p: before.end.get(p, offset) for p, offset in position.end.items()})
    known = formats(systems.schema_registry, topic)
    # The registry as it is now is part of what is decided.
    properties = fingerprints.properties(table, known)
    if before and (not same_log or any(offset < before.end.get(p, 0) for p, offset in position.end.items())):
        # In a log that lost records, other ones take their offsets.
        properties[RECREATED] = f"{before.cluster_id}/{before.topic_id}"
    table = ensure_table(systems.catalog, namespace, topic, known, table)
    _record(systems, namespace, table, base, position, reason, properties)
    return position


def newest_known(table: Table | None) -> Batch | None:
    """The newest token on main; where its history does not tell, the one of the offsets tag."""
    try:
        return last_batch(table)
    except UnclearState:
        assert table is not None
        tagged = table.snapshot_by_name(naming.OFFSETS_TAG)
        return batch_of(tagged) if tagged else None


def begin(systems: Clients, namespace: str, topic: Topic, table: Table | None, log: Log) -> None:
    """Record in a table without a position where lakehouse.yaml has the first batch begin.

    Raises:
        CommitConflict: Another writer published since the table was loaded.
        SchemaError: The schema does not fit the table.
    """
    base = table.metadata.current_snapshot_id if table else None
    position = at(log, systems.kafka, topic.start)
    table = ensure_table(systems.catalog, namespace, topic, formats(systems.schema_registry, topic), table)
    _record(systems, namespace, table, base, position, f"start: {topic.start}")


def roll_over(systems: Clients, namespace: str, topic: Topic, table: Table, last: Batch, reason: str) -> None:
    """Close a table at its last batch, and name the new table that continues it.

    A writer that still holds a batch for the closed table finds its main moved, and starts over.

    Raises:
        CommitConflict: Another writer published since the table was loaded.
    """
    name = naming.next_version(topic.table)
    while systems.catalog.load(namespace, name) is not None:
        # Somebody else's, whatever lakehouse.yaml says: nothing was continued in it yet.
        name = naming.next_version(name)
    base = table.metadata.current_snapshot_id
    _record(systems, namespace, table, base, replace(last, start=last.end), reason, {CONTINUED: name})


def _record(
    systems: Clients,
    namespace: str,
    table: Table,
    base: int | None,
    position: Batch,
    reason: str,
    properties: Mapping[str, str] | None = None,
) -> None:
    """Publish a snapshot without rows, which says that the next batch begins where `position` ends, and why.

    Args:
        base: Main's snapshot that was decided about.
        properties: Properties of the table, set in the same commit.

    Raises:
        CommitConflict: Another writer published since.
        UnclearState: The topic was deleted or recreated meanwhile.
    """
    from spark import write

    decision = {"reason": reason, "by": getuser(), "at": datetime.now(UTC).isoformat(timespec="seconds")}
    spark = systems.spark.session(systems.catalog.spark_settings())
    summary = {TOKEN: position.to_json(), DECISION: json.dumps(decision)}
    # No key: a snapshot without rows has none to check.
    commit = StagedCommit(systems, namespace, table.name()[-1], base, position)
    stage, _ = commit.stage(table, partial(write.nothing, spark), summary)
    commit.publish(commit.audit(stage, Counts(), 0), properties=properties)
