"""When the oldest records that wait in a topic were produced, as a consumer reads them."""

from __future__ import annotations

import time
from collections.abc import Mapping
from contextlib import closing
from typing import TYPE_CHECKING

from lakehouse.core.errors import LakehouseError
from resources.election import TIMEOUT_SECONDS

if TYPE_CHECKING:
    from confluent_kafka import Consumer, Message


def timestamps(
    consumer: Consumer, topic: str, positions: Mapping[int, int], ends: Mapping[int, int]
) -> dict[int, int | None]:
    """Read the first record from each position on.

    Args:
        consumer: A consumer that is told of the end of partitions; it is closed.
        topic: The topic in Kafka.
        positions: The offset to begin at, by partition.
        ends: Where each of these partitions ends (exclusive).

    Returns:
        By partition, the timestamp in milliseconds; None where Kafka said that no record is left before the end, as
        after a transaction's marker.

    Raises:
        LakehouseError: Of a partition Kafka says neither: what waits there, and for how long, is unknown.
        KafkaException: Kafka does not answer.
    """
    from confluent_kafka import KafkaError, TopicPartition

    found: dict[int, int | None] = {}
    said = ""
    deadline = time.monotonic() + TIMEOUT_SECONDS
    with closing(consumer):
        consumer.assign([TopicPartition(topic, p, offset) for p, offset in positions.items()])
        while len(found) < len(positions) and time.monotonic() < deadline:
            message = consumer.poll(1)
            if message is None:
                continue
            error, partition = message.error(), message.partition()
            assert partition is not None, "a message of a consumer that assigned partitions names its own"
            if error is None and partition in positions:
                found.setdefault(partition, _timestamp(topic, message))
            elif error is not None and error.code() == KafkaError._PARTITION_EOF:
                if (message.offset() or 0) < ends[partition]:
                    continue
                found.setdefault(partition, None)
            elif error is not None:
                said = error.str()
                if partition in positions and not error.retriable():
                    break
                continue
            consumer.pause([TopicPartition(topic, partition)])
    if unknown := sorted(positions.keys() - found.keys()):
        at = f"partition {unknown[0]} offset {positions[unknown[0]]}"
        raise LakehouseError(
            f"The oldest record that waits in {at} of topic '{topic}' could not be read: "
            f"{said or f'Kafka sent nothing within {TIMEOUT_SECONDS} s'}. How long it has waited is unknown. "
            f"Check the broker's log"
        )
    return found


def _timestamp(topic: str, message: Message) -> int:
    """A record's timestamp in milliseconds.

    Raises:
        LakehouseError: It has none.
    """
    from confluent_kafka import TIMESTAMP_NOT_AVAILABLE

    kind, milliseconds = message.timestamp()
    if kind == TIMESTAMP_NOT_AVAILABLE or milliseconds < 0:
        raise LakehouseError(
            f"The oldest record that waits in partition {message.partition()} offset {message.offset()} of topic "
            f"'{topic}' has no timestamp. How long it has waited is unknown. Set message.timestamp.type=LogAppendTime "
            f"on the topic"
        )
    return milliseconds
