"""A client of Kafka for offsets, topics and producers, with confluent-kafka."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass, field
from datetime import timedelta
from typing import TYPE_CHECKING, ClassVar

import dagster as dg
from pydantic import Field, PrivateAttr

from lakehouse.core.errors import LakehouseError, TransientError, UnclearState, translate
from lakehouse.core.polling import poll
from resources.aws.secret_reader import read_secret_fields
from resources.kafka.errors import LOGIN_SECONDS, POLL_SECONDS, TIMEOUT_SECONDS, retry_during_election, to_error
from resources.kafka.jaas import jaas_config
from resources.kafka.messages import Headers, Received, received, timestamps
from resources.masked_field import secret_field

if TYPE_CHECKING:
    from confluent_kafka import Consumer, IsolationLevel, Producer
    from confluent_kafka.admin import AdminClient, ListOffsetsResultInfo, OffsetSpec


_LOG = logging.getLogger("lakehouse.librdkafka")
# librdkafka writes the text of each exception to stderr as well.
_LOG.setLevel(logging.CRITICAL)


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


class Kafka(dg.ConfigurableResource):
    """A Kafka cluster. Clients log in if a SASL mechanism is set, and are anonymous otherwise."""

    ONE_OF: ClassVar = ("bootstrap_servers", "secret")
    """Settings of which one is required."""

    bootstrap_servers: str = Field("", description="Addresses of brokers as `host:port`, separated by commas.")
    security_protocol: str = Field("PLAINTEXT", description="PLAINTEXT, SSL, SASL_PLAINTEXT or SASL_SSL.")
    sasl_mechanism: str | None = Field(None, description="PLAIN, SCRAM-SHA-256 or SCRAM-SHA-512.")
    api_key: str | None = Field(None, description="Id of an API key of the cluster, or a SASL user.")
    api_secret: str | None = secret_field(None, "The key's secret, or the user's password.")

    secret: str = Field(
        "", description="A secret in AWS Secrets Manager with bootstrap.servers, sasl.username and sasl.password."
    )

    role_arn: str = Field(default="", description="IAM role to assume to read secrets of AWS Secrets Manager.")

    _client: AdminClient | None = PrivateAttr(default=None)
    _renewed_at: float = PrivateAttr(default=0.0)

    @property
    def servers(self) -> str:
        """Addresses of the brokers."""
        return self._secret("bootstrap.servers")["bootstrap.servers"] if self.secret else self.bootstrap_servers

    def _secret(self, *fields: str) -> Mapping[str, str]:
        return read_secret_fields(self.secret, *fields, role_arn=self.role_arn)

    def _credentials(self) -> tuple[str, str]:
        if not self.secret:
            return self.api_key or "", self.api_secret or ""
        fields = self._secret("sasl.username", "sasl.password")
        return fields["sasl.username"], fields["sasl.password"]

    def client_config(self) -> dict[str, str | int]:
        """Return the connection settings of all clients (librdkafka, Configuration properties)."""
        config: dict[str, str | int] = {
            "bootstrap.servers": self.servers,
            "security.protocol": self.security_protocol,
            "socket.timeout.ms": TIMEOUT_SECONDS * 1000,
        }
        if self.sasl_mechanism:
            config |= {"sasl.mechanism": self.sasl_mechanism}
            config["sasl.username"], config["sasl.password"] = self._credentials()
        return config

    def spark_options(self) -> dict[str, str]:
        """Return the connection settings of Spark's Kafka source (Spark, Kafka Integration Guide: security)."""
        options = {
            "kafka.bootstrap.servers": self.servers,
            "kafka.security.protocol": self.security_protocol,
        }
        if self.sasl_mechanism:
            options["kafka.sasl.mechanism"] = self.sasl_mechanism
            options["kafka.sasl.jaas.config"] = jaas_config(self.sasl_mechanism, *self._credentials())
        return options

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
        from confluent_kafka import KafkaError, KafkaException, TopicCollection

        descriptions = {}
        with self.translate_errors():
            pending = self._admin().describe_topics(TopicCollection(list(topics)), request_timeout=TIMEOUT_SECONDS)
            for name, future in pending.items():
                try:
                    description = future.result()
                except KafkaException as error:
                    if error.args[0].code() != KafkaError.UNKNOWN_TOPIC_OR_PART:
                        raise
                    continue
                parts = description.partitions
                leaderless = tuple(part.id for part in parts if part.leader is None or part.leader.id < 0)
                descriptions[name] = TopicDescription(str(description.topic_id), len(parts), leaderless)
        return descriptions

    def offsets(self, topics: Sequence[str], *, committed: bool = True) -> dict[str, dict[int, Offsets]]:
        """Return the offsets of each partition of each topic, with two requests for all.

        Args:
            topics: Names of the topics.
            committed: Report the end as a read_committed consumer sees it: the start of the first open transaction.
        """
        from confluent_kafka import IsolationLevel
        from confluent_kafka.admin import OffsetSpec

        described = self.describe(topics)
        if missing := [topic for topic in topics if topic not in described]:
            raise self.missing_topic_error(missing[0])
        partitions = [(topic, p) for topic, description in described.items() for p in range(description.partitions)]
        isolation = IsolationLevel.READ_COMMITTED if committed else IsolationLevel.READ_UNCOMMITTED
        start = self._list_offsets(partitions, OffsetSpec.earliest(), isolation)
        end = self._list_offsets(partitions, OffsetSpec.latest(), isolation)
        offsets = {key: Offsets(start[key].offset, last.offset, last.leader_epoch) for key, last in end.items()}
        return {topic: {p: offsets[topic, p] for p in range(one.partitions)} for topic, one in described.items()}

    def missing_topic_error(self, topic: str) -> LakehouseError:
        """Return the error for a topic that does not exist."""
        return LakehouseError(
            f"Topic '{topic}' does not exist at {self.servers}. Nothing was changed. "
            f"Create it, or correct its name in lakehouse.yaml; the asset kafka/{topic} creates one that has a source"
        )

    def offsets_at(self, topic: str, timestamp_ms: int) -> dict[int, int]:
        """Return the first offset by partition with a timestamp at or after `timestamp_ms`, or the partition's end.

        Args:
            topic: Name of the topic.
            timestamp_ms: Milliseconds since the epoch.
        """
        from confluent_kafka import IsolationLevel
        from confluent_kafka.admin import OffsetSpec

        ends = {partition: offsets.end for partition, offsets in self.offsets([topic])[topic].items()}
        partitions = [(topic, partition) for partition in ends]
        first = self._list_offsets(partitions, OffsetSpec.for_timestamp(timestamp_ms), IsolationLevel.READ_COMMITTED)
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
        from confluent_kafka import KafkaError, KafkaException
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
                try:
                    created[topic].result()
                except KafkaException as error:
                    if error.args[0].code() != KafkaError.TOPIC_ALREADY_EXISTS:
                        raise
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

    def consumer(
        self, group: str, isolation: str = "read_committed", settings: Mapping[str, str | int] | None = None
    ) -> Consumer:
        """Return a consumer for a group, which commits no offsets, with further settings of librdkafka."""
        from confluent_kafka import Consumer

        defaults = {"group.id": group, "enable.auto.commit": "false", "auto.offset.reset": "error"}
        defaults |= {"isolation.level": isolation, "enable.partition.eof": "true"}
        return Consumer({**self.client_config(), **defaults, **(settings or {})}, logger=_LOG)

    def producer(self, **config: str | int) -> Producer:
        """Return an idempotent producer that partitions keys as Java producers do.

        Args:
            config: Further settings of librdkafka, with `_` for `.`, such as `transactional_id`.
        """
        from confluent_kafka import Producer

        settings = {
            "enable.idempotence": "true",
            "partitioner": "murmur2_random",
            "compression.type": "zstd",
            "linger.ms": 20,
        }
        named = {name.replace("_", "."): value for name, value in config.items()}
        return Producer({**self.client_config(), **settings, **named}, logger=_LOG)

    def topic_setting(self, topic: str, name: str) -> str | None:
        """Return a setting of a topic (Kafka, Topic configs); None without permission to read it."""
        from confluent_kafka import KafkaError, KafkaException
        from confluent_kafka.admin import ConfigResource

        resource = ConfigResource(ConfigResource.Type.TOPIC, topic)
        unreadable = (KafkaError.TOPIC_AUTHORIZATION_FAILED, KafkaError.UNKNOWN_TOPIC_OR_PART)
        with self.translate_errors():
            future = self._admin().describe_configs([resource], request_timeout=TIMEOUT_SECONDS)[resource]
            try:
                setting = future.result().get(name)
            except KafkaException as error:
                if error.args[0].code() not in unreadable:
                    raise
                setting = None
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
        self, partitions: list[tuple[str, int]], spec: OffsetSpec, isolation: IsolationLevel
    ) -> dict[tuple[str, int], ListOffsetsResultInfo]:
        from confluent_kafka import TopicPartition

        specs = {TopicPartition(topic, p): spec for topic, p in partitions}

        def offsets() -> dict[tuple[str, int], ListOffsetsResultInfo]:
            futures = self._admin().list_offsets(specs, isolation_level=isolation, request_timeout=TIMEOUT_SECONDS)
            return {(tp.topic, tp.partition): future.result() for tp, future in futures.items()}

        with self.translate_errors():
            return retry_during_election(offsets)

    def _admin(self) -> AdminClient:
        """Return the only admin client: a client that is deleted loses its pending responses."""
        if self._client is None:
            from confluent_kafka.admin import AdminClient

            self._client, self._renewed_at = AdminClient({**self.client_config()}, logger=_LOG), time.monotonic()
        elif time.monotonic() - self._renewed_at > LOGIN_SECONDS:
            self._renewed_at = time.monotonic()
            self.renew_login(self._client)
        return self._client

    def renew_login(self, client: AdminClient | Consumer) -> None:
        """Give a client the login that the secret has now, if it can be read: a rotation deletes the earlier key."""
        if self.secret and self.sasl_mechanism:
            with suppress(LakehouseError):
                client.set_sasl_credentials(*self._credentials())

    def translate_errors(self) -> AbstractContextManager[None]:
        """Raise Unreachable if no broker responds, and LakehouseError for a refused request."""
        from confluent_kafka import KafkaException

        return translate({KafkaException: lambda error: to_error(error, self.servers)})
