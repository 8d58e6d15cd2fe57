"""Derive a topic from the new rows of a published table.

Messages are produced to Kafka in one transaction with the bookmark (lakehouse/core/offsets/bookmark.py), a message of a
compacted topic, so that both are committed or neither.
"""

from __future__ import annotations

import importlib
import itertools
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Literal

import pyarrow as pa
from pyiceberg.table import Table

from lakehouse.config.model import Config, Topic
from lakehouse.config.sources import Derived
from lakehouse.core.errors import ConfigError, LakehouseError, UnclearState
from lakehouse.core.offsets.batch import Batch, Positions, head
from lakehouse.core.offsets.bookmark import Bookmark
from lakehouse.core.table_protocol import RECREATED, SUCCESSOR
from lakehouse.core.tables import metadata_columns
from lakehouse.pipeline.batches.positions import topic_id
from lakehouse.pipeline.bookmarks import bookmark_of, find_bookmark, furthest, lacking, require_one_topic, source_chains
from lakehouse.pipeline.engine import DerivationEngine, DerivedRows
from lakehouse.pipeline.engine_values import FirstRows, LateRows, Rows, RowsBetween, SnapshotRows, Transform
from lakehouse.pipeline.group_rows import rows_of_groups
from lakehouse.pipeline.schemas.schema_decision import require_naming
from lakehouse.pipeline.table_location import catalog_of
from resources.iceberg.snapshots import batch_of, history, last_batch, may_lack_rows_of
from resources.iceberg.table_chain import TableChain
from resources.kafka import bookmark_topic
from resources.kafka.bookmark_topic import derived_bookmark_name
from resources.kafka.transactions import MAX_BYTES, MAX_MESSAGES, Outgoing, begin, commit, message_limit, split

if TYPE_CHECKING:
    from confluent_kafka import Producer

    from lakehouse.pipeline.clients import Clients


@dataclass(frozen=True)
class Produced:
    """Result of one derivation.

    Attributes:
        messages: The number of messages: one per group that was derived again, or all messages made from single rows.
        source_snapshot_id: The snapshot of the source's table; None if it had none.
        lineage: The columns of the source that each column was derived from.
    """

    messages: int
    source_snapshot_id: int | None
    lineage: Mapping[str, list[str]] = field(default_factory=dict)


def derive(config: Config, topic: Topic, clients: Clients) -> Produced:
    """Derive messages from the new rows of the source and produce them: each touched group again, or each row once.

    Rows behind the bookmark that a redrive or replay, or ingestion after a rollback, added since are new as well. If
    the table was rolled back behind the bookmark, nothing is produced until it has caught up. After every error,
    read_committed consumers see exactly what the bookmark covers; of groups, they may see some messages that the
    bookmark does not cover yet.

    If the source rolled over to a new table, the remaining rows of the tables before it are derived first. A group may
    have rows in several tables; its message has all of them.

    A table of Tableflow has no offsets in its snapshots. Its position is a snapshot: the rows that the snapshot of the
    bookmark does not have are new, by partition and offset, in whichever order Tableflow committed them.

    Raises:
        ConfigError: The transform cannot be imported.
        LakehouseError: The topic does not accept a message.
        SchemaError: A column of the result has no Avro type, or the source has other names of metadata columns.
        UnclearState: The rows that were already derived, or added late, are unknown; or a group has rows of two tables,
            and the transform reads a column whose type changed.
        Unreachable: A system does not answer.
    """
    bookmark_topic.ensure(clients.kafka)
    # First: this fences off any older process, which can produce nothing from now on.
    producer = begin(clients.kafka, derived_bookmark_name(topic))
    # Read the id once: if the topic is recreated meanwhile, the bookmark is of the topic that had its rows.
    target_id = topic_id(clients.kafka, topic.topic)
    produced = Produced(0, None)
    for chain in source_chains(config, topic, clients, target_id):
        of_table = _derive_newest(config, topic, clients, producer, target_id, chain)
        produced = replace(of_table, messages=produced.messages + of_table.messages)
    return produced


