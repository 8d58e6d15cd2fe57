"""Kafka: offsets, topics and producers, through confluent-kafka."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, ClassVar

import dagster as dg
from pydantic import Field, PrivateAttr

from lakehouse.errors import LakehouseError, UnclearState, Unreachable
from resources.election import POLL_SECONDS, TIMEOUT_SECONDS, electing, when_elected
from resources.hidden import hidden
from resources.oldest_records import timestamps
from resources.secret import values

if TYPE_CHECKING:
    from confluent_kafka import Consumer, Producer
    from confluent_kafka.admin import AdminClient

_LOG = logging.getLogger("lakehouse.librdkafka")
# librdkafka repeats on stderr, line by line, what the exception says once.
_LOG.setLevel(logging.CRITICAL)

SETTLE_SECONDS = 60
"""How long a committed transaction may take until read_committed consumers see its end."""


Headers = Sequence[tuple[str, bytes | None]]
Message = tuple[bytes | None, bytes | None] | tuple[bytes | None, bytes | None, Headers]
"""Key and value, and headers where there are any."""


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


@dataclass(frozen=True)
class Bookmark:
    """A consumer group's position on a topic, the next offset by partition, and what was noted with it."""

    offsets: Mapping[int, int]
    note: str = ""


def jaas_config(mechanism: str, user: str, password: str) -> str:
    """Compose the JAAS configuration of a client in Java (Kafka, Security: SASL configuration).

    Args:
        mechanism: PLAIN, SCRAM-SHA-256 or SCRAM-SHA-512.
        user: User name, or API key.
        password: Password, or API secret.
    """
    kind = "scram.Scram" if mechanism.startswith("SCRAM") else "plain.Plain"
    module = f"org.apache.kafka.common.security.{kind}LoginModule"
    return f'{module} required username="{_jaas_text(user)}" password="{_jaas_text(password)}";'


