"""Bookmarks in a compacted Kafka topic, each written in the transaction whose progress it records."""

from __future__ import annotations

import zlib
from typing import TYPE_CHECKING

from lakehouse.config.model import Topic
from lakehouse.core.errors import UnclearState
from lakehouse.core.offsets.bookmark import Bookmark
from lakehouse.core.table_protocol import BOOKMARKS
from resources.kafka.transactions import Outgoing, wait_until_visible

if TYPE_CHECKING:
    from collections.abc import Mapping

    from resources.kafka.kafka import TopicDescription
    from resources.protocols import KafkaClient

PARTITIONS = 12
"""A transaction that a killed process left open blocks the readers of one of them."""

_cache: dict[tuple[str, int], tuple[int | None, int, dict[bytes | None, bytes | None]]] = {}
"""By topic id and partition: the leader's epoch, the offset up to which this process has read, and the newest value of
each key."""


def derived_bookmark_name(topic: Topic) -> str:
    """Return the name of a derived topic's bookmark, which is also the transactional id of its producer.

    It has no identity of a table, because one table at a time may produce to a topic: the others are fenced off, and
    find in the bookmark whose topic it is.
    """
    return f"lakehouse.derived/{topic.topic}"


def dead_letter_bookmark_name(topic: Topic) -> str:
    """Return the name of the bookmark of a topic's dead letters, which is also a transactional id.

    Entries may share the record's topic and the topic of dead letters, and then each produces its own.
    """
    return _dead_letters(topic).format(topic.name)


def _dead_letters(topic: Topic) -> str:
    # Names of topics and entries contain no slash and no brace.
    return f"lakehouse.dead_letters/{topic.topic}/{{}}/{topic.dead_letter_topic}"


def ensure(kafka: KafkaClient) -> None:
    """Create the topic of bookmarks if it does not exist.

    Raises:
        UnclearState: Kafka would delete its messages.
    """
    kafka.ensure_topic(BOOKMARKS, PARTITIONS, settings={"cleanup.policy": "compact"}, min_partitions=1)
    policy = kafka.topic_setting(BOOKMARKS, "cleanup.policy")
    if policy not in (None, "compact"):
        raise UnclearState(
            f"Topic '{BOOKMARKS}' has cleanup.policy={policy}: Kafka would delete bookmarks, and messages would be "
            f"produced twice. Nothing was produced. Set it: kafka-configs --alter --topic {BOOKMARKS} --add-config "
            f"cleanup.policy=compact"
        )


def read(kafka: KafkaClient, name: str, *, settled: bool = True) -> Bookmark | None:
    """Return the newest bookmark of a name, or None if it has none.

    Args:
        kafka: The cluster.
        name: Name of the bookmark.
        settled: Wait for transactions that are open now, so that no earlier commit is missed.
    """
    described = kafka.describe([BOOKMARKS]).get(BOOKMARKS)
    if described is None:
        return None
    value = _values(kafka, described, _partition(name, described.partitions), settled).get(name.encode())
    return Bookmark.from_json(value) if value else None


def dead_letter_names(kafka: KafkaClient, topic: Topic) -> list[str]:
    """Return the names of the bookmarks of all entries with an entry's topic and topic of dead letters.

    They include those of other environments and projects, and earlier names of the entry.
    """
    described = kafka.describe([BOOKMARKS]).get(BOOKMARKS)
    if described is None:
        return []
    values = [_values(kafka, described, partition, settled=True) for partition in range(described.partitions)]
    named = (key.decode() for its in values for key, value in its.items() if key and value)
    begin, end = _dead_letters(topic).split("{}")
    return sorted(name for name in named if name.startswith(begin) and name.endswith(end))


def _values(
    kafka: KafkaClient, described: TopicDescription, partition: int, settled: bool
) -> Mapping[bytes | None, bytes | None]:
    """Return the newest value of each key of a partition."""
    if settled:
        wait_until_visible(kafka, BOOKMARKS, partition)
    offsets = kafka.offsets([BOOKMARKS])[BOOKMARKS][partition]
    epoch, end = offsets.epoch, offsets.end
    cached_epoch, position, values = _cache.get((described.topic_id, partition), (epoch, 0, {}))
    if position > end or cached_epoch != epoch:
        # A broker that lacked the last records may have become the leader (unclean leader election).
        position, values = 0, {}
    values = {
        **values,
        **{message.key: message.value for message in kafka.messages(BOOKMARKS, partition, position, end)},
    }
    _cache[described.topic_id, partition] = epoch, end, values
    return values


def message(kafka: KafkaClient, name: str, bookmark: Bookmark | None) -> Outgoing:
    """Return the message that sets or, with None, deletes a bookmark, as the last one of a transaction."""
    # A broker may not have learned yet of a topic that was just created.
    described = kafka.describe([BOOKMARKS]).get(BOOKMARKS)
    partition = _partition(name, described.partitions if described else PARTITIONS)
    value = bookmark.to_json().encode() if bookmark else None
    return Outgoing(BOOKMARKS, name.encode(), value, partition=partition)


def _partition(name: str, partitions: int) -> int:
    return zlib.crc32(name.encode()) % partitions
