"""Kafka transactions, in which all messages become visible or none."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from lakehouse.core.errors import LakehouseError, TransientError, Unreachable
from lakehouse.core.polling import poll
from resources.kafka.errors import POLL_SECONDS

if TYPE_CHECKING:
    from confluent_kafka import Producer

    from resources.kafka.messages import Headers
    from resources.protocols import KafkaClient

TIMEOUT_SECONDS = 300
"""Time after which Kafka aborts an open transaction; the brokers' default limit is 15 minutes."""

MAX_MESSAGES = 500_000
MAX_BYTES = 128_000_000
MAX_SECONDS = TIMEOUT_SECONDS / 5
"""Limits of one transaction, if the work can be divided."""

VISIBLE_SECONDS = 60
"""Maximum time until read_committed consumers see the end of a committed transaction."""

DEFAULT_LIMIT = 1_048_588
"""Default of a topic's max.message.bytes (Kafka, Topic configs)."""

BATCH_BYTES = 1_000_000
"""Maximum bytes of a batch of several messages (librdkafka, batch.size: its default)."""

OVERHEAD_BYTES = 512
"""Upper bound of the size of a batch with one message besides its key, value and headers."""


@dataclass(frozen=True)
class Outgoing:
    """A message to produce."""

    topic: str
    """The topic."""
    key: bytes | None
    """The key."""
    value: bytes | None
    """The value."""
    headers: Headers = ()
    """The headers."""
    partition: int = -1
    """The partition; -1 to partition by key."""
    source: tuple[int, int] | None = None
    """Partition and offset of the record that it was produced from, if any."""

    @property
    def size(self) -> int:
        """Approximate bytes of an uncompressed batch with only this message."""
        headers = sum(len(name.encode()) + len(value or b"") + 10 for name, value in self.headers)
        return len(self.key or b"") + len(self.value or b"") + headers + OVERHEAD_BYTES


def begin(kafka: KafkaClient, transactional_id: str, limit: int = DEFAULT_LIMIT) -> Producer:
    """Open a producer, which fences off an older process with the same id.

    Args:
        kafka: The cluster.
        transactional_id: The id.
        limit: The maximum bytes of a batch in the topic, which brokers also compare with batches of several messages.
    """
    settings = {"transaction_timeout_ms": TIMEOUT_SECONDS * 1000, "message_max_bytes": 1_000_000_000}
    producer = kafka.producer(transactional_id=transactional_id, batch_size=min(max(limit, 1), BATCH_BYTES), **settings)
    with kafka.translate_errors():
        producer.init_transactions()
    return producer


def message_limit(kafka: KafkaClient, topic: str) -> int:
    """Return the maximum bytes of a batch in the topic; Kafka's default without permission to read the setting."""
    return int(kafka.topic_setting(topic, "max.message.bytes") or DEFAULT_LIMIT)


def commit(
    kafka: KafkaClient, producer: Producer, messages: Iterable[Outgoing], topic_ids: Mapping[str, str] | None = None
) -> None:
    """Produce all messages or none, and return when readers see them.

    Args:
        kafka: The cluster.
        producer: The producer.
        messages: The messages. Producers name topics, and a topic of this name may have replaced the intended one.
        topic_ids: Ids by name of topics that the messages are intended for, which they must still have at the end.

    Raises:
        LakehouseError: The transaction was open for too long.
        TransientError: A topic has another id, or does not exist any more, or a newer process has replaced the
            producer. Nothing is visible.
        Unreachable: Kafka does not answer.
    """
    from confluent_kafka import KafkaError, KafkaException

    topics: dict[tuple[str, int | None], None] = {}
    started = time.monotonic()
    with kafka.translate_errors():
        producer.begin_transaction()
        try:
            for message in messages:
                topics[message.topic, message.partition if message.partition >= 0 else None] = None
                kafka.enqueue(producer, message.topic, message.key, message.value, message.headers, message.partition)
            if topic_ids:
                # Ids never return: what brokers have accepted before is in the topics with these ids, or in none.
                producer.flush()
                _require_topics(kafka, topic_ids)
            producer.commit_transaction()
        except BaseException as error:
            open_seconds, code = time.monotonic() - started, None
            if isinstance(error, KafkaException):
                code = error.args[0].code()
            if not (code and error.args[0].fatal()):
                producer.abort_transaction()
            expired = (KafkaError._FENCED, KafkaError.INVALID_PRODUCER_EPOCH, KafkaError._TIMED_OUT)
            if code in expired and open_seconds >= TIMEOUT_SECONDS:
                raise LakehouseError(
                    f"A transaction on topic '{next(iter(topics))[0]}' was open for {open_seconds:.0f} s, and Kafka "
                    f"aborts one after {TIMEOUT_SECONDS} s. None of its messages is visible. Set a lower "
                    f"'max_records_per_batch' on the topic in lakehouse.yaml, and check the load of the brokers"
                ) from error
            raise
    for topic, partition in topics:
        wait_until_visible(kafka, topic, partition)


def _require_topics(kafka: KafkaClient, topic_ids: Mapping[str, str]) -> None:
    """Require that topics still have their ids.

    Raises:
        TransientError: One has another id, or does not exist.
    """
    described = kafka.describe(list(topic_ids))
    for name, id_ in topic_ids.items():
        if name not in described or described[name].topic_id != id_:
            raise TransientError(
                f"Topic '{name}' was deleted, or deleted and created again, while messages were produced to it",
                "The transaction was aborted, and none of its messages is visible",
                "Retry the run or command, which creates the topic if it does not exist; a stream retries",
            )


def split(messages: Iterable[Outgoing]) -> Iterator[Iterator[Outgoing]]:
    """Split messages into parts for several transactions, each of limited number, bytes and time.

    Each part must be consumed before the next one. There is at least one, which may be empty.
    """
    source = iter(messages)
    following = next(source, None)

    def part() -> Iterator[Outgoing]:
        nonlocal following
        count, size, started = 0, 0, time.monotonic()
        while following is not None:
            count, size = count + 1, size + following.size
            yield following
            following = next(source, None)
            if count >= MAX_MESSAGES or size >= MAX_BYTES or time.monotonic() - started >= MAX_SECONDS:
                return

    yield part()
    while following is not None:
        yield part()


def wait_until_visible(kafka: KafkaClient, topic: str, partition: int | None = None) -> None:
    """Wait until read_committed consumers see the end of the log, since commit markers follow the commit's response.

    Args:
        kafka: The cluster.
        topic: The topic.
        partition: The only partition to wait for; all if None.
    """
    written = kafka.offsets([topic], committed=False)[topic]
    awaited = written if partition is None else [partition]

    def is_visible() -> bool:
        offsets = kafka.offsets([topic])[topic]
        return all(offsets[p].end >= written[p].end for p in awaited)

    if not poll(is_visible, pause=POLL_SECONDS, deadline_seconds=VISIBLE_SECONDS):
        raise Unreachable("Kafka", kafka.servers, f"open transactions on topic '{topic}'", "commit not visible")
