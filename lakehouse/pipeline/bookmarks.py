"""Commands that set the positions up to which derived topics and dead letter topics were produced."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

from pyiceberg.table import Table

from lakehouse.config.model import Config, Topic
from lakehouse.config.sources import Derived
from lakehouse.core.errors import LakehouseError, TransientError, UnclearState
from lakehouse.core.offsets.batch import Batch, Log, Positions, furthest
from lakehouse.core.offsets.bookmark import Bookmark
from lakehouse.core.tables.naming import TableRef
from lakehouse.pipeline.batches.offsets import parse_position
from lakehouse.pipeline.batches.positions import read_log, topic_id
from lakehouse.pipeline.bookmark_owners import foreign_error, is_foreign
from lakehouse.pipeline.clients import Clients
from lakehouse.pipeline.dead_letters.renamed_entries import rename_bookmark
from lakehouse.pipeline.derivation.derivation_settings import DerivationSettings, require_same
from lakehouse.pipeline.derivation.late_rows import lost_rows
from lakehouse.pipeline.derivation.single_rows import require_one_topic
from lakehouse.pipeline.derivation.source_table import SourceTable
from lakehouse.pipeline.table_location import catalog_of, table_of
from resources.iceberg.bookmarked_table import bookmark_of
from resources.iceberg.snapshots import last_batch
from resources.iceberg.table_chain import TableChain
from resources.kafka import bookmark_topic
from resources.kafka.bookmark_topic import dead_letter_bookmark_name, derived_bookmark_name
from resources.kafka.transactions import begin, commit
from resources.protocols import KafkaClient

Further = Callable[[Bookmark], Mapping[int, Positions]]
"""Returns the further snapshots of a new bookmark, by the present one."""


@dataclass(frozen=True)
class _Position:
    """A position that an operator chose, and what it is a position in."""

    log: Log
    """The log of the source topic."""
    offsets: Positions
    """The offsets of the position."""
    is_latest: bool
    """Whether it is that of the tables."""
    chain: TableChain
    """The tables of the source."""
    ref: TableRef
    """The table that has the records from the position on."""
    table: Table
    """That table."""
    last: Batch | None
    """The newest batch of that table; None if Tableflow writes it."""
    target: str
    """The topic that the messages are produced to."""
    target_id: str
    """Its id."""


def set_derived_bookmark(config: Config, topic: Topic, clients: Clients, where: str, reason: str) -> Positions:
    """Set the bookmark of a derived topic, replacing the present one. Derivation resumes from it.

    If the topic has messages of another table, it is adopted: the processes of the other table are fenced off.

    Args:
        config: The configuration.
        topic: The derived topic.
        clients: Clients of the systems.
        where: A position in the source topic, in the format of `lakehouse resume`. `latest` is that of the source's
            table, or the present bookmark where that is further: records that are ingested later are not skipped.
            `earliest` is before all rows of the table. `current` keeps the present bookmark, with the settings that
            are declared now.
        reason: The operator's reason, stored with the bookmark.

    Returns:
        The offsets of the bookmark (exclusive) by partition.

    Raises:
        IncompatibleSettings: The topic has messages with other keys or of other groups.
        LakehouseError: The topic is not derived, its source table is missing, or the topic does not exist.
        TransientError: The source topic, or the derived one, is being recreated.
        UnclearState: The source topic was recreated, and rows of the previous one would be derived with later ones; or
            the table's position is unknown.
    """
    if not isinstance(topic.source, Derived):
        raise _no_bookmark(topic, "source of type 'derived'")
    source, name, kafka = config.topic(topic.source.upstream), derived_bookmark_name(topic), clients.kafka
    if where == "current":
        chain = catalog_of(source, clients).chain(table_of(config, source, clients))
        return _keep(kafka, topic, name, chain, reason)
    position = _read_position(config, clients, source, topic.topic, where)
    settings = DerivationSettings.of(topic)
    if position.last is None:
        return _replace(kafka, topic, name, position, reason, settings)
    engine, is_by_row = clients.engine, not topic.source.group_by
    table = SourceTable.of(source, position.chain, position.ref, position.table, engine)
    if position.last.topic_id != position.log.topic_id:
        raise UnclearState(
            f"Topic '{source.topic}' was recreated, and table {position.ref} has no position in it. Nothing was "
            f"changed. Run `lakehouse resume {source.name}` first"
        )
    if is_by_row:
        require_one_topic(topic, table, position.offsets)
    further = lambda present: lost_rows(table, present, is_restorable=is_by_row)  # noqa: E731
    return _replace(kafka, topic, name, position, reason, settings, further)


def set_dead_letter_bookmark(config: Config, topic: Topic, clients: Clients, where: str, reason: str) -> Positions:
    """Set the bookmark of a topic's dead letters, replacing the present one. Producing them resumes from it.

    If it is that of another table, the topic is adopted: the processes of the other table are fenced off.

    Args:
        config: The configuration.
        topic: The topic whose dead letters are produced to a topic.
        clients: Clients of the systems.
        where: A position in the topic, as for a derived topic.
        reason: The operator's reason, stored with the bookmark.

    Returns:
        The offsets of the bookmark (exclusive) by partition.

    Raises:
        LakehouseError: The topic has no topic of dead letters, or its table or that topic is missing.
        TransientError: The topic, or that of its dead letters, is being recreated.
        UnclearState: The table's position is unknown.
    """
    if not topic.dead_letter_topic:
        raise _no_bookmark(topic, "'dead_letter_topic'")
    position = _read_position(config, clients, topic, topic.dead_letter_topic, where)
    rename_bookmark(clients.kafka, topic, position.chain)
    return _replace(clients.kafka, topic, dead_letter_bookmark_name(topic), position, reason)


def _no_bookmark(topic: Topic, kind: str) -> LakehouseError:
    return LakehouseError(
        f"'{topic.name}' has no {kind}, so it has no such bookmark. Nothing was changed. Name another topic of "
        f"lakehouse.yaml"
    )


def _read_position(config: Config, clients: Clients, source: Topic, target: str, where: str) -> _Position:
    """Return the position that an operator chose.

    Args:
        config: The configuration.
        clients: Clients of the systems.
        source: The topic that the position is in.
        target: The topic that messages are produced to.
        where: The position in words.
    """
    kafka = clients.kafka
    log = read_log(kafka, source.topic)
    parsed = parse_position(log, kafka, where).end
    if topic_id(kafka, source.topic) != log.topic_id:
        raise TransientError(
            f"Topic '{source.topic}' was recreated while the position was read",
            "Nothing was changed",
            "Repeat the command",
        )
    chain = catalog_of(source, clients).chain(table_of(config, source, clients))
    # The bookmark of a table of Tableflow is at a snapshot, so rows that the snapshot lacks are not skipped.
    is_latest = where == "latest" and source.is_ingested
    offsets = _table_position(chain, log) if is_latest else parsed
    if where == "earliest":
        # The table may have rows of records that Kafka has deleted.
        offsets = dict.fromkeys(log.end, 0)
    ref, table = chain.at(log.topic_id, offsets) if source.is_ingested else chain.newest
    target_topic = kafka.describe([target]).get(target)
    last = last_batch(table) if source.is_ingested else None
    has_rows = table is not None and table.current_snapshot() is not None and (last or not source.is_ingested)
    if table is None or not has_rows or target_topic is None:
        raise LakehouseError(
            f"Table {ref} is empty, or topic '{target}' does not exist, so there is nothing to resume from. Nothing "
            f"was changed. Materialize {source.name}/iceberg first"
        )
    return _Position(log, offsets, is_latest, chain, ref, table, last, target, target_topic.topic_id)


def _table_position(chain: TableChain, log: Log) -> Positions:
    """Return the offsets up to which the tables have the records of a topic; 0 in partitions of which they have none.

    Raises:
        UnclearState: A table has rows, and its position is unknown.
        Unreachable: A metadata file could not be read.
    """
    last = chain.last_batch
    return furthest(dict.fromkeys(log.end, 0), last.end if last and last.identity == log.identity else {})


def _keep(kafka: KafkaClient, topic: Topic, name: str, chain: TableChain, reason: str) -> Positions:
    """Set the settings of a derived topic's bookmark to those that are declared, and return its offsets."""
    bookmark_topic.ensure(kafka)
    producer = begin(kafka, name)
    present, target_id = bookmark_topic.read(kafka, name), topic_id(kafka, topic.topic)
    if present is None or present.target_id != target_id:
        raise LakehouseError(
            f"Topic '{topic.topic}' has no bookmark since it was created. Nothing was changed. Name a position"
        )
    if is_foreign(present, target_id, chain):
        raise foreign_error(present, topic, topic.topic, chain)
    require_same(present, topic, is_adopted=True)
    kept = replace(present, entry=topic.name, reason=reason, settings=DerivationSettings.of(topic).values())
    commit(kafka, producer, [bookmark_topic.message(kafka, name, kept)], {topic.topic: target_id})
    return kept.offsets


