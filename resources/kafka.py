"""Kafka: offsets, topics and producers, through confluent-kafka."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, closing
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Any, ClassVar

import dagster as dg
from pydantic import Field, PrivateAttr

from lakehouse.core.errors import LakehouseError, UnclearState, Unreachable, translate
from resources.election import TIMEOUT_SECONDS, when_elected
from resources.hidden import hidden
from resources.jaas import jaas_config
from resources.kafka_errors import error_of
from resources.oldest_records import timestamps
from resources.secret import values

if TYPE_CHECKING:
    from confluent_kafka import Consumer, IsolationLevel, Message, Producer
    from confluent_kafka.admin import AdminClient, OffsetSpec

_LOG = logging.getLogger("lakehouse.librdkafka")
# librdkafka repeats on stderr, line by line, what the exception says once.
_LOG.setLevel(logging.CRITICAL)

Headers = Sequence[tuple[str, bytes | None]]


@dataclass(frozen=True)
class TopicDescription:
    """`topic_id` is the broker's own: a topic that is deleted and created again has another one. Partitions that are
    `leaderless` cannot be read: the brokers that hold them are down."""

    topic_id: str
    partitions: int
    leaderless: tuple[int, ...] = ()


@dataclass(frozen=True)
class Offsets:
    """One partition's log: `start` is its first offset (inclusive), `end` one past the last committed record."""

    start: int
    end: int


def _headers(message: Message) -> Headers:
    """Return the headers of a message; librdkafka gives them as pairs of text and bytes."""
    headers: Any = message.headers() or ()
    return headers


@dataclass(frozen=True)
class Received:
    """A message as a consumer gets it."""

    key: bytes | None
    value: bytes | None
    headers: Headers


