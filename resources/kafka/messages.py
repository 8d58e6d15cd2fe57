"""Messages of partitions, as a consumer receives them: all of a range, or the oldest pending ones."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from lakehouse.core.errors import LakehouseError, Unreachable
from resources.kafka.errors import TIMEOUT_SECONDS

if TYPE_CHECKING:
    from confluent_kafka import Consumer, Message


Headers = Sequence[tuple[str, bytes | None]]


@dataclass(frozen=True)
class Received:
    """A consumed message."""

    key: bytes | None
    value: bytes | None
    headers: Headers


def received(consumer: Consumer, servers: str, topic: str, partition: int, start: int, end: int) -> Iterator[Received]:
    """Yield the messages of a partition from `start` (inclusive) to `end` (exclusive).

    Args:
        consumer: A consumer with `enable.partition.eof`; it is closed.
        servers: Addresses of the brokers, for an error.
        topic: Name of the topic.
        partition: The partition.
        start: An offset that the partition has.
        end: An offset after `start`, and not past the end for this consumer.

    Raises:
        KafkaException: Kafka does not respond.
    """
    from confluent_kafka import KafkaError, KafkaException, TopicPartition

    last_received = time.monotonic()
    with closing(consumer):
        consumer.assign([TopicPartition(topic, partition, start)])
        while True:
            message = consumer.poll(1)
            if message is None:
                if time.monotonic() - last_received > TIMEOUT_SECONDS:
                    raise Unreachable("Kafka", servers, f"partition {partition} of '{topic}'", "no messages")
                continue
            last_received = time.monotonic()
            if error := message.error():
                if error.code() != KafkaError._PARTITION_EOF:
                    raise KafkaException(error)
                # A broker that has just become the leader may not know all committed messages yet.
                if (message.offset() or 0) < end:
                    continue
                # Only transaction markers follow the last message.
                return
            offset = message.offset()
            assert offset is not None, "a message without an error has an offset"
            if offset < end:
                yield Received(message.key(), message.value(), _headers(message))
            if offset >= end - 1:
                return


def _headers(message: Message) -> Headers:
    """Return the headers of a message, which librdkafka provides as pairs of text and bytes."""
    headers: Any = message.headers() or ()
    return headers


def timestamps(
    consumer: Consumer, topic: str, positions: Mapping[int, int], ends: Mapping[int, int]
) -> dict[int, int | None]:
    """Return the timestamp of the first record at or after each position.

    Args:
        consumer: A consumer with `enable.partition.eof`; it is closed.
        topic: The topic in Kafka.
        positions: The first offset, by partition.
        ends: End of each of these partitions (exclusive).

    Returns:
        Timestamps in milliseconds by partition; None where no record remains before the end, as after a transaction's
        marker.

    Raises:
        KafkaException: Kafka does not respond.
    """
    from confluent_kafka import KafkaError, TopicPartition

    by_partition: dict[int, int | None] = {}
    last_error = ""
    deadline = time.monotonic() + TIMEOUT_SECONDS
    with closing(consumer):
        consumer.assign([TopicPartition(topic, p, offset) for p, offset in positions.items()])
        while len(by_partition) < len(positions) and time.monotonic() < deadline:
            message = consumer.poll(1)
            if message is None:
                continue
            error, partition = message.error(), message.partition()
            assert partition is not None, "a message of a consumer that assigned partitions names its own"
            if error is None and partition in positions:
                by_partition.setdefault(partition, _timestamp(topic, message))
            elif error is not None and error.code() == KafkaError._PARTITION_EOF:
                if (message.offset() or 0) < ends[partition]:
                    continue
                by_partition.setdefault(partition, None)
            elif error is not None:
                last_error = error.str()
                if partition in positions and not error.retriable():
                    break
                continue
            consumer.pause([TopicPartition(topic, partition)])
    if unknown := sorted(positions.keys() - by_partition.keys()):
        where = f"partition {unknown[0]} offset {positions[unknown[0]]}"
        cause = last_error or f"Kafka sent nothing within {TIMEOUT_SECONDS} s"
        raise LakehouseError(
            f"The oldest pending record of topic '{topic}' ({where}) could not be read: {cause}. Its age is unknown. "
            f"Check the broker's log"
        )
    return by_partition


def _timestamp(topic: str, message: Message) -> int:
    """Return a record's timestamp in milliseconds."""
    from confluent_kafka import TIMESTAMP_NOT_AVAILABLE

    kind, milliseconds = message.timestamp()
    if kind == TIMESTAMP_NOT_AVAILABLE or milliseconds < 0:
        raise LakehouseError(
            f"The oldest pending record of topic '{topic}' (partition {message.partition()} offset "
            f"{message.offset()}) has no timestamp. Its age is unknown. Set message.timestamp.type=LogAppendTime on "
            f"the topic"
        )
    return milliseconds
