"""The tables to which topics of messages belong, where several environments or projects share one Kafka cluster.

A bookmark has the identity of the table whose messages its topic has. A topic of another table is left unchanged.
"""

from collections.abc import Iterator

from lakehouse.config.model import Config, Topic
from lakehouse.config.sources import Derived
from lakehouse.core.errors import Diagnostic, LakehouseError, UnclearState
from lakehouse.core.offsets.bookmark import Bookmark
from lakehouse.pipeline.derivation.derivation_settings import require_same
from lakehouse.pipeline.table_location import Stores, catalog_of, table_of
from resources.iceberg.table_chain import TableChain
from resources.kafka import bookmark_topic
from resources.kafka.bookmark_topic import dead_letter_bookmark_name, derived_bookmark_name


def is_foreign(bookmark: Bookmark, target_id: str, chain: TableChain) -> bool:
    """Return whether a topic, by its id, has messages of a table that is none of a chain, by its bookmark."""
    return bool(chain.identity) and bookmark.target_id == target_id and bookmark.identity != chain.identity


def foreign_error(bookmark: Bookmark, topic: Topic, target: str, chain: TableChain) -> UnclearState:
    """Return the error that the topic of an entry's messages has those of another table.

    Args:
        bookmark: The bookmark of the topic.
        topic: The entry.
        target: The topic with the messages: the derived topic, or that of dead letters.
        chain: The tables that the entry produces from.
    """
    (ref, _), is_derived = chain.newest, target == topic.topic
    is_grouped = isinstance(topic.source, Derived) and topic.source.group_by
    option = "" if is_derived else "--dead-letters "
    position = "earliest" if is_derived and is_grouped else "POSITION"
    return UnclearState(
        f"Topic '{target}' has messages of another table: entry '{bookmark.entry}' produced them from "
        f"{bookmark.table} with identity {bookmark.identity}, and '{topic.name}' produces from {ref} with identity "
        f"{chain.identity}. Nothing was produced. Choose another topic; or, if the other table was dropped or is to "
        f"stop producing, adopt the topic with `lakehouse bookmark {topic.name} {option}--at {position} --reason …`"
    )


def require_own(bookmark: Bookmark, topic: Topic, target: str, target_id: str, chain: TableChain) -> None:
    """Require that a topic has no messages of another table, and none that were derived with other settings.

    Args:
        bookmark: The bookmark of the topic.
        topic: The entry.
        target: The topic with the messages: the derived topic, or that of dead letters.
        target_id: Its id.
        chain: The tables that the entry produces from.

    Raises:
        IncompatibleSettings: It has messages that were derived with other settings.
        UnclearState: It has messages of another table.
    """
    if is_foreign(bookmark, target_id, chain):
        raise foreign_error(bookmark, topic, target, chain)
    if target == topic.topic and bookmark.target_id == target_id:
        require_same(bookmark, topic)


def own_bookmark(config: Config, topic: Topic, resources: Stores, target: str) -> Bookmark | None:
    """Return the bookmark of a topic that an entry produces to; None if it has produced nothing. Nothing is changed.

    Args:
        config: The configuration.
        topic: The entry.
        resources: The systems.
        target: The derived topic, or that of dead letters.

    Raises:
        IncompatibleSettings: The topic has messages that were derived with other settings.
        UnclearState: The topic has messages of another table.
        Unreachable: A system does not answer.
    """
    is_derived = target == topic.topic
    source = config.topic(topic.source.upstream) if is_derived else topic
    name = derived_bookmark_name(topic) if is_derived else dead_letter_bookmark_name(topic)
    bookmark = bookmark_topic.read(resources.kafka, name, settled=False)
    if bookmark and (described := resources.kafka.describe([target]).get(target)):
        chain = catalog_of(source, resources).chain(table_of(config, source, resources))
        require_own(bookmark, topic, target, described.topic_id, chain)
    return bookmark


def examine_bookmarks(config: Config, resources: Stores) -> Iterator[Diagnostic]:
    """Yield a diagnostic of each topic that an entry derives, or produces dead letters to. Nothing is changed."""
    for topic in config.topics.values():
        if topic.source.upstream:
            yield _diagnostic(config, topic, resources, topic.topic)
        if topic.dead_letter_topic:
            yield _diagnostic(config, topic, resources, topic.dead_letter_topic)


def _diagnostic(config: Config, topic: Topic, resources: Stores, target: str) -> Diagnostic:
    subject = f"bookmark of {target}"
    try:
        bookmark = own_bookmark(config, topic, resources, target)
    except LakehouseError as error:
        return Diagnostic(subject, False, str(error))
    shown = f"of {bookmark.table}, identity {bookmark.identity}" if bookmark else "none: nothing was produced"
    return Diagnostic(subject, True, shown)
