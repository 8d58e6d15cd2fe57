"""A Kafka cluster: its topics, their offsets and messages."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from typing import TYPE_CHECKING

from pydantic import PrivateAttr

from lakehouse.core.errors import LakehouseError, TransientError, UnclearState
from lakehouse.core.polling import poll
from resources.kafka.connection import KafkaConnection
from resources.kafka.errors import (
    LOGIN_SECONDS,
    POLL_SECONDS,
    TIMEOUT_SECONDS,
    retry_during_election,
    suppress_codes,
)
from resources.kafka.messages import Headers, Received, received, timestamps
from resources.kafka.watch import SETTINGS, RecordWatch

if TYPE_CHECKING:
    from confluent_kafka import Producer
    from confluent_kafka.admin import ListOffsetsResultInfo, OffsetSpec


@dataclass(frozen=True)
class TopicDescription:
    """The description of a topic."""

    topic_id: str
    """The broker's id of the topic, which changes when the topic is recreated."""
    partitions: int
    """Number of partitions."""
    leaderless: tuple[int, ...] = ()
    """Partitions that cannot be read because their brokers are down."""


@dataclass(frozen=True)
class Offsets:
    """Offsets of one partition: `start` is the first one (inclusive), `end` is one past the last committed record."""

    start: int
    end: int
    epoch: int | None = field(default=None, compare=False)
    """Counts the elections of a leader. Only an election may replace records before `end`."""