def _derive_newest(
    config: Config, topic: Topic, clients: Clients, producer: Producer, target_id: str, chain: TableChain
) -> Produced:
    """Derive messages from the new rows of the newest table of a chain, and produce them; see `derive`.

    Args:
        config: The configuration.
        topic: The derived topic.
        clients: Clients of the systems.
        producer: The producer of its messages.
        target_id: Its id.
        chain: The tables of the source.
    """
    assert isinstance(topic.source, Derived)
    source, kafka, name = config.topic(topic.source.from_topic), clients.kafka, derived_bookmark_name(topic)
    catalog = catalog_of(source, clients)
    ref, table = chain.newest
    snapshot = table.current_snapshot() if table else None
    if table is None or snapshot is None:
        return Produced(0, None)
    require_naming(source, table.schema(), str(ref))
    engine, names = clients.engine_of(catalog).derivation, _names(source)
    compute = transform(config, topic)

    def read(snapshot_id: int) -> SnapshotRows:
        return SnapshotRows(ref, snapshot_id, names)

    is_ingested = source.is_ingested
    last = last_batch(table) if is_ingested else _all_rows(source, clients, engine.ends(read(snapshot.snapshot_id)))
    if last is None:
        return Produced(0, snapshot.snapshot_id)
    bookmark = find_bookmark(topic, source, clients, chain, last, target_id)
    since = bookmark.offsets if bookmark else {}
    if not source.is_ingested or SUCCESSOR in table.properties:
        # The retention of Tableflow may have deleted the last rows of a partition, which is no rollback. A table that
        # rolled over does not catch up with a bookmark that an operator set after the last row of a partition.
        end = furthest(last.end, since)
        last = replace(last, start=dict.fromkeys(end, 0), end=end)
    current = bookmark_of(last, target_id, table, since)
    if bookmark is not None:
        current = replace(current, further=bookmark.further)
    is_late = bookmark is not None and (
        bookmark.snapshot_id != current.snapshot_id
        if not source.is_ingested
        # A bookmark of the table before this one counts the replays of that table. Its dead letters may be rows here.
        else (bookmark.replays if bookmark.table_uuid == current.table_uuid else 0) != current.replays
        or _is_rolled_back(table, bookmark.snapshot_id)
        or bool(bookmark.further and topic.source.group_by)
    )
    if bookmark and (bookmark.is_past(last.end) or since == last.end and not is_late):
        return Produced(0, current.snapshot_id)
    rows = read(current.snapshot_id)
    if bookmark is None and not topic.source.group_by:
        require_one_topic(topic, source, table, partial(engine.ends, rows), last.end)
    # Without a position, all rows are new: those of a topic that was recreated may be at offsets after the last batch.
    late: list[Rows] = [rows] if bookmark is None and topic.source.group_by else []
    # A replay may add rows again that were derived and then deleted. Tableflow reads no record again.
    is_restorable = source.is_ingested and not topic.source.group_by
    if bookmark is not None and (is_late or is_restorable and may_lack_rows_of(table, bookmark.snapshot_id)):
        late = [_late(config, topic, engine, chain, rows, read, since, bookmark)] if is_late else []
        lost = lacking(engine, table, read, bookmark, is_restorable=is_restorable)
        if topic.source.group_by:
            # Their groups have fewer rows now.
            known = {id_: end for id_, end in lost.items() if table.snapshot_by_id(id_)}
            late += [
                # Rows of a recreated topic may have the same offsets, so any of them may be missing.
                read(id_) if RECREATED in table.properties else LateRows(read(id_), [(rows, end)], end)
                for id_, end in known.items()
            ]
        current = replace(current, further={} if topic.source.group_by else lost)
    limit, produced = message_limit(kafka, topic.topic), 0
    remaining = replace(last, start={p: since.get(p, 0) for p in last.end})
    if topic.source.group_by:
        # All at once, because a group may have rows in every part.
        new = RowsBetween(rows, remaining.start, remaining.end)
        closed = [SnapshotRows(ref, s.snapshot_id, names) for ref, t in chain.closed if (s := t.current_snapshot())]
        inputs = rows_of_groups(engine, topic, compute, rows, [new, *late], closed)
        derived = engine.derive(inputs, compute)
        parts = iter([(_messages(config, topic, clients, derived), replace(current, offsets=last.end))])
    else:
        messages = partial(_messages_of_rows, config, topic, clients, engine)
        parts = _parts(topic, engine, messages, rows, late, remaining, bookmark, current)
    for result, reached in parts:
        bookmark_message = bookmark_topic.message(kafka, name, reached)
        outgoing = itertools.chain(_outgoing(topic, result, limit), [bookmark_message])
        if topic.source.group_by and bookmark:
            # Of several transactions, the first one records the snapshot, whose rows the table may lack later.
            begun = replace(bookmark, further={**bookmark.further, current.snapshot_id: last.end})
            outgoing = itertools.chain([bookmark_topic.message(kafka, name, begun)], outgoing)
        # Groups may be produced twice, so only the last of their transactions needs the new bookmark.
        for part in split(outgoing) if topic.source.group_by else [outgoing]:
            commit(kafka, producer, part)
        produced += result.num_rows
    return Produced(produced, current.snapshot_id, engine.derive(rows, compute).lineage())


