"""Wait for new records of many topics without polling: brokers delay the responses to fetch requests until there are
some (Kafka protocol, Fetch: max_wait_ms)."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from confluent_kafka import Consumer

POLL_SECONDS = 0.2
"""Interval at which a wait looks whether it is over."""

SETTINGS: Mapping[str, str | int] = {
    # Brokers respond after this time if there are no records. The first request after an assignment may have only some
    # of the partitions, and the others wait for its response.
    "fetch.wait.max.ms": 500,
    "fetch.min.bytes": 1,
    # The records themselves are not used: the smallest response has one batch.
    "fetch.message.max.bytes": 1,
    "queued.min.messages": 1,
    "queued.max.messages.kbytes": 1,
    "enable.partition.eof": "false",
}
"""Settings of librdkafka."""


class RecordWatch:
    """A consumer with SETTINGS that waits for records of many partitions."""

    def __init__(self, consumer: Consumer):
        self.consumer = consumer
        self._ends: Mapping[str, Mapping[int, int]] | None = None

    def wait(self, ends: Mapping[str, Mapping[int, int]], seconds: float, is_over: Callable[[], bool]) -> bool:
        """Wait until a partition has a committed record.

        Args:
            ends: The first offset of interest, by topic and partition.
            seconds: The maximum time to wait.
            is_over: Ends the wait early.

        Returns:
            Whether there is a record; False after an error as well.
        """
        from confluent_kafka import KafkaError, TopicPartition

        deadline = time.monotonic() + seconds
        if ends != self._ends:
            self.consumer.assign([TopicPartition(topic, p, end) for topic, of in ends.items() for p, end in of.items()])
            self._ends = ends
        while time.monotonic() < deadline and not is_over():
            message = self.consumer.poll(POLL_SECONDS)
            error = message.error() if message is not None else None
            # The consumer has a group because librdkafka requires one, and never joins it.
            if message is not None and not (error and error.code() == KafkaError.GROUP_AUTHORIZATION_FAILED):
                self._stop()
                return error is None
        if is_over():
            self._stop()
        return False

    def _stop(self) -> None:
        """Fetch nothing until the next wait."""
        self.consumer.unassign()
        self._ends = None