class Kafka(KafkaConnection):
    """A Kafka cluster. Clients log in by SASL or with a certificate, and are anonymous without either."""

    _watch: RecordWatch | None = PrivateAttr(default=None)
    _watch_renewed_at: float = PrivateAttr(default=0.0)

    def cluster_id(self) -> str:
        """Return the cluster's id."""
        with self.translate_errors():
            return self._admin().describe_cluster(request_timeout=TIMEOUT_SECONDS).result().cluster_id

    def topics(self) -> list[str]:
        """Return the names of all topics."""
        with self.translate_errors():
            return sorted(self._admin().list_topics(timeout=TIMEOUT_SECONDS).topics)

    def describe(self, topics: Sequence[str]) -> dict[str, TopicDescription]:
        """Return the descriptions of those of the topics that exist."""
        from confluent_kafka import TopicCollection

        descriptions = {}
        with self.translate_errors():
            pending = self._admin().describe_topics(TopicCollection(list(topics)), request_timeout=TIMEOUT_SECONDS)
            for name, future in pending.items():
                with suppress_codes("UNKNOWN_TOPIC_OR_PART"):
                    description, parts = future.result(), future.result().partitions
                    leaderless = tuple(part.id for part in parts if part.leader is None or part.leader.id < 0)
                    descriptions[name] = TopicDescription(str(description.topic_id), len(parts), leaderless)
        return descriptions

    def offsets(self, topics: Sequence[str], *, committed: bool = True) -> dict[str, dict[int, Offsets]]:
        """Return the offsets of each partition of each topic, with two requests for all.

        Args:
            topics: Names of the topics.
            committed: Report the end as a read_committed consumer sees it: the start of the first open transaction.
        """
        from confluent_kafka.admin import OffsetSpec

        described = self.describe(topics)
        if missing := [topic for topic in topics if topic not in described]:
            raise self.missing_topic_error(missing[0])
        partitions = [(topic, p) for topic, description in described.items() for p in range(description.partitions)]
        start = self._list_offsets(partitions, OffsetSpec.earliest(), committed=committed)
        end = self._list_offsets(partitions, OffsetSpec.latest(), committed=committed)
        offsets = {key: Offsets(start[key].offset, last.offset, last.leader_epoch) for key, last in end.items()}
        return {topic: {p: offsets[topic, p] for p in range(one.partitions)} for topic, one in described.items()}

    def missing_topic_error(self, topic: str) -> LakehouseError:
        """Return the error for a topic that does not exist."""
        return LakehouseError(
            f"Topic '{topic}' does not exist at {self.servers}. Nothing was changed. "
            f"Create it, or correct its name in lakehouse.yaml; the asset {topic}/kafka creates one that has a source"
        )

    def offsets_at(self, topic: str, timestamp_ms: int) -> dict[int, int]:
        """Return the first offset by partition with a timestamp at or after `timestamp_ms`, or the partition's end.

        Args:
            topic: Name of the topic.
            timestamp_ms: Milliseconds since the epoch.
        """
        from confluent_kafka.admin import OffsetSpec

        ends = {partition: offsets.end for partition, offsets in self.offsets([topic])[topic].items()}
        partitions = [(topic, partition) for partition in ends]
        first = self._list_offsets(partitions, OffsetSpec.for_timestamp(timestamp_ms), committed=True)
        return {p: min(offset, ends[p]) if (offset := first[topic, p].offset) >= 0 else ends[p] for p in ends}

    def ensure_topic(
        self,
        topic: str,
        partitions: int,
        retention: timedelta | None = None,
        *,
        settings: Mapping[str, str] | None = None,
        min_partitions: int | None = None,
    ) -> None:
        """Create the topic if it does not exist, and wait until the broker lists it.

        Args:
            topic: Name of the topic.
            partitions: Number of partitions to create.
            retention: Retention of a new topic; Kafka's default if None.
            settings: Further settings of a new topic.
            min_partitions: Number of partitions that an existing topic must have; `partitions` if None.

        Raises:
            UnclearState: An existing topic has fewer. Adding partitions moves keys, so an operator has to decide.
        """
        from confluent_kafka.admin import NewTopic

        existing = self.describe([topic]).get(topic)
        if existing is None:
            config = {"retention.ms": str(retention // timedelta(milliseconds=1))} if retention else {}
            config |= settings or {}
            with self.translate_errors():
                created = self._admin().create_topics(
                    [NewTopic(topic, partitions, config=config)],
                    operation_timeout=TIMEOUT_SECONDS,
                    request_timeout=TIMEOUT_SECONDS,
                )
                with suppress_codes("TOPIC_ALREADY_EXISTS"):
                    created[topic].result()
            # A broker learns of a new topic from the controller, which may take longer than the response.
            if not poll(lambda: self.describe([topic]), pause=POLL_SECONDS, deadline_seconds=TIMEOUT_SECONDS):
                raise TransientError(
                    f"Topic '{topic}' was created, and {self.servers} does not list it after {TIMEOUT_SECONDS} seconds",
                    "The topic is kept",
                    "Check that all brokers are up, and retry",
                )
        elif existing.partitions < (partitions if min_partitions is None else min_partitions):
            raise UnclearState(
                f"Topic '{topic}' has {existing.partitions} partitions and lakehouse.yaml declares {partitions}. "
                f"Nothing was changed. Set 'partitions: {existing.partitions}', or add partitions yourself (keys will "
                f"move)"
            )

    def oldest_timestamp(
        self, topic: str, positions: Mapping[int, int], ends: Mapping[int, int]
    ) -> dict[int, int | None]:
        """Return the same as `messages.timestamps`, with records of open transactions, which are pending too."""
        with self.translate_errors():
            consumer = self.consumer("lakehouse-lag", "read_uncommitted", {"check.crcs": "true"})
            return timestamps(consumer, topic, positions, ends)

    def topic_setting(self, topic: str, name: str) -> str | None:
        """Return a setting of a topic (Kafka, Topic configs); None without permission to read it."""
        from confluent_kafka.admin import ConfigResource

        resource = ConfigResource(ConfigResource.Type.TOPIC, topic)
        setting = None
        with self.translate_errors(), suppress_codes("TOPIC_AUTHORIZATION_FAILED", "UNKNOWN_TOPIC_OR_PART"):
            future = self._admin().describe_configs([resource], request_timeout=TIMEOUT_SECONDS)[resource]
            setting = future.result().get(name)
        return setting.value if setting else None

    def messages(self, topic: str, partition: int, start: int, end: int) -> Iterator[Received]:
        """Yield the committed messages of a partition from `start` (inclusive) to `end` (exclusive).

        Args:
            topic: Name of the topic.
            partition: The partition.
            start: First offset.
            end: An offset that is not past the end for a read_committed consumer.
        """
        start = max(start, self.offsets([topic])[topic][partition].start)
        if start < end:
            with self.translate_errors():
                yield from received(self.consumer("lakehouse-reader"), self.servers, topic, partition, start, end)

    def wait_for_records(
        self, ends: Mapping[str, Mapping[int, int]], seconds: float, is_over: Callable[[], bool]
    ) -> bool:
        """Return whether a partition has a committed record at or after its end, after waiting for one.

        An error ends the wait; the next request to the cluster reports its reason. Only one thread may wait.

        Args:
            ends: End offsets by topic and partition.
            seconds: The maximum time to wait.
            is_over: Ends the wait early; called several times a second.
        """
        if self._watch is None:
            self._watch = RecordWatch(self.consumer("lakehouse-watch", settings=SETTINGS))
            self._watch_renewed_at = time.monotonic()
        elif time.monotonic() - self._watch_renewed_at > LOGIN_SECONDS:
            self._watch_renewed_at = time.monotonic()
            self.renew_login(self._watch.consumer)
        with self.translate_errors():
            return self._watch.wait(ends, seconds, is_over)

    @staticmethod
    def enqueue(
        producer: Producer,
        topic: str,
        key: bytes | None,
        value: bytes | None,
        headers: Headers = (),
        partition: int = -1,
    ) -> None:
        """Add a message to the producer's queue, waiting while it is full; by default partitioned by key."""
        while True:
            try:
                return producer.produce(topic, value=value, key=key, headers=list(headers), partition=partition)
            except BufferError:
                producer.poll(1)

    def _list_offsets(
        self, partitions: Sequence[tuple[str, int]], spec: OffsetSpec, *, committed: bool
    ) -> dict[tuple[str, int], ListOffsetsResultInfo]:
        from confluent_kafka import IsolationLevel, TopicPartition

        specs = {TopicPartition(topic, p): spec for topic, p in partitions}
        isolation = IsolationLevel.READ_COMMITTED if committed else IsolationLevel.READ_UNCOMMITTED

        def offsets() -> dict[tuple[str, int], ListOffsetsResultInfo]:
            futures = self._admin().list_offsets(specs, isolation_level=isolation, request_timeout=TIMEOUT_SECONDS)
            return {(tp.topic, tp.partition): future.result() for tp, future in futures.items()}

        with self.translate_errors():
            return retry_during_election(offsets)