def _is_rolled_back(table: Table, snapshot_id: int) -> bool:
    """Return whether main was rolled back behind a snapshot; records that were read again may have other outcomes."""
    return table.snapshot_by_id(snapshot_id) is not None and all(
        snapshot.snapshot_id != snapshot_id for snapshot in history(table)
    )


def _names(source: Topic) -> Mapping[str, str]:
    """Return the names of all metadata columns that the source's table may have, by their internal names."""
    if source.is_ingested:
        return source.metadata.names
    columns = (*metadata_columns.registered(), *metadata_columns.TABLEFLOW_ONLY)
    return metadata_columns.names(columns, source.metadata.naming)


def _all_rows(source: Topic, clients: Clients, end: Positions) -> Batch:
    """Return the offsets of all rows of a table that Tableflow writes as one batch.

    Raises:
        LakehouseError: The topic does not exist, so it is unknown whose offsets these are.
    """
    id_ = topic_id(clients.kafka, source.topic)
    return Batch(clients.kafka.cluster_id(), source.topic, id_, dict.fromkeys(end, 0), end)


def _late(
    config: Config,
    topic: Topic,
    engine: DerivationEngine,
    chain: TableChain,
    rows: Rows,
    read: Callable[[int], Rows],
    since: Positions,
    bookmark: Bookmark,
) -> Rows:
    """Return the rows behind the bookmark that were added after the last derivation.

    Raises:
        UnclearState: The snapshot of that derivation is expired, and messages of single rows cannot replace each other.
    """
    _, table = chain.newest
    assert table is not None and isinstance(topic.source, Derived)
    source = config.topic(topic.source.from_topic)
    snapshots, before = bookmark.snapshots_of(str(table.metadata.table_uuid)), since
    if topic.source.group_by:
        # From the others, a derivation may have produced some groups only before it failed.
        snapshots = {id_: end for id_, end in snapshots.items() if id_ == bookmark.snapshot_id}
    if bookmark.table_uuid != str(table.metadata.table_uuid):
        # Rows before the table begins are dead letters of the one before it. An operator has skipped the others.
        begin = chain.begin
        before = {p: min(o, begin.get(p, 0)) for p, o in since.items()}
    lost = {id_: end for id_, end in snapshots.items() if table.snapshot_by_id(id_) is None}
    if source.is_ingested and bookmark.snapshot_id in snapshots.keys() - lost.keys():
        batches = map(batch_of, history(table, bookmark.snapshot_id))
        if ingested := next((batch for batch in batches if batch), None):
            # An operator may have set the bookmark after the last row of that snapshot: the rows between were skipped.
            end = ingested.end if bookmark.is_of(ingested) else {}
            before = {p: min(o, end.get(p, 0)) for p, o in since.items()}
        else:
            lost[bookmark.snapshot_id] = since
    if lost and topic.source.group_by:
        return rows
    known = [(read(id_), end) for id_, end in snapshots.items() if table.snapshot_by_id(id_)]
    late = LateRows(rows, known, before)
    # Rows after all that was derived from the lost snapshots are new.
    ends = {p: max(end.get(p, 0) for end in lost.values()) for p in since} if lost else {}
    if not lost or not engine.ends(RowsBetween(late, {}, ends)):
        return late
    named, snapshot_id = ",".join(f"{p}:{offset}" for p, offset in sorted(since.items())), next(iter(lost))
    if not source.is_ingested:
        raise UnclearState(
            f"'{topic.name}' was derived from snapshot {snapshot_id} of '{topic.source.from_topic}', which is "
            f"expired, so the rows that Tableflow added since are unknown. Nothing was produced. Skip all rows of the "
            f"newest snapshot with `lakehouse bookmark {topic.name} --at latest --reason …`, or delete topic "
            f"'{topic.topic}' and its table to derive everything again"
        )
    raise UnclearState(
        f"A redrive, a replay, or ingestion after a rollback added rows of '{topic.source.from_topic}' behind the "
        f"bookmark of '{topic.name}', but snapshot {snapshot_id}, which is needed to identify them, is expired. "
        f"Nothing was produced. Skip them with `lakehouse bookmark {topic.name} --at {named} --reason …`, or delete "
        f"topic '{topic.topic}' and its table to derive everything again"
    )


