"""A consumer group that divides topics among several streams; no records are read through it.

The tables prevent loss and duplicates regardless of the group, which only prevents streams from doing the same work.
When a stream ends or crashes, its topics are assigned to the others.
"""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable, Collection, Mapping
from contextlib import closing
from dataclasses import dataclass
from typing import TYPE_CHECKING
from zlib import crc32

from lakehouse.core.errors import LakehouseError, Unreachable
from resources.kafka.errors import LOGIN_SECONDS

if TYPE_CHECKING:
    from confluent_kafka import Consumer, TopicPartition

    from resources.protocols import KafkaClient

Assignment = frozenset[tuple[str, int]]
"""Partitions that are assigned to a stream, as (topic, partition)."""

JOIN_SECONDS = 60
"""A stream that has not joined a group after this time, or not again after it lost its membership, serves all of its
topics: duplicate work is better than none."""

RETRY_SECONDS = 30
POLL_SECONDS = 0.2

SETTINGS: Mapping[str, str | int] = {
    # Distributes the partitions of a topic equally, regardless of earlier assignments.
    "partition.assignment.strategy": "roundrobin",
    # The topics of a killed stream are assigned to the others after this time.
    "session.timeout.ms": 10_000,
    "heartbeat.interval.ms": 2_000,
    # New topics and partitions are assigned after this time.
    "topic.metadata.refresh.interval.ms": 10_000,
    "enable.partition.eof": "false",
    "auto.offset.reset": "latest",
}
"""Settings of librdkafka."""


@dataclass(frozen=True)
class GroupUnavailable:
    """A stream could not join its group and serves all of its topics."""

    reason: Exception


def is_assigned(assignment: Assignment, topic: str, partitions: int) -> bool:
    """Return whether an assignment includes a topic, which one partition, chosen by a hash of its name, decides."""
    return partitions > 0 and (topic, crc32(topic.encode()) % partitions) in assignment


class StreamGroup:
    """A stream's membership in the consumer group of the streams that fill the same tables.

    Args:
        kafka: The cluster that coordinates the group.
        name: Returns the consumer group, which the catalog identifies.
        topics: The topics in Kafka that this stream can serve.
        release: Called before the assignment passes to others; returns when no work on it is in progress.
        report: Receives an event when this stream serves all of its topics.
    """

    def __init__(
        self,
        kafka: KafkaClient,
        name: Callable[[], str],
        topics: Collection[str],
        release: Callable[[], None],
        report: Callable[[GroupUnavailable], None],
    ):
        self._kafka, self._name, self._topics = kafka, name, sorted(topics)
        self._release, self._report = release, report
        self._assignment: Assignment | None = frozenset()
        self._join_by = math.inf

    def serves(self, topic: str, partitions: int) -> bool:
        """Return whether this stream serves a topic with this number of partitions."""
        return self._assignment is None or is_assigned(self._assignment, topic, partitions)

    def run(self, leaving: threading.Event) -> None:
        """Be a member until `leaving` is set, and then leave, so that the others need not wait for a time-out."""
        while not leaving.is_set():
            try:
                self._be_member(leaving)
            except Exception as error:
                self._serve_all(error)
                leaving.wait(RETRY_SECONDS)

    def _be_member(self, leaving: threading.Event) -> None:
        from confluent_kafka import KafkaError

        name = self._name()
        self._join_by = time.monotonic() + JOIN_SECONDS
        with closing(self._kafka.consumer(name, settings=SETTINGS)) as consumer:
            consumer.subscribe(self._topics, on_assign=self._assigned, on_revoke=self._revoked, on_lost=self._revoked)
            renewed_at = time.monotonic()
            while not leaving.is_set():
                if time.monotonic() - renewed_at > LOGIN_SECONDS:
                    renewed_at = time.monotonic()
                    self._kafka.renew_login(consumer)
                message = consumer.poll(POLL_SECONDS)
                error = message.error() if message is not None else None
                if error is not None and error.code() == KafkaError.GROUP_AUTHORIZATION_FAILED:
                    raise LakehouseError(
                        f"Kafka refuses consumer group '{name}'. The stream does not run. Grant READ on the "
                        f"group to its user or API key"
                    )
                if time.monotonic() > self._join_by:
                    check = f"consumer group '{name}' (`kafka-consumer-groups --describe`)"
                    self._serve_all(Unreachable("Kafka", self._kafka.servers, check))

    def _serve_all(self, reason: Exception) -> None:
        if self._assignment is not None:
            self._assignment = None
            self._report(GroupUnavailable(reason))

    # An empty assignment on the client keeps the membership without fetching records.

    def _assigned(self, consumer: Consumer, partitions: list[TopicPartition]) -> None:
        consumer.assign([])
        self._assignment = frozenset((one.topic, one.partition) for one in partitions)
        self._join_by = math.inf

    def _revoked(self, consumer: Consumer, partitions: list[TopicPartition]) -> None:
        self._assignment = frozenset()
        self._release()
        consumer.unassign()
        self._join_by = time.monotonic() + JOIN_SECONDS