def _replace(
    kafka: KafkaClient,
    topic: Topic,
    name: str,
    position: _Position,
    reason: str,
    settings: DerivationSettings | None = None,
    further: Further | None = None,
) -> Positions:
    """Replace a bookmark, and return its offsets.

    Args:
        kafka: The cluster.
        topic: The entry that the messages are of.
        name: Name of the bookmark.
        position: The position.
        reason: The operator's reason.
        settings: The settings of a derived topic; None for dead letters.
        further: Returns the further snapshots; None if the bookmark has none.
    """
    bookmark_topic.ensure(kafka)
    producer = begin(kafka, name)
    bookmark = bookmark_of(position.log, position.target_id, position.table, position.offsets, topic.name, reason)
    present = bookmark_topic.read(kafka, name)
    if settings:
        bookmark = replace(bookmark, settings=settings.values())
        if present and present.target_id == bookmark.target_id:
            require_same(present, topic, is_adopted=True)
    if present and present.is_like(bookmark):
        if position.is_latest:
            # After a rollback, the table lacks rows that were derived, and may have them again. Another table, whose
            # topic is adopted, may have had them already.
            bookmark = replace(bookmark, offsets=furthest(position.offsets, present.offsets))
        if further and present.identity == bookmark.identity:
            bookmark = replace(bookmark, further=further(present))
    topic_ids = {position.target: position.target_id}
    commit(kafka, producer, [bookmark_topic.message(kafka, name, bookmark)], topic_ids)
    return bookmark.offsets