def _jaas_text(text: str) -> str:
    """A text for between quotes. Octal escapes are those that Java's StreamTokenizer, which reads it, undoes."""
    return "".join(c if c.isalnum() or c in "-_.+/=" or not c.isascii() else f"\\{ord(c):03o}" for c in text)


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
        with self._explained():
            return self._admin().describe_cluster(request_timeout=TIMEOUT_SECONDS).result().cluster_id

    def topics(self) -> list[str]:
        """The names of all topics.

        Raises: Unreachable.
        """
        with self._explained():
            return sorted(self._admin().list_topics(timeout=TIMEOUT_SECONDS).topics)

    def describe(self, topics: Sequence[str]) -> dict[str, TopicDescription]:
        """The topics that exist, of those asked for.

        Raises: Unreachable.
        """
        from confluent_kafka import KafkaError, KafkaException, TopicCollection

        found = {}
        with self._explained():
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

    def ensure_topic(self, topic: str, partitions: int, retention: timedelta | None = None) -> None:
        """Create the topic if it is not there.

        Parameters: how long Kafka keeps records of a topic that is created; None leaves it to Kafka.
        Raises: UnclearState when it has fewer partitions than declared: adding some would move keys between
        partitions, which is for somebody to decide; Unreachable.
        """
        from confluent_kafka import KafkaError, KafkaException
        from confluent_kafka.admin import NewTopic

        found = self.describe([topic]).get(topic)
        if found is None:
            config = {"retention.ms": str(retention // timedelta(milliseconds=1))} if retention else {}
            with self._explained():
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
        elif found.partitions < partitions:
            raise UnclearState(
                f"Topic '{topic}' has {found.partitions} partitions and lakehouse.yaml declares {partitions}. Nothing "
                f"was changed. Set 'partitions: {found.partitions}', or add partitions yourself (keys will move)"
            )

    def oldest_timestamp(
        self, topic: str, positions: Mapping[int, int], ends: Mapping[int, int]
    ) -> dict[int, int | None]:
        """The timestamp (milliseconds) of the first record from an offset on, by partition; None where Kafka says that
        there is none before the partition's end, an exclusive offset.

        Records of open transactions count, too: they wait.

        Raises: LakehouseError when it cannot be found out; Unreachable.
        """
        with self._explained():
            consumer = self._consumer("lakehouse-lag", "read_uncommitted", **{"check.crcs": "true"})
            return timestamps(consumer, topic, positions, ends)

    def member(self, group: str, settings: Mapping[str, str | int]) -> Consumer:
        """A consumer that is to join a group, with more settings of librdkafka."""
        return self._consumer(group, **settings)

    def producer(self, **config: str | int) -> Producer:
        """An idempotent producer that places keys as Java producers do.

        Parameters: more settings of librdkafka, such as `transactional_id="x"` for `transactional.id`.
        """
        from confluent_kafka import Producer

        settings = {
            "enable.idempotence": "true",
            "partitioner": "murmur2_random",
            "compression.type": "zstd",
            "linger.ms": 20,
        }
        return Producer({**self.client_config(), **settings, **{k.replace("_", "."): v for k, v in config.items()}})

    def committed(self, group: str, topic: str) -> Bookmark:
        """A consumer group's position; without offsets when it has none.

        Raises: Unreachable.
        """
        from confluent_kafka import TopicPartition

        partitions = [TopicPartition(topic, p) for p in range(self.describe([topic])[topic].partitions)]
        with self._explained(), closing(self._consumer(group)) as consumer:
            answer = when_elected(lambda: consumer.committed(partitions, timeout=TIMEOUT_SECONDS))
        found = [one for one in answer if one.offset >= 0]
        return Bookmark({one.partition: one.offset for one in found}, next((one.metadata or "" for one in found), ""))

    def transaction(
        self,
        producer: Producer,
        topic: str,
        messages: Iterable[Message],
        position: tuple[str, str, Bookmark],
    ) -> None:
        """Produce all messages and move a consumer group's position, or do neither; returns when readers see both.

        Parameters: a producer after init_transactions; messages; `position` as (group, topic of the position, what it
        becomes).
        Raises: Unreachable; UnclearState when the transaction was fenced off by a newer process.
        """
        from confluent_kafka import KafkaException, TopicPartition

        group, source, bookmark = position
        with self._explained():
            producer.begin_transaction()
            try:
                for message in messages:
                    self.enqueue(producer, topic, *message)
                with closing(self._consumer(group)) as consumer:
                    producer.send_offsets_to_transaction(
                        [TopicPartition(source, p, offset, bookmark.note) for p, offset in bookmark.offsets.items()],
                        consumer.consumer_group_metadata(),
                    )
                producer.commit_transaction()
            except KafkaException as error:
                if not error.args[0].fatal():
                    producer.abort_transaction()
                raise
        self._settle(topic)

    @staticmethod
    def enqueue(
        producer: Producer, topic: str, key: bytes | None, value: bytes | None, headers: Headers | None = None
    ) -> None:
        """Hand a message to the producer, waiting while its queue is full."""
        while True:
            try:
                return producer.produce(topic, value=value, key=key, headers=headers)
            except BufferError:
                producer.poll(1)

    def _settle(self, topic: str) -> None:
        """Wait until read_committed consumers see the end of the log: commit markers come after the answer."""
        from confluent_kafka import IsolationLevel
        from confluent_kafka.admin import OffsetSpec

        partitions = [(topic, p) for p in range(self.describe([topic])[topic].partitions)]
        written = self._list_offsets(partitions, OffsetSpec.latest(), IsolationLevel.READ_UNCOMMITTED)
        deadline = time.monotonic() + SETTLE_SECONDS
        while time.monotonic() < deadline:
            seen = self._list_offsets(partitions, OffsetSpec.latest(), IsolationLevel.READ_COMMITTED)
            if all(seen[key] >= written[key] for key in written):
                return
            time.sleep(POLL_SECONDS)
        raise Unreachable("Kafka", self.servers, f"open transactions on topic '{topic}'", "commit not visible")

    def _list_offsets(self, partitions: list[tuple[str, int]], spec: object, isolation: object) -> dict:
        from confluent_kafka import TopicPartition

        asked = {TopicPartition(topic, p): spec for topic, p in partitions}

        def offsets() -> dict:
            answers = self._admin().list_offsets(asked, isolation_level=isolation, request_timeout=TIMEOUT_SECONDS)
            return {(tp.topic, tp.partition): answer.result().offset for tp, answer in answers.items()}

        with self._explained():
            return when_elected(offsets)

    def _admin(self) -> AdminClient:
        """One client: its answers are lost with it."""
        if self._client is None:
            from confluent_kafka.admin import AdminClient

            self._client = AdminClient(self.client_config(), logger=_LOG)
        return self._client

    def _consumer(self, group: str, isolation: str = "read_committed", **more: str | int) -> Consumer:
        from confluent_kafka import Consumer

        settings = {"group.id": group, "enable.auto.commit": "false", "auto.offset.reset": "error", **more}
        return Consumer(
            {**self.client_config(), "isolation.level": isolation, "enable.partition.eof": "true", **settings},
            logger=_LOG,
        )

    @contextmanager
    def _explained(self) -> Iterator[None]:
        """What librdkafka says when nobody answers, as Unreachable; and what a broker refuses, as LakehouseError."""
        from confluent_kafka import KafkaError, KafkaException

        silent = (
            KafkaError._TRANSPORT,
            KafkaError._ALL_BROKERS_DOWN,
            KafkaError._TIMED_OUT,
            KafkaError._RESOLVE,
            KafkaError._AUTHENTICATION,
            KafkaError.REQUEST_TIMED_OUT,
            *electing(),
        )
        refused = (
            KafkaError.TOPIC_AUTHORIZATION_FAILED,
            KafkaError.GROUP_AUTHORIZATION_FAILED,
            KafkaError.CLUSTER_AUTHORIZATION_FAILED,
        )
        try:
            yield
        except KafkaException as error:
            cause = error.args[0]
            if cause.code() == KafkaError._FENCED:
                raise UnclearState(
                    "A newer process took over this producer; its transaction stands, not this one"
                ) from error
            if cause.code() in silent:
                check = "that the broker is up (`lakehouse status`), the address, and the API key"
                raise Unreachable("Kafka", self.servers, check, cause.str()) from error
            if cause.code() in refused:
                raise LakehouseError(
                    f"Kafka at {self.servers} refuses: {cause.str()}. Nothing was changed. Grant it to the API key"
                ) from error
            raise
