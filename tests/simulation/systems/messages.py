"""Topics of messages in memory, with transactional producers: the rest of resources.protocols.KafkaClient.

A producer with the same transactional id fences an older one off and aborts its transaction, and the coordinator aborts
a transaction that is open for too long (Kafka, KIP-98). The source topic of the simulation is in kafka.py.
"""

from __future__ import annotations

import itertools
import time
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import Any, TypeVar

from confluent_kafka import KafkaError, KafkaException

from lakehouse.core.errors import translate
from resources.kafka.errors import to_error
from resources.kafka.kafka import Headers, Offsets, Received, TopicDescription
from resources.kafka.transactions import DEFAULT_LIMIT, TIMEOUT_SECONDS
from tests.simulation.systems.kafka import MemoryKafka

T = TypeVar("T")

_ids = itertools.count()


@dataclass
class Transaction:
    """A transaction, with the partitions that it wrote to."""

    began: float
    state: str = "open"
    partitions: list[list[Slot]] = field(default_factory=list)


@dataclass(frozen=True)
class Slot:
    """One offset: a message, or the marker of a transaction's end."""

    message: Received | None
    transaction: Transaction | None


@dataclass
class MessageTopic:
    """A topic: its id, its settings and the offsets of each partition."""

    topic_id: str
    settings: dict[str, str]
    partitions: list[list[Slot]]


class MessageKafka(MemoryKafka):
    """The cluster of the source topic, with further topics.

    Attributes:
        topics: The further topics by name.
        message_seconds: The time that a broker takes to accept a message.
        max_message_bytes: The maximum bytes of a message in the topics.
    """

    message_seconds = 0.0
    max_message_bytes = DEFAULT_LIMIT

    def __init__(self, *arguments: Any, **settings: Any):
        self.topics: dict[str, MessageTopic] = {}
        self._epochs: dict[str, int] = {}
        self._open: dict[str, Transaction] = {}
        super().__init__(*arguments, **settings)

    # The client protocol

    def describe(self, topics: Sequence[str]) -> dict[str, TopicDescription]:
        """Return the topics that exist."""
        others = {name: self.topics[name] for name in topics if name in self.topics}
        described = super().describe(topics)
        return described | {n: TopicDescription(t.topic_id, len(t.partitions)) for n, t in others.items()}

    def offsets(self, topics: Sequence[str], *, committed: bool = True) -> dict[str, dict[int, Offsets]]:
        """Return where each partition starts and ends."""
        if topics == [self.topic]:
            return super().offsets(topics, committed=committed)

        def offsets() -> dict[str, dict[int, Offsets]]:
            self.expire()
            return {
                name: {p: Offsets(0, self._end(name, p, committed)) for p in self._partitions(name)} for name in topics
            }

        return self._call("offsets", offsets)

    def create(self, topic: str, partitions: int, settings: Mapping[str, str] | None = None) -> None:
        """Create a topic at once."""
        self.topics[topic] = MessageTopic(
            f"messages{next(_ids)}", dict(settings or {}), [[] for _ in range(partitions)]
        )

    def ensure_topic(self, topic: str, partitions: int, *_: Any, settings: Mapping[str, str] | None = None, **__: Any):
        """Create a topic if it does not exist."""

        def ensure() -> None:
            if topic not in self.topics:
                self.create(topic, partitions, settings)

        self._call("ensure_topic", ensure)

    def topic_setting(self, topic: str, name: str) -> str | None:
        """Return a setting of a topic."""
        defaults = {"max.message.bytes": str(self.max_message_bytes)}
        return self._call(
            "topic_setting",
            lambda: (defaults | self.topics[topic].settings).get(name) if topic in self.topics else None,
        )

    def messages(self, topic: str, partition: int, start: int, end: int) -> Iterator[Received]:
        """Yield the committed messages of a range."""
        return iter(self._call("messages", lambda: self.committed(topic, partition, start, end)))

    def producer(self, **config: Any) -> Any:
        """Return a producer."""
        return MemoryProducer(self, config["transactional_id"])

    @staticmethod
    def enqueue(
        producer: Any,
        topic: str,
        key: bytes | None,
        value: bytes | None,
        headers: Headers = (),
        partition: int = -1,
    ) -> None:
        """Produce a message; by default partitioned by key."""
        producer.produce(topic, Received(key, value, headers), partition)

    def translate_errors(self) -> AbstractContextManager[None]:
        """Translate errors as the production client does."""
        return translate({KafkaException: lambda error: to_error(error, self.servers)})

    # The coordinator

    def coordinate(self, operation: str, effect: Callable[[], T]) -> T:
        """Perform a call of a producer."""

        def coordinated() -> T:
            self.expire()
            return effect()

        lost = lambda cause: KafkaException(KafkaError(KafkaError._TIMED_OUT, cause))  # noqa: E731
        return self._world.call(f"kafka.{operation}", coordinated, lost)

    def fence(self, transactional_id: str) -> int:
        """Fence older producers off, abort their transaction, and return the epoch of the new one."""
        self.end_transaction(transactional_id, "aborted")
        self._epochs[transactional_id] = self._epochs.get(transactional_id, 0) + 1
        return self._epochs[transactional_id]

    def require_epoch(self, transactional_id: str, epoch: int) -> None:
        """Require that a producer was not replaced.

        Raises:
            KafkaException: It was.
        """
        if self._epochs.get(transactional_id) != epoch:
            raise KafkaException(KafkaError(KafkaError._FENCED, "fenced", True))

    def write(self, transactional_id: str, topic: str, message: Received, partition: int) -> None:
        """Append a message to a transaction, which begins with its first message."""
        self._world.advance(self.message_seconds)
        if topic not in self.topics:
            raise KafkaException(KafkaError(KafkaError.UNKNOWN_TOPIC_OR_PART, "the topic was deleted"))
        bodies = [message.key, message.value, *(part for n, value in message.headers for part in (n.encode(), value))]
        if sum(len(body or b"") for body in bodies) > self.max_message_bytes:
            raise KafkaException(KafkaError(KafkaError.MSG_SIZE_TOO_LARGE, "the message is too large"))
        transaction = self._open.setdefault(transactional_id, Transaction(time.monotonic()))
        partitions = self.topics[topic].partitions
        slots = partitions[partition if partition >= 0 else zlib.crc32(message.key or b"") % len(partitions)]
        slots.append(Slot(message, transaction))
        if not any(written is slots for written in transaction.partitions):
            transaction.partitions.append(slots)

    def end_transaction(self, transactional_id: str, state: str) -> bool:
        """End the open transaction with a marker in each partition; return whether there was one."""
        transaction = self._open.pop(transactional_id, None)
        if transaction:
            transaction.state = state
            for slots in transaction.partitions:
                slots.append(Slot(None, None))
        return transaction is not None

    def committed(self, topic: str, partition: int, start: int = 0, end: int | None = None) -> list[Received]:
        """Return the committed messages of a range without a fault."""
        self._partitions(topic)
        end = self._end(topic, partition, committed=True) if end is None else end
        visible = self.topics[topic].partitions[partition][start:end]
        return [s.message for s in visible if s.message and s.transaction and s.transaction.state == "committed"]

    def _partitions(self, topic: str) -> range:
        if topic not in self.topics:
            raise self.missing_topic_error(topic)
        return range(len(self.topics[topic].partitions))

    def _end(self, topic: str, partition: int, committed: bool) -> int:
        slots = self.topics[topic].partitions[partition]
        is_open = (n for n, slot in enumerate(slots) if slot.transaction and slot.transaction.state == "open")
        return next(is_open, len(slots)) if committed else len(slots)

    def expire(self) -> None:
        """Abort the transactions that are open for too long."""
        for id_, transaction in list(self._open.items()):
            if time.monotonic() - transaction.began >= TIMEOUT_SECONDS:
                self.fence(id_)


