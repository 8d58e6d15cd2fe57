"""Where a derived topic, or a topic of dead letters, continues in its source; and the operator's decision about it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lakehouse.config.loader import Config
from lakehouse.config.sources.derived import Derived
from lakehouse.config.topic import Topic
from lakehouse.core.batch import REPLAYS, Batch, Positions
from lakehouse.core.bookmark import Bookmark
from lakehouse.core.errors import LakehouseError, UnclearState
from resources import bookmarks
from resources.catalog import RECREATED, Catalog
from resources.kafka import Kafka
from resources.snapshots import last_batch
from resources.transactions import begin, commit

if TYPE_CHECKING:
    from pyiceberg.table import Table

    from lakehouse.pipeline.clients import Clients


def of_derived(topic: Topic) -> str:
    """The name of a derived topic's bookmark, which is its producer's transactional id, too."""
    return f"lakehouse.{topic.name}"


def of_letters(topic: Topic) -> str:
    """The name of the bookmark of a topic's dead letters, likewise."""
    return f"lakehouse.{topic.name}.dead_letters"


def has_messages(kafka: Kafka, topic: str, of: Topic | None = None) -> bool:
    """Return whether a topic has, or had, committed messages.

    Args:
        kafka: the cluster.
        topic: the topic.
        of: count dead letters of this topic's records alone.
    """
    for partition, offsets in kafka.offsets([topic])[topic].items():
        if of is None and offsets.start:
            return True
        for message in kafka.messages(topic, partition, offsets.start, offsets.end):
            if of is None or ("lakehouse.topic", of.topic.encode()) in message.headers:
                return True
    return False


def going_on(
    config: Config, topic: Topic, source: Topic, systems: Clients, table: Table, last: Batch
) -> Bookmark | None:
    """The bookmark that a derived topic continues from; None where it is to be derived from all rows.

    Computing groups again replaces their messages by the same ones, so that it needs no bookmark. A single row must not
    be derived twice.

    Args:
        config: the configuration.
        topic: the derived topic.
        source: the topic that it is derived from.
        systems: what to talk to.
        table: the source's table.
        last: the newest batch of it.

    Raises:
        UnclearState: What was derived already is not known, or not from the rows that the table has now.
    """
    assert isinstance(topic.source, Derived)
    found = bookmarks.read(systems.kafka, of_derived(topic))
    if topic.source.group_by:
        is_same = found is not None and found.is_of(last.cluster_id, last.topic_id) and _is_into(found, topic, systems)
        return found if is_same and _is_from(found, config, topic, systems.catalog, table) else None
    if found is None or not _is_into(found, topic, systems):
        if has_messages(systems.kafka, topic.topic):
            raise UnclearState(
                f"Topic '{topic.topic}' has messages, and no bookmark says which rows of '{source.name}' they were "
                f"derived from. Nothing was produced. {_remedy(topic)}"
            )
        return None
    if not found.is_of(last.cluster_id, last.topic_id):
        if RECREATED not in table.properties:
            # All of its rows are of the new topic.
            return None
        raise UnclearState(
            f"Topic '{source.topic}' was recreated, and its table has rows of both, at the same offsets: nothing tells "
            f"which of them '{topic.name}' was derived from. Nothing was produced. {_remedy(topic)}"
        )
    if not _is_from(found, config, topic, systems.catalog, table):
        raise UnclearState(
            f"The table of '{source.name}' is not the one that '{topic.name}' was derived from, and may have rows that "
            f"the other one lacked. Nothing was produced. {_remedy(topic)}"
        )
    return found


def _remedy(topic: Topic) -> str:
    return (
        f"Say where it continues: `lakehouse bookmark {topic.name} --at POSITION --reason …`; or recreate it: delete "
        f"the topic '{topic.topic}' and its table"
    )


def _is_into(found: Bookmark, topic: Topic, systems: Clients) -> bool:
    return found.target_id == systems.kafka.describe([topic.topic])[topic.topic].topic_id


def _is_from(found: Bookmark | None, config: Config, topic: Topic, catalog: Catalog, table: Table) -> bool:
    """Whether a bookmark is of the table, or of one that this one continues."""
    assert found is not None and isinstance(topic.source, Derived)
    return found.table_uuid in (str(table.metadata.table_uuid), *_before(config, topic.source, catalog))


def _before(config: Config, source: Derived, catalog: Catalog) -> list[str]:
    """The tables that the source's records went to one after the other, by uuid."""
    tables = catalog.successive_tables(config.namespace, config.topic(source.from_topic).table)
    return [str(table.metadata.table_uuid) for _, table in tables if table]


def decide(config: Config, topic: Topic, systems: Clients, where: str, reason: str, *, letters: bool) -> Positions:
    """Set a bookmark, whatever it was: from there on, rows are derived, or dead letters produced.

    Args:
        config: the configuration.
        topic: the derived topic, or the one whose dead letters go to a topic.
        systems: what to talk to.
        where: a position in the source topic, as `lakehouse resume` takes it.
        reason: kept with the bookmark.
        letters: the bookmark is of the topic's dead letters.

    Raises:
        LakehouseError: The topic has no such bookmark, or there is nothing to continue from.
    """
    from lakehouse.pipeline.ingestion import read_log
    from lakehouse.pipeline.position import at

    if letters:
        source, target, name = topic, topic.dead_letter_topic, of_letters(topic)
    elif isinstance(topic.source, Derived):
        source, target, name = config.topic(topic.source.from_topic), topic.topic, of_derived(topic)
    else:
        source, target, name = topic, "", ""
    if not target:
        kind = "'dead_letter_topic'" if letters else "source of type 'derived'"
        raise LakehouseError(f"'{topic.name}' has no {kind}, so it has no such bookmark. Nothing was changed")
    log = read_log(systems.kafka, source.topic)
    source, table = systems.catalog.resolve_table(config.namespace, source)
    described = systems.kafka.describe([target]).get(target)
    if table is None or table.current_snapshot() is None or last_batch(table) is None or described is None:
        raise LakehouseError(
            f"Table {config.namespace}.{source.table} has nothing yet, or topic '{target}' does not exist, so there is "
            f"nothing to continue from. Nothing was changed. Materialize iceberg/{source.name} first"
        )
    offsets = at(log, systems.kafka, where).end
    bookmarks.ensure(systems.kafka)
    producer = begin(systems.kafka, name)
    decided = bookmark_of(log.cluster_id, log.topic_id, described.topic_id, table, offsets, reason)
    commit(systems.kafka, producer, [bookmarks.message(systems.kafka, name, decided)])
    return offsets


def bookmark_of(
    cluster_id: str, topic_id: str, target_id: str, table: Table, offsets: Positions, reason: str = ""
) -> Bookmark:
    """A bookmark in a source as its table is now."""
    snapshot = table.current_snapshot()
    assert snapshot is not None
    replays = int(table.properties.get(REPLAYS, 0))
    uuid = str(table.metadata.table_uuid)
    return Bookmark(cluster_id, topic_id, target_id, uuid, snapshot.snapshot_id, replays, offsets, reason)
