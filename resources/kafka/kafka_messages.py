"""Messages of one partition, as a consumer receives them."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from lakehouse.core.errors import Unreachable
from resources.kafka.kafka_retry import TIMEOUT_SECONDS

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
        Unreachable: Kafka sends nothing for TIMEOUT_SECONDS.
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
