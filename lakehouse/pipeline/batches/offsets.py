"""Set a table's offsets if its snapshots do not have them: from lakehouse.yaml, or by an operator's decision."""

import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial

from pyiceberg.table import Table

from lakehouse.config.model import Topic
from lakehouse.core.errors import LakehouseError, NewerFormat, UnclearState
from lakehouse.core.offsets.batch import Batch, Counts, Log, Positions
from lakehouse.core.table_protocol import DECISION, OFFSETS_TAG, RECREATED, SUCCESSOR, TOKEN
from lakehouse.core.tables.naming import TableRef
from lakehouse.core.user_name import user_name
from lakehouse.pipeline.batches.positions import read_log
from lakehouse.pipeline.clients import Clients
from lakehouse.pipeline.commits.staged_commit import StagedCommit
from lakehouse.pipeline.dead_letters import letters
from lakehouse.pipeline.schemas import recorded_settings, schema_fingerprints
from lakehouse.pipeline.schemas.decoding import resolve_schemas
from lakehouse.pipeline.schemas.schema_decision import decide_schema, ensure_table
from resources.iceberg.snapshots import batch_of, last_batch
from resources.protocols import KafkaClient

OFFSETS = re.compile(r"\d+:\d+(,\d+:\d+)*")
"""Format of offsets by partition, such as `0:12,1:40`."""


def parse_offsets(where: str) -> dict[int, int]:
    """Return the offsets in a position by partition; none if the position has another format.

    Raises:
        LakehouseError: A partition occurs twice.
    """
    pairs = [pair.split(":") for pair in where.split(",")] if OFFSETS.fullmatch(where) else []
    offsets = {int(partition): int(offset) for partition, offset in pairs}
    if len(offsets) < len(pairs):
        raise LakehouseError(f"'{where}' names a partition twice. Nothing was changed. Name each partition once")
    return offsets


def require_position(where: str, *words: str) -> None:
    """Require that a text is a position, before any system is asked.

    Args:
        where: The text.
        words: Words besides `earliest` and `latest` that are positions.

    Raises:
        LakehouseError: It is none.
    """
    if where not in ("earliest", "latest", *words) and not parse_offsets(where):
        _milliseconds(where)


def parse_position(log: Log, kafka: KafkaClient, where: str, unnamed: Positions | None = None) -> Batch:
    """Return a position as an empty batch that ends there.

    Args:
        log: The topic.
        kafka: The cluster.
        where: `earliest`, `latest`, a time (ISO 8601 with UTC offset) or offsets such as `0:12,1:40`.
        unnamed: Offsets of the partitions that `where` does not name, if it consists of offsets.

    Raises:
        LakehouseError: `where` has none of these formats, names partitions that the topic does not have, or omits some
            that `unnamed` does not have.
        Unreachable: Kafka does not answer.
    """
    offsets = parse_offsets(where)
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
    """Require that the partitions in `offsets` are those of the topic.

    Raises:
        LakehouseError: A partition is unknown or missing.
    """
    existing, unknown = _listed(log.end), _listed(offsets.keys() - log.end.keys())
    if unknown:
        raise LakehouseError(
            f"'{where}' names partitions {unknown}, which topic '{log.topic}' does not have. Nothing was changed. "
            f"Its partitions are {existing}"
        )
    if missing := _listed(log.end.keys() - offsets.keys()):
        raise LakehouseError(
            f"'{where}' names no offset for partitions {missing}, so it is unclear where they resume. Nothing was "
            f"changed. Name an offset for each partition of '{log.topic}': {existing}"
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
            f"'{where}' is not a valid position. Nothing was changed. Use earliest, latest, a time such as "
            f"2026-01-31T00:00:00Z, or offsets such as 0:12,1:40"
        )
    return int(time.timestamp() * 1000)