def _parts(
    topic: Topic,
    engine: DerivationEngine,
    messages: Callable[[Rows], pa.Table],
    rows: Rows,
    late: Sequence[Rows],
    rest: Batch,
    bookmark: Bookmark | None,
    current: Bookmark,
) -> Iterator[tuple[pa.Table, Bookmark]]:
    """Yield the messages of new single rows in parts, each for one transaction, and the bookmark after each part."""
    most = min(topic.max_records_per_batch, MAX_MESSAGES)
    if late and bookmark is not None:
        (remaining,) = late
        # Until all late rows are derived, the bookmark stays at the snapshot that lacks them.
        while last := engine.ends(first := FirstRows(remaining, most)):
            result = messages(first)
            if result.nbytes > MAX_BYTES and most > 1:
                most = _smaller(most, result)
                continue
            ends = {p: rest.start[p] if p < max(last) else last.get(p, 0) for p in rest.start}
            yield result, replace(bookmark, further={**bookmark.further, current.snapshot_id: ends})
            remaining = RowsBetween(remaining, ends, rest.start)
        yield pa.table({"key": [], "value": []}), current
    while rest.offsets:
        part = head(rest, most)
        result = messages(RowsBetween(rows, part.start, part.end))
        if result.nbytes > MAX_BYTES and part.offsets > 1:
            most = _smaller(part.offsets, result)
            continue
        yield result, replace(current, offsets=part.end)
        rest = replace(rest, start=part.end)


def _smaller(number: int, result: pa.Table) -> int:
    """Return a number of rows whose messages are fewer bytes than those of `number` rows, which are too many."""
    return max(1, number * MAX_BYTES // (2 * int(result.nbytes)))


def _messages_of_rows(config: Config, topic: Topic, clients: Clients, engine: DerivationEngine, rows: Rows) -> pa.Table:
    """Return the messages that the transform derives from rows of the source."""
    return _messages(config, topic, clients, engine.derive(rows, transform(config, topic)))


def _messages(config: Config, topic: Topic, clients: Clients, derived: DerivedRows) -> pa.Table:
    """Return the messages of a transform's result."""
    source = topic.source
    assert isinstance(source, Derived)
    value = _registered(config, topic, clients, "value", source.value_schema_file, derived)
    keyed = topic.key if topic.key_format else ()
    key = _registered(config, topic, clients, "key", source.key_schema_file, derived, keyed) if keyed else None
    return derived.messages(key, value)


def _registered(
    config: Config,
    topic: Topic,
    clients: Clients,
    side: Literal["key", "value"],
    file: str,
    derived: DerivedRows,
    columns: Sequence[str] | None = None,
) -> tuple[int, str]:
    """Return the registry id and the text of the schema of a key or value: the file's, or one derived from the rows."""
    schema = config.text(file) if file else derived.avro_schema(f"{topic.name}_{side}", columns)
    return clients.schema_registry.register(topic.subject(side), schema), schema


def _outgoing(topic: Topic, result: pa.Table, limit: int) -> Iterator[Outgoing]:
    """Yield the messages; one record batch at a time exists as Python objects.

    Raises:
        LakehouseError: A message exceeds the topic's limit.
    """
    for batch in result.to_batches():
        for key, value in zip(*(batch.column(name).to_pylist() for name in ("key", "value")), strict=True):
            message = Outgoing(topic.topic, key, value)
            if message.size > limit:
                raise LakehouseError(
                    f"A message of '{topic.name}' has {message.size:,} bytes, but topic '{topic.topic}' accepts at "
                    f"most {limit:,} (max.message.bytes). Its transaction was aborted. Raise that setting with "
                    f"kafka-configs, or return smaller rows from the transform"
                )
            yield message


def transform(config: Config, topic: Topic) -> Transform:
    """Return the function that computes a derived topic, from an installed module or one beside lakehouse.yaml.

    Raises:
        ConfigError: It cannot be imported.
    """
    assert isinstance(topic.source, Derived)
    module, _, function = topic.source.transform.partition(":")
    # At the end, so that a file of the project hides no installed module.
    if str(config.root) not in sys.path:
        sys.path.append(str(config.root))
    try:
        imported: Transform = getattr(importlib.import_module(module), function)
        return imported
    except (ImportError, AttributeError) as error:
        raise ConfigError(
            f"lakehouse.yaml: topic '{topic.name}': transform '{topic.source.transform}' cannot be imported: {error}. "
            f"Nothing was produced. Correct `transform`, or its module"
        ) from error