class MemoryProducer:
    """The methods of confluent_kafka.Producer that transactions use."""

    def __init__(self, kafka: MessageKafka, transactional_id: str):
        self._kafka, self._id, self._epoch, self._is_ended = kafka, transactional_id, 0, False

    def init_transactions(self) -> None:
        """Fence older producers off."""
        self._epoch = self._kafka.coordinate("init_transactions", lambda: self._kafka.fence(self._id))

    def begin_transaction(self) -> None:
        """Begin a transaction."""
        self._is_ended = False

    def produce(self, topic: str, message: Received, partition: int) -> None:
        """Send a message."""

        def produce() -> None:
            self._kafka.require_epoch(self._id, self._epoch)
            self._kafka.write(self._id, topic, message, partition)

        self._kafka.coordinate("produce", produce)

    def flush(self) -> int:
        """Return the number of messages that were not sent: `produce` sends each at once."""
        return 0

    def commit_transaction(self) -> None:
        """Commit the transaction."""
        self._kafka.coordinate("commit_transaction", lambda: self._end("committed"))

    def abort_transaction(self) -> None:
        """Abort the transaction.

        Raises:
            KafkaException: It was committed, although the response was lost.
        """
        self._kafka.coordinate("abort_transaction", lambda: self._end("aborted"))

    def _end(self, state: str) -> None:
        self._kafka.require_epoch(self._id, self._epoch)
        if self._is_ended:
            raise KafkaException(KafkaError(KafkaError.INVALID_TXN_STATE, "the transaction has ended"))
        self._kafka.end_transaction(self._id, state)
        self._is_ended = True
