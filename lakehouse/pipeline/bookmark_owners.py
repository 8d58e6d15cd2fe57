"""The tables to which topics of messages belong, where several environments or projects share one Kafka cluster.

A bookmark has the identity of the table whose messages its topic has. A topic of another table is left unchanged.
"""

from collections.abc import Iterator

from lakehouse.config.model import Config, Topic
from lakehouse.config.sources import Derived
from lakehouse.core.errors import Diagnostic, LakehouseError, UnclearState
from lakehouse.core.offsets.bookmark import Bookmark
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


def examine_bookmarks(config: Config, resources: Stores) -> Iterator[Diagnostic]:
    """Yield a diagnostic of each topic that an entry derives, or produces dead letters to. Nothing is changed."""
    for topic in config.topics.values():
        if topic.source.upstream:
            name, source = derived_bookmark_name(topic), config.topic(topic.source.upstream)
            yield _diagnostic(config, resources, topic, source, topic.topic, name)
        if topic.dead_letter_topic:
            name = dead_letter_bookmark_name(topic)
            yield _diagnostic(config, resources, topic, topic, topic.dead_letter_topic, name)


def _diagnostic(config: Config, resources: Stores, topic: Topic, source: Topic, target: str, name: str) -> Diagnostic:
    subject = f"bookmark of {target}"
    try:
        bookmark = bookmark_topic.read(resources.kafka, name, settled=False)
        if bookmark is None:
            return Diagnostic(subject, True, "none: nothing was produced")
        chain = catalog_of(source, resources).chain(table_of(config, source, resources))
        described = resources.kafka.describe([target]).get(target)
        if described and is_foreign(bookmark, described.topic_id, chain):
            raise foreign_error(bookmark, topic, target, chain)
    except LakehouseError as error:
        return Diagnostic(subject, False, str(error))
    return Diagnostic(subject, True, f"of {bookmark.table}, identity {bookmark.identity}")