def resume(clients: Clients, namespace: str, topic: Topic, where: str, reason: str) -> Batch:
    """Set the offsets at which the next batch begins, whatever the table's snapshots contain.

    Args:
        clients: Clients of the systems.
        namespace: The namespace of the table.
        topic: The topic.
        where: A position; see `parse_position`. Partitions that it does not name keep their offsets if the topic was
            not recreated.
        reason: The operator's reason, stored with the decision.

    Returns:
        The new offsets as `end`, and the previous ones as `start`.

    Raises:
        CommitConflict: Another writer published meanwhile.
        LakehouseError: `where` is invalid, outside of the log, or before the end of what the table has.
        NewerFormat: A newer release wrote the table's newest batch.
        SchemaError: The schema does not fit the table.
        Unreachable: A system does not answer.
    """
    # Read the table first: another writer may publish records beyond an end that was read before.
    chain = clients.catalog.chain(topic.table_in(namespace))
    ref, table = chain.newest
    log = read_log(clients.kafka, topic.topic)
    base = table.metadata.current_snapshot_id if table else None
    in_table = newest_batch(table)
    # If the topic rolled over, its newest table may have no batch yet.
    previous = in_table or next(filter(None, (newest_batch(closed) for _, closed in reversed(chain.closed))), None)
    same_log = previous is not None and previous.identity == log.identity
    # The records of a partition that was added later begin at 0.
    known = {**dict.fromkeys(log.end, 0), **previous.end} if previous and same_log else None
    position = parse_position(log, clients.kafka, where, unnamed=known)
    for p, offset in position.end.items():
        if not log.start.get(p, 0) <= offset <= log.end.get(p, -1):
            raise LakehouseError(
                f"Partition {p} of '{topic.topic}' has offsets {log.start.get(p)} to {log.end.get(p)}, not {offset}. "
                f"Nothing was changed. Choose an offset in that range"
            )
        if previous and same_log and offset < min(previous.end.get(p, 0), log.end[p]):
            raise LakehouseError(
                f"Partition {p} of '{topic.topic}' was ingested up to offset {previous.end[p]}, so resuming at "
                f"{offset} would duplicate rows. Nothing was changed. Use `lakehouse replay` to read records again"
            )
    if previous:
        before = known or previous.end
        position = replace(position, start={p: before.get(p, offset) for p, offset in position.end.items()})
    decision = decide_schema(topic, resolve_schemas(clients.schema_registry, topic), table, is_adopted=True)
    # The next batch continues in a new table; this one keeps its columns.
    rolls_over = decision.action == "roll_over"
    schemas = decision.schemas if rolls_over else decision.require_readable()
    properties = {} if rolls_over else recorded_settings.changed(topic, table)
    # The decision also accepts the registry's present schemas.
    properties |= {} if rolls_over else schema_fingerprints.properties(table, schemas)
    # In a log that lost records, new records reuse their offsets.
    is_behind = previous is not None and any(o < previous.end.get(p, 0) for p, o in position.end.items())
    if previous and (is_behind if same_log else in_table):
        properties[RECREATED] = f"{previous.cluster_id}/{previous.topic_id}"
    if in_table and table and RECREATED in properties and RECREATED not in table.properties:
        letters.mark_existing_rows(clients, topic, ref, in_table, position)
    if table is None or not rolls_over:
        table = ensure_table(clients.catalog, topic, ref, schemas, table)
    _record(clients, ref, table, base, position, reason, properties)
    return position


def newest_batch(table: Table | None) -> Batch | None:
    """Return the newest batch on main; if its history is ambiguous, the batch of the offsets tag.

    Raises:
        NewerFormat: A newer release wrote it, so the table has rows of unknown offsets.
    """
    try:
        return last_batch(table)
    except NewerFormat:
        raise
    except UnclearState:
        assert table is not None
        tagged = table.snapshot_by_name(OFFSETS_TAG)
        return batch_of(tagged) if tagged else None


def record_start(clients: Clients, topic: Topic, ref: TableRef, table: Table | None, log: Log) -> None:
    """Record the configured start position in a table that has no offsets yet.

    Raises:
        CommitConflict: Another writer published after the table was loaded.
        SchemaError: The schema does not fit the table.
    """
    base = table.metadata.current_snapshot_id if table else None
    position = parse_position(log, clients.kafka, topic.start)
    schemas = decide_schema(topic, resolve_schemas(clients.schema_registry, topic), table).require_readable()
    table = ensure_table(clients.catalog, topic, ref, schemas, table)
    properties = recorded_settings.changed(topic, table)
    _record(clients, ref, table, base, position, f"start: {topic.start}", properties)


def roll_over(clients: Clients, topic: Topic, ref: TableRef, table: Table, last: Batch, reason: str) -> None:
    """Close a table at its last batch, and record the name of its successor.

    A writer that still has a batch for the closed table finds that main has moved, and starts over.

    Raises:
        CommitConflict: Another writer published after the table was loaded.
    """
    if RECREATED not in table.properties:
        # A redrive adds dead letters to the successor from now on, and does not read the rows of this table.
        letters.mark_existing_rows(clients, topic, ref, last, last)
    successor = ref.next_version
    while clients.catalog.load(successor) is not None:
        # A table of this name belongs to another topic or program: this topic has not rolled over to it yet.
        successor = successor.next_version
    base = table.metadata.current_snapshot_id
    _record(clients, ref, table, base, replace(last, start=last.end), reason, {SUCCESSOR: successor.name})


def _record(
    clients: Clients,
    ref: TableRef,
    table: Table,
    base: int | None,
    position: Batch,
    reason: str,
    properties: Mapping[str, str] | None = None,
) -> None:
    """Publish an empty snapshot that records where the next batch begins, and why.

    Args:
        clients: Clients of the systems.
        ref: The table.
        table: The table as loaded.
        base: The snapshot of main that the decision is about.
        position: A batch that ends where the next one begins.
        reason: The reason for the decision.
        properties: Table properties to set in the same commit.

    Raises:
        CommitConflict: Another writer published after `base`.
        UnclearState: The topic was deleted or recreated meanwhile.
    """
    decision = {"reason": reason, "by": user_name(), "at": datetime.now(UTC).isoformat(timespec="seconds")}
    summary = {TOKEN: position.to_json(), DECISION: json.dumps(decision)}
    # An empty snapshot has no keys to check.
    commit = StagedCommit(clients, ref, base, position)
    stage, _ = commit.stage(table, partial(clients.engine.write, None), summary)
    commit.publish(commit.audit(stage, [Counts()], 0), properties=properties)
