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
    from resources.protocols import KafkaClient

PARTITIONS = 12
"""A transaction that a killed process left open blocks the readers of one of them."""

_cache: dict[tuple[str, int], tuple[int | None, int, dict[bytes | None, bytes | None]]] = {}
"""By topic id and partition: the leader's epoch, the offset up to which this process has read, and the newest value of
each key."""


def derived_bookmark_name(topic: Topic) -> str:
    """Return the name of a derived topic's bookmark, which is also the transactional id of its producer."""
    return f"lakehouse.{topic.name}"


def dead_letter_bookmark_name(topic: Topic) -> str:
    """Return the name of the bookmark of a topic's dead letters, which is also a transactional id."""
    return f"lakehouse.{topic.name}.dead_letters"


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
    partition = _partition(name, described.partitions)
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
    value = values.get(name.encode())
    return Bookmark.from_json(value) if value else None


def message(kafka: KafkaClient, name: str, bookmark: Bookmark) -> Outgoing:
    """Return the message that sets a bookmark, as the last one of a transaction."""
    # A broker may not have learned yet of a topic that was just created.
    described = kafka.describe([BOOKMARKS]).get(BOOKMARKS)
    partition = _partition(name, described.partitions if described else PARTITIONS)
    return Outgoing(BOOKMARKS, name.encode(), bookmark.to_json().encode(), partition=partition)


def _partition(name: str, partitions: int) -> int:
    return zlib.crc32(name.encode()) % partitions
