"""Bookmarks in Kafka: a compacted topic, which nothing expires, written in the transaction of what they speak of."""

from __future__ import annotations

import zlib
from typing import TYPE_CHECKING

from lakehouse.core.bookmark import TOPIC, Bookmark
from lakehouse.core.errors import UnclearState
from resources.transactions import Outgoing, settle

if TYPE_CHECKING:
    from resources.kafka import Kafka

PARTITIONS = 12
"""A transaction that a killed process leaves open holds back the readers of one of them."""

_read: dict[tuple[str, int], tuple[int, dict[bytes | None, bytes | None]]] = {}
"""By topic id and partition: the offset up to which this process has read it, and the newest value of each key."""


def ensure(kafka: Kafka) -> None:
    """Make the topic of bookmarks where it is missing.

    Raises: UnclearState when Kafka would delete its messages; Unreachable.
    """
    kafka.ensure_topic(TOPIC, PARTITIONS, settings={"cleanup.policy": "compact"}, fewest=1)
    policy = kafka.topic_setting(TOPIC, "cleanup.policy")
    if policy not in (None, "compact"):
        raise UnclearState(
            f"Topic '{TOPIC}' has cleanup.policy={policy}, so Kafka deletes bookmarks in time and messages would be "
            f"produced twice. Nothing was produced. Set it: kafka-configs --alter --topic {TOPIC} --add-config "
            f"cleanup.policy=compact"
        )


def read(kafka: Kafka, name: str, *, settled: bool = True) -> Bookmark | None:
    """Read the newest bookmark of a name.

    Args:
        kafka: the cluster.
        name: whose bookmark.
        settled: wait for transactions that are open now, so that none committed before is missed.

    Raises:
        Unreachable: Kafka does not answer, or a transaction stays open.
    """
    described = kafka.describe([TOPIC]).get(TOPIC)
    if described is None:
        return None
    partition = _partition(name, described.partitions)
    if settled:
        settle(kafka, TOPIC, partition)
    end = kafka.offsets([TOPIC])[TOPIC][partition].end
    position, values = _read.get((described.topic_id, partition), (0, {}))
    if position > end:
        position, values = 0, {}
    values = {**values, **{each.key: each.value for each in kafka.messages(TOPIC, partition, position, end)}}
    _read[described.topic_id, partition] = end, values
    value = values.get(name.encode())
    return Bookmark.from_json(value) if value else None


def message(kafka: Kafka, name: str, bookmark: Bookmark) -> Outgoing:
    """The message that sets a bookmark, for the end of a transaction."""
    # A broker may not know of the topic yet that another has just made.
    described = kafka.describe([TOPIC]).get(TOPIC)
    partition = _partition(name, described.partitions if described else PARTITIONS)
    return Outgoing(TOPIC, name.encode(), bookmark.to_json().encode(), partition=partition)


def _partition(name: str, partitions: int) -> int:
    return zlib.crc32(name.encode()) % partitions
