"""The topics that fall to one of several streams: a consumer group divides them, and nothing is read by it.

What keeps records from being lost or published twice are the tables, whatever the group says; it only keeps streams
from doing the same work. A stream that ends or dies leaves the group, and its topics fall to the others.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Collection, Mapping
from contextlib import closing
from dataclasses import dataclass
from typing import TYPE_CHECKING
from zlib import crc32

from lakehouse.core.errors import LakehouseError, Unreachable

if TYPE_CHECKING:
    from confluent_kafka import Consumer, TopicPartition

    from resources.kafka import Kafka

Share = frozenset[tuple[str, int]]
"""Partitions that fall to a stream, as (topic, partition)."""

JOIN_SECONDS = 60
"""A stream that is in no group after so long takes all of its topics: work done twice is better than none."""

RETRY_SECONDS = 30
POLL_SECONDS = 0.2

SETTINGS: Mapping[str, str | int] = {
    # Each member gets as many partitions of a topic as any other, whatever it had before.
    "partition.assignment.strategy": "roundrobin",
    # So long after a stream was killed its topics fall to the others.
    "session.timeout.ms": 10_000,
    "heartbeat.interval.ms": 2_000,
    # Topics that come or grow are divided so soon.
    "topic.metadata.refresh.interval.ms": 10_000,
    "enable.partition.eof": "false",
    "auto.offset.reset": "latest",
}
"""Settings of librdkafka."""


@dataclass(frozen=True)
class Undivided:
    """A stream takes all of its topics, whatever other streams take, and why."""

    reason: Exception


def falls_to(share: Share, topic: str, partitions: int) -> bool:
    """Whether a topic falls to the stream with this share: one of its partitions, by a hash of its name, decides."""
    return partitions > 0 and (topic, crc32(topic.encode()) % partitions) in share


class StreamGroup:
    """A stream's membership in the group of those that serve the same namespace.

    Args:
        kafka: Where the group is coordinated.
        name: The consumer group.
        topics: The topics in Kafka that this stream would serve.
        release: Is called before the share passes to others; returns when nothing of it is in work.
        tell: Is told if this stream serves all of its topics.
    """

    def __init__(
        self,
        kafka: Kafka,
        name: str,
        topics: Collection[str],
        release: Callable[[], None],
        tell: Callable[[Undivided], None],
    ):
        self._kafka, self._name, self._topics = kafka, name, sorted(topics)
        self._release, self._tell = release, tell
        self._share: Share | None = frozenset()
        self._joined = False

    def has(self, topic: str, partitions: int) -> bool:
        """Whether this stream is to serve a topic, which has so many partitions."""
        return self._share is None or falls_to(self._share, topic, partitions)

    def stay(self, leaving: threading.Event) -> None:
        """Be a member until `leaving` is set; then leave, so that the others need not wait."""
        while not leaving.is_set():
            try:
                self._stay(leaving)
            except Exception as error:
                self._take_all(error)
                leaving.wait(RETRY_SECONDS)

    def _stay(self, leaving: threading.Event) -> None:
        """
        Raises:
            LakehouseError: The group may not be joined.
        """
        from confluent_kafka import KafkaError

        self._joined, deadline = False, time.monotonic() + JOIN_SECONDS
        with closing(self._kafka.member(self._name, SETTINGS)) as consumer:
            consumer.subscribe(self._topics, on_assign=self._assigned, on_revoke=self._revoked, on_lost=self._revoked)
            while not leaving.is_set():
                message = consumer.poll(POLL_SECONDS)
                error = message.error() if message is not None else None
                if error is not None and error.code() == KafkaError.GROUP_AUTHORIZATION_FAILED:
                    raise LakehouseError(
                        f"Kafka refuses consumer group '{self._name}'. Grant READ on it to the API key"
                    )
                if not self._joined and time.monotonic() > deadline:
                    check = f"consumer group '{self._name}' (`kafka-consumer-groups --describe`)"
                    self._take_all(Unreachable("Kafka", self._kafka.servers, check))

    def _take_all(self, reason: Exception) -> None:
        if self._share is not None:
            self._share = None
            self._tell(Undivided(reason))

    # Assigning nothing keeps the membership, and nothing is fetched.

    def _assigned(self, consumer: Consumer, partitions: list[TopicPartition]) -> None:
        consumer.assign([])
        self._share = frozenset((one.topic, one.partition) for one in partitions)
        self._joined = True

    def _revoked(self, consumer: Consumer, partitions: list[TopicPartition]) -> None:
        self._share = frozenset()
        self._release()
        consumer.unassign()