class Kafka(dg.ConfigurableResource):
    """A Kafka cluster. With a SASL mechanism, its clients log in; without, they are anonymous."""

    EITHER: ClassVar = ("bootstrap_servers", "secret")
    """Settings of which one has to be given."""

    bootstrap_servers: str = ""
    security_protocol: str = "PLAINTEXT"
    sasl_mechanism: str | None = Field(None, description="PLAIN, SCRAM-SHA-256 or SCRAM-SHA-512.")
    api_key: str | None = None
    api_secret: str | None = hidden(None)

    secret: str = Field(
        "", description="A secret in AWS Secrets Manager with bootstrap.servers, sasl.username and sasl.password."
    )

    _client: AdminClient | None = PrivateAttr(default=None)

    @property
    def servers(self) -> str:
        """Where it answers.

        Raises: ConfigError; Unreachable.
        """
        return values(self.secret, "bootstrap.servers")["bootstrap.servers"] if self.secret else self.bootstrap_servers

    def _key(self) -> tuple[str, str]:
        if not self.secret:
            return self.api_key or "", self.api_secret or ""
        found = values(self.secret, "sasl.username", "sasl.password")
        return found["sasl.username"], found["sasl.password"]

    def client_config(self) -> dict[str, str | int]:
        """Connection settings of every client (librdkafka, Configuration properties)."""
        config: dict[str, str | int] = {
            "bootstrap.servers": self.servers,
            "security.protocol": self.security_protocol,
            "socket.timeout.ms": TIMEOUT_SECONDS * 1000,
        }
        if self.sasl_mechanism:
            config |= {"sasl.mechanism": self.sasl_mechanism}
            config["sasl.username"], config["sasl.password"] = self._key()
        return config

    def spark_options(self) -> dict[str, str]:
        """The same for Spark's Kafka source (Spark, Kafka Integration Guide: security)."""
        options = {
            "kafka.bootstrap.servers": self.servers,
            "kafka.security.protocol": self.security_protocol,
        }
        if self.sasl_mechanism:
            options["kafka.sasl.mechanism"] = self.sasl_mechanism
            options["kafka.sasl.jaas.config"] = jaas_config(self.sasl_mechanism, *self._key())
        return options

    def cluster_id(self) -> str:
        """The cluster's id.

        Raises: Unreachable.
        """
        with self.explained():
            return self._admin().describe_cluster(request_timeout=TIMEOUT_SECONDS).result().cluster_id

    def topics(self) -> list[str]:
        """The names of all topics.

        Raises: Unreachable.
        """
        with self.explained():
            return sorted(self._admin().list_topics(timeout=TIMEOUT_SECONDS).topics)

    def describe(self, topics: Sequence[str]) -> dict[str, TopicDescription]:
        """The topics that exist, of those asked for.

        Raises: Unreachable.
        """
        from confluent_kafka import KafkaError, KafkaException, TopicCollection

        found = {}
        with self.explained():
            asked = self._admin().describe_topics(TopicCollection(list(topics)), request_timeout=TIMEOUT_SECONDS)
            for name, answer in asked.items():
                try:
                    description = answer.result()
                except KafkaException as error:
                    if error.args[0].code() != KafkaError.UNKNOWN_TOPIC_OR_PART:
                        raise
                    continue
                leaderless = tuple(
                    part.id for part in description.partitions if part.leader is None or part.leader.id < 0
                )
                found[name] = TopicDescription(str(description.topic_id), len(description.partitions), leaderless)
        return found

    def offsets(self, topics: Sequence[str], *, committed: bool = True) -> dict[str, dict[int, Offsets]]:
        """Where each partition of each topic starts and ends, in two requests for all.

        Parameters: `committed` is how a read_committed consumer sees it, to whom the log ends where an open transaction
        begins.
        Raises: Unreachable; LakehouseError when a topic does not exist.
        """
        from confluent_kafka import IsolationLevel
        from confluent_kafka.admin import OffsetSpec

        described = self.describe(topics)
        if missing := [topic for topic in topics if topic not in described]:
            raise self.missing(missing[0])
        partitions = [(topic, p) for topic, found in described.items() for p in range(found.partitions)]
        isolation = IsolationLevel.READ_COMMITTED if committed else IsolationLevel.READ_UNCOMMITTED
        start = self._list_offsets(partitions, OffsetSpec.earliest(), isolation)
        end = self._list_offsets(partitions, OffsetSpec.latest(), isolation)
        return {
            topic: {p: Offsets(start[topic, p], end[topic, p]) for p in range(found.partitions)}
            for topic, found in described.items()
        }

    def missing(self, topic: str) -> LakehouseError:
        """The error for a topic that does not exist."""
        return LakehouseError(
            f"Topic '{topic}' does not exist at {self.servers}. Nothing was changed. "
            f"Create it, or correct its name in lakehouse.yaml; one with a source is made by kafka/{topic}"
        )

    def offsets_at(self, topic: str, timestamp_ms: int) -> dict[int, int]:
        """The first offset by partition whose timestamp is at or after `timestamp_ms` (milliseconds since the epoch);
        the end of the partition where there is none.

        Raises: Unreachable; LakehouseError when the topic does not exist.
        """
        from confluent_kafka import IsolationLevel
        from confluent_kafka.admin import OffsetSpec

        ends = {partition: offsets.end for partition, offsets in self.offsets([topic])[topic].items()}
        asked = [(topic, partition) for partition in ends]
        found = self._list_offsets(asked, OffsetSpec.for_timestamp(timestamp_ms), IsolationLevel.READ_COMMITTED)
        return {p: min(offset, ends[p]) if (offset := found[topic, p]) >= 0 else ends[p] for p in ends}

    def ensure_topic(
        self,
        topic: str,
        partitions: int,
        retention: timedelta | None = None,
        *,
        settings: Mapping[str, str] | None = None,
        fewest: int | None = None,
    ) -> None:
        """Create the topic if it is not there.

        Parameters: `retention` is how long Kafka keeps records of a topic that is created, by default as it decides;
        `settings` are more of its settings; `fewest` is with how many partitions a topic that exists is accepted, by
        default as many as it would be created with.
        Raises: UnclearState when it has fewer: adding some would move keys between partitions, which is for somebody to
        decide; Unreachable.
        """
        from confluent_kafka import KafkaError, KafkaException
        from confluent_kafka.admin import NewTopic

        found = self.describe([topic]).get(topic)
        if found is None:
            config = {"retention.ms": str(retention // timedelta(milliseconds=1))} if retention else {}
            config |= settings or {}
            with self.explained():
                created = self._admin().create_topics(
                    [NewTopic(topic, partitions, config=config)],
                    operation_timeout=TIMEOUT_SECONDS,
                    request_timeout=TIMEOUT_SECONDS,
                )
                try:
                    created[topic].result()
                except KafkaException as error:
                    if error.args[0].code() != KafkaError.TOPIC_ALREADY_EXISTS:
                        raise
        elif found.partitions < (partitions if fewest is None else fewest):
            raise UnclearState(
                f"Topic '{topic}' has {found.partitions} partitions and lakehouse.yaml declares {partitions}. Nothing "
                f"was changed. Set 'partitions: {found.partitions}', or add partitions yourself (keys will move)"
            )

    def oldest_timestamp(
        self, topic: str, positions: Mapping[int, int], ends: Mapping[int, int]
    ) -> dict[int, int | None]:
        """As `oldest_records.timestamps`. Records of open transactions count, too: they wait.

        Raises: LakehouseError when it cannot be found out; Unreachable.
        """
        with self.explained():
            consumer = self._consumer("lakehouse-lag", "read_uncommitted", {"check.crcs": "true"})
            return timestamps(consumer, topic, positions, ends)

    def member(self, group: str, settings: Mapping[str, str | int]) -> Consumer:
        """A consumer that is to join a group, with more settings of librdkafka."""
        return self._consumer(group, settings=settings)

    def producer(self, **config: str | int) -> Producer:
        """An idempotent producer that places keys as Java producers do.

        Parameters: more settings of librdkafka, `transactional_id="x"` for `transactional.id`.
        """
        from confluent_kafka import Producer

        settings = {
            "enable.idempotence": "true",
            "partitioner": "murmur2_random",
            "compression.type": "zstd",
            "linger.ms": 20,
        }
        return Producer({**self.client_config(), **settings, **{k.replace("_", "."): v for k, v in config.items()}})

    def topic_setting(self, topic: str, name: str) -> str | None:
        """Look up a setting of a topic (Kafka, Topic configs); None where the key may not see it.

        Raises: Unreachable.
        """
        from confluent_kafka import KafkaError, KafkaException
        from confluent_kafka.admin import ConfigResource

        resource = ConfigResource(ConfigResource.Type.TOPIC, topic)
        unseen = (KafkaError.TOPIC_AUTHORIZATION_FAILED, KafkaError.UNKNOWN_TOPIC_OR_PART)
        with self.explained():
            answer = self._admin().describe_configs([resource], request_timeout=TIMEOUT_SECONDS)[resource]
            try:
                found = answer.result().get(name)
            except KafkaException as error:
                if error.args[0].code() not in unseen:
                    raise
                found = None
        return found.value if found else None

    def messages(self, topic: str, partition: int, start: int, end: int) -> Iterator[Received]:
        """Read the committed messages of a partition from `start` (inclusive) to `end` (exclusive).

        Parameters: `end` as a read_committed consumer sees it; it is read to the end, or closed before.
        Raises: Unreachable when Kafka sends nothing for TIMEOUT_SECONDS.
        """
        from confluent_kafka import KafkaError, KafkaException, TopicPartition

        start = max(start, self.offsets([topic])[topic][partition].start)
        if start >= end:
            return
        heard = time.monotonic()
        with self.explained(), closing(self._consumer("lakehouse-reader")) as consumer:
            consumer.assign([TopicPartition(topic, partition, start)])
            while True:
                message = consumer.poll(1)
                if message is None:
                    if time.monotonic() - heard > TIMEOUT_SECONDS:
                        raise Unreachable("Kafka", self.servers, f"partition {partition} of '{topic}'", "no messages")
                    continue
                heard = time.monotonic()
                if error := message.error():
                    # What is behind the last message are transaction markers.
                    if error.code() == KafkaError._PARTITION_EOF:
                        return
                    raise KafkaException(error)
                offset = message.offset()
                assert offset is not None, "a message without an error has an offset"
                if offset < end:
                    yield Received(message.key(), message.value(), _headers(message))
                if offset >= end - 1:
                    return

    @staticmethod
    def enqueue(
        producer: Producer,
        topic: str,
        key: bytes | None,
        value: bytes | None,
        headers: Headers = (),
        partition: int = -1,
    ) -> None:
        """Hand a message to the producer, waiting while its queue is full; without a partition, the key chooses it."""
        while True:
            try:
                return producer.produce(topic, value=value, key=key, headers=list(headers), partition=partition)
            except BufferError:
                producer.poll(1)

    def _list_offsets(
        self, partitions: list[tuple[str, int]], spec: OffsetSpec, isolation: IsolationLevel
    ) -> dict[tuple[str, int], int]:
        from confluent_kafka import TopicPartition

        asked = {TopicPartition(topic, p): spec for topic, p in partitions}

        def offsets() -> dict[tuple[str, int], int]:
            answers = self._admin().list_offsets(asked, isolation_level=isolation, request_timeout=TIMEOUT_SECONDS)
            return {(tp.topic, tp.partition): answer.result().offset for tp, answer in answers.items()}

        with self.explained():
            return when_elected(offsets)

    def _admin(self) -> AdminClient:
        """One client: its answers are lost with it."""
        if self._client is None:
            from confluent_kafka.admin import AdminClient

            self._client = AdminClient({**self.client_config()}, logger=_LOG)
        return self._client

    def _consumer(
        self, group: str, isolation: str = "read_committed", settings: Mapping[str, str | int] | None = None
    ) -> Consumer:
        from confluent_kafka import Consumer

        usual = {"group.id": group, "enable.auto.commit": "false", "auto.offset.reset": "error"}
        usual |= {"isolation.level": isolation, "enable.partition.eof": "true"}
        return Consumer(
            {**self.client_config(), **usual, **(settings or {})},
            logger=_LOG,
        )

    def explained(self) -> AbstractContextManager[None]:
        """Raise Unreachable where no broker answers, and LakehouseError for what one refuses."""
        from confluent_kafka import KafkaException

        return translate({KafkaException: lambda error: error_of(error, self.servers)})
