"""Positions up to which derived topics and dead letter topics were produced, and the command that sets them."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from functools import partial, reduce

from pyiceberg.table import Table

from lakehouse.config.model import Config, Topic
from lakehouse.config.sources import Derived
from lakehouse.core.errors import LakehouseError, TransientError, UnclearState
from lakehouse.core.offsets.batch import Batch, Log, Positions
from lakehouse.core.offsets.bookmark import Bookmark
from lakehouse.core.table_protocol import RECREATED, REPLAYS, SUCCESSOR
from lakehouse.pipeline.batches.offsets import parse_position
from lakehouse.pipeline.batches.positions import read_log, topic_id
from lakehouse.pipeline.clients import Clients
from lakehouse.pipeline.engine import DerivationEngine
from lakehouse.pipeline.engine_values import LateRows, Rows, SnapshotRows
from lakehouse.pipeline.table_location import catalog_of, table_of
from resources.iceberg.snapshots import history, last_batch, may_lack_rows_of
from resources.iceberg.table_chain import TableChain
from resources.kafka import bookmark_topic
from resources.kafka.bookmark_topic import dead_letter_bookmark_name, derived_bookmark_name
from resources.kafka.transactions import begin, commit
from resources.protocols import KafkaClient


def _has_messages(kafka: KafkaClient, topic: str) -> bool:
    """Return whether a topic has committed messages now or had some before retention deleted them."""
    return any(
        offsets.start > 0 or any(True for _ in kafka.messages(topic, partition, offsets.start, offsets.end))
        for partition, offsets in kafka.offsets([topic])[topic].items()
    )


def find_bookmark(
    topic: Topic, source: Topic, clients: Clients, chain: TableChain, last: Batch, target_id: str
) -> Bookmark | None:
    """Return the bookmark from which a derived topic resumes; None if it must be derived from all rows.

    Deriving a group again replaces its message by an equal one, so groups need no bookmark. A single row must not be
    derived twice.

    Args:
        topic: The derived topic.
        source: The topic that it is derived from.
        clients: Clients of the systems.
        chain: The tables of the source; rows of the newest one are derived.
        last: The newest batch of that table.
        target_id: Id of the derived topic.

    Raises:
        UnclearState: The rows that were already derived are unknown, or are not rows of the current table.
    """
    assert isinstance(topic.source, Derived)
    _, table = chain.newest
    assert table is not None
    bookmark = bookmark_topic.read(clients.kafka, derived_bookmark_name(topic))
    if topic.source.group_by:
        if bookmark is None or bookmark.target_id != target_id or not bookmark.is_of(last):
            return None
        return bookmark if _is_of_source(bookmark, chain) else None
    if bookmark is None or bookmark.target_id != target_id:
        if _has_messages(clients.kafka, topic.topic):
            raise UnclearState(
                f"Topic '{topic.topic}' has messages, but no bookmark records which rows of '{source.name}' they were "
                f"derived from. Nothing was produced. {_remedy(topic)}"
            )
        return None
    if not bookmark.is_of(last):
        # The table of Tableflow may have rows of the previous topic, too, unless it is a new one.
        is_same = not source.is_ingested and bookmark.table_uuid == str(table.metadata.table_uuid)
        if RECREATED not in table.properties and not is_same:
            # All rows of the table are from the new topic.
            return None
        raise UnclearState(
            f"Topic '{source.topic}' was recreated, and its table has rows of both topics at the same offsets, so it "
            f"is unknown which of them '{topic.name}' was derived from. Nothing was produced. {_remedy(topic)}"
        )
    if not _is_of_source(bookmark, chain):
        raise UnclearState(
            f"The table of '{source.name}' is not the one that '{topic.name}' was derived from, or was rolled back "
            f"before it rolled over to a new one, and may have other rows. Nothing was produced. {_remedy(topic)}"
        )
    return bookmark


def require_one_topic(
    topic: Topic, source: Topic, table: Table, ends: Callable[[], Positions], position: Positions
) -> None:
    """Require that no row from a position on is of a topic that was recreated, because its offsets do not identify it.

    Args:
        topic: The topic that is derived from single rows.
        source: The topic that it is derived from.
        table: The table of the source.
        ends: Returns the offset after the last one of its rows, by partition.
        position: The offsets by partition up to which rows were derived or skipped.

    Raises:
        UnclearState: Such rows would be derived with the new rows of the same offsets.
    """
    if RECREATED not in table.properties:
        return
    end = ends()
    if any(offset > position.get(p, 0) for p, offset in end.items()):
        named = ",".join(f"{p}:{offset}" for p, offset in furthest(end, position).items())
        raise UnclearState(
            f"Topic '{source.topic}' was recreated, and its table has rows of the previous topic at offsets that "
            f"'{topic.name}' would derive with later rows. Nothing was changed. Continue after them with `lakehouse "
            f"bookmark {topic.name} --at {named} --reason …`, which skips the new rows before these offsets"
        )


def _remedy(topic: Topic) -> str:
    return (
        f"Set the position to resume from with `lakehouse bookmark {topic.name} --at POSITION --reason …`, or delete "
        f"topic '{topic.topic}' and its table to derive everything again"
    )


def _is_of_source(bookmark: Bookmark, chain: TableChain) -> bool:
    """Return whether a bookmark is of a table that was not closed after it had been rolled back behind the bookmark.

    A table that receives new records catches up after a rollback.
    """
    derived = chain.with_uuid(bookmark.table_uuid)
    if derived is not None and derived is chain.newest[1] and SUCCESSOR not in derived.properties:
        return True
    last = last_batch(derived)
    is_repeated = derived is not None and int(derived.properties.get(REPLAYS, 0)) != bookmark.replays
    return last is not None and not (is_repeated and bookmark.is_past(last.end))


def source_chains(config: Config, topic: Topic, clients: Clients, target_id: str) -> Iterator[TableChain]:
    """Yield the tables from which a derived topic lacks rows, in order, each as the newest one of a chain.

    Only a source that rolled over has several. The first one is the table of the bookmark, and the last one may not
    exist yet. Groups are derived from all tables again if the source topic was recreated, or the table of the bookmark
    dropped, or closed after a rollback: those that had rows which no table has any more may have other rows in a table
    before it.

    Args:
        config: The configuration.
        topic: The derived topic.
        clients: Clients of the systems.
        target_id: Its id.

    Raises:
        UnclearState: An earlier release created one of the tables.
        Unreachable: A system does not answer.
    """
    assert isinstance(topic.source, Derived)
    source = config.topic(topic.source.from_topic)
    chain = catalog_of(source, clients).chain(table_of(config, source, clients))
    bookmark = bookmark_topic.read(clients.kafka, derived_bookmark_name(topic)) if chain.closed else None
    if bookmark is None or bookmark.target_id != target_id:
        return chain.since(None)
    last = chain.last_batch if topic.source.group_by else None
    is_recreated = last is not None and not bookmark.is_of(last)
    is_lost = last is not None and not _is_of_source(bookmark, chain)
    return chain.since(None if is_recreated or is_lost else bookmark.table_uuid)


def set_bookmark(
    config: Config, topic: Topic, clients: Clients, where: str, reason: str, *, letters: bool
) -> Positions:
    """Set a bookmark, replacing the present one. Derivation or dead letter production resumes from it.

    Args:
        config: The configuration.
        topic: The derived topic, or the topic whose dead letters are produced to a topic.
        clients: Clients of the systems.
        where: A position in the source topic, in the format of `lakehouse resume`. `latest` is that of the source's
            table, or the present bookmark where that is further: records that are ingested later are not skipped.
        reason: The operator's reason, stored with the bookmark.
        letters: Whether to set the bookmark of the topic's dead letters.

    Returns:
        The offsets of the bookmark (exclusive) by partition.

    Raises:
        LakehouseError: The topic has no such bookmark, or its source table or target topic is missing.
        TransientError: The source topic is being recreated.
        UnclearState: The source topic was recreated, and rows of the previous one would be derived with later ones; or
            the table's position is unknown.
    """
    if letters:
        source, target, name = topic, topic.dead_letter_topic, dead_letter_bookmark_name(topic)
    elif isinstance(topic.source, Derived):
        source, target, name = config.topic(topic.source.upstream), topic.topic, derived_bookmark_name(topic)
    else:
        source, target, name = topic, "", ""
    if not target:
        kind = "'dead_letter_topic'" if letters else "source of type 'derived'"
        raise LakehouseError(
            f"'{topic.name}' has no {kind}, so it has no such bookmark. Nothing was changed. Name another topic of "
            f"lakehouse.yaml"
        )
    log = read_log(clients.kafka, source.topic)
    offsets = parse_position(log, clients.kafka, where).end
    if topic_id(clients.kafka, source.topic) != log.topic_id:
        raise TransientError(
            f"Topic '{source.topic}' was recreated while the position was read",
            "Nothing was changed",
            "Repeat the command",
        )
    chain = catalog_of(source, clients).chain(table_of(config, source, clients))
    # The bookmark of a table of Tableflow is at a snapshot, so rows that the snapshot lacks are not skipped.
    is_latest = where == "latest" and source.is_ingested
    if is_latest:
        offsets = _table_position(chain, log)
    ref, table = chain.at(log.topic_id, offsets) if source.is_ingested else chain.newest
    target_topic = clients.kafka.describe([target]).get(target)
    snapshot = table.current_snapshot() if table else None
    last = last_batch(table) if source.is_ingested else None
    has_rows = snapshot is not None and (last is not None or not source.is_ingested)
    if table is None or snapshot is None or not has_rows or target_topic is None:
        raise LakehouseError(
            f"Table {ref} is empty, or topic '{target}' does not exist, so there is nothing to resume from. Nothing "
            f"was changed. Materialize iceberg/{source.name} first"
        )

    engine = clients.engine.derivation

    def read(snapshot_id: int) -> Rows:
        return SnapshotRows(ref, snapshot_id, source.metadata.names)

    by_row = isinstance(topic.source, Derived) and not topic.source.group_by and not letters
    if last and by_row:
        if last.topic_id != log.topic_id:
            raise UnclearState(
                f"Topic '{source.topic}' was recreated, and table {ref} has no position in it. Nothing was changed. "
                f"Run `lakehouse resume {source.name}` first"
            )
        ends = partial(engine.ends, read(snapshot.snapshot_id))
        require_one_topic(topic, source, table, ends, offsets)
    bookmark_topic.ensure(clients.kafka)
    producer = begin(clients.kafka, name)
    bookmark = bookmark_of(log, target_topic.topic_id, table, offsets, reason)
    previous = bookmark_topic.read(clients.kafka, name)
    if previous and previous.is_like(bookmark):
        if is_latest:
            # After a rollback, the table lacks rows that were derived, and may have them again.
            bookmark = replace(bookmark, offsets=furthest(offsets, previous.offsets))
        if last and not letters:
            bookmark = replace(bookmark, further=lacking(engine, table, read, previous, is_restorable=by_row))
    commit(clients.kafka, producer, [bookmark_topic.message(clients.kafka, name, bookmark)])
    return bookmark.offsets


def _table_position(chain: TableChain, log: Log) -> Positions:
    """Return the offsets up to which the tables have the records of a topic; 0 in partitions of which they have none.

    Raises:
        UnclearState: A table has rows, and its position is unknown.
        Unreachable: A metadata file could not be read.
    """
    last = chain.last_batch
    return furthest(dict.fromkeys(log.end, 0), last.end if last and last.identity == log.identity else {})


def furthest(first: Positions, second: Positions) -> Positions:
    """Return the larger offset of each partition of two positions."""
    return {p: max(first.get(p, 0), second.get(p, 0)) for p in sorted({*first, *second})}


def bookmark_of(source: Batch, target_id: str, table: Table, offsets: Positions, reason: str = "") -> Bookmark:
    """Return a bookmark at the current snapshot of the table of a source."""
    snapshot = table.current_snapshot()
    assert snapshot is not None
    replays = int(table.properties.get(REPLAYS, 0))
    uuid = str(table.metadata.table_uuid)
    return Bookmark(*source.identity, target_id, uuid, snapshot.snapshot_id, replays, offsets, reason)


def lacking(
    engine: DerivationEngine, table: Table, read: Callable[[int], Rows], bookmark: Bookmark, *, is_restorable: bool
) -> Mapping[int, Positions]:
    """Return the snapshots of which rows were derived that a table may lack, with the offsets before which those are.

    These are snapshots from which the table was rolled back, that are expired, or of which rows were deleted. A replay
    may add their rows again, which must not be derived twice; groups that had them must be derived again.

    Args:
        engine: The engine.
        table: The table of the source.
        read: Returns the rows of a snapshot.
        bookmark: The present bookmark.
        is_restorable: Whether a replay may add rows again that a commit of main deleted, and that have been derived
            one by one.
    """
    current = table.current_snapshot()
    assert current is not None
    derived = bookmark.snapshots_of(str(table.metadata.table_uuid))
    known = {snapshot.snapshot_id for snapshot in table.metadata.snapshots}
    complete = {snapshot.snapshot_id for snapshot in history(table)}
    if is_restorable:
        # Rows of the further snapshots were deleted before.
        complete &= set() if may_lack_rows_of(table, bookmark.snapshot_id) else {bookmark.snapshot_id}

    def missing(snapshot_id: int) -> Positions:
        end = derived[snapshot_id]
        if RECREATED in table.properties:
            # Rows of both topics may have one offset, so the missing ones are unknown.
            return end
        return engine.ends(LateRows(read(snapshot_id), [(read(current.snapshot_id), end)], end))

    checked = sorted(derived.keys() - complete)
    lost = {id_: positions for id_ in checked if id_ in known and (positions := missing(id_))}
    if expired := [id_ for id_ in checked if id_ not in known]:
        # What each of them had is unknown, so one stands for all, and the bookmark does not grow.
        lost[expired[0]] = reduce(furthest, (derived[id_] for id_ in expired))
    return lost
