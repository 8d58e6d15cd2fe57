"""Bookmarks of dead letters of entries that were renamed in lakehouse.yaml, and kept their table."""

from lakehouse.config.model import Topic
from resources.iceberg.table_chain import TableChain
from resources.kafka import bookmark_topic
from resources.kafka.bookmark_topic import dead_letter_bookmark_name
from resources.kafka.transactions import begin, commit
from resources.protocols import KafkaClient


def rename_bookmark(kafka: KafkaClient, topic: Topic, chain: TableChain) -> None:
    """Give the bookmark of an entry's table to the present name of the entry, if it has that of a previous name.

    A process with the previous name is fenced off. If one begins later, it renames the bookmark back, which fences off
    those with the present name: no two of them produce from one bookmark.

    Args:
        kafka: The cluster.
        topic: The entry, with a topic of dead letters.
        chain: The tables of the entry.

    Raises:
        TransientError: A newer process with the previous name produces the same dead letters.
        Unreachable: Kafka does not answer.
    """
    name = dead_letter_bookmark_name(topic)
    if not chain.identity or bookmark_topic.read(kafka, name) is not None:
        return
    for previous in bookmark_topic.dead_letter_names(kafka, topic):
        known = bookmark_topic.read(kafka, previous)
        # Another process may have written that of the present name meanwhile.
        if previous == name or known is None or known.identity != chain.identity:
            continue
        producer = begin(kafka, previous)
        # The process that was fenced off may have moved it meanwhile.
        if bookmark := bookmark_topic.read(kafka, previous):
            moved = bookmark_topic.message(kafka, name, bookmark)
            commit(kafka, producer, [moved, bookmark_topic.message(kafka, previous, None)])
