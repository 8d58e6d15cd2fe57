"""Transactions of Kafka: all messages of one become visible, or none does."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from lakehouse.core.errors import LakehouseError, Unreachable
from lakehouse.core.polling import poll
from resources.election import POLL_SECONDS

if TYPE_CHECKING:
    from confluent_kafka import Producer

    from resources.kafka import Headers, Kafka

SECONDS = 300
"""After so long Kafka aborts a transaction that is still open; its own limit is 15 minutes."""

MOST_MESSAGES = 500_000
MOST_BYTES = 128_000_000
MOST_SECONDS = SECONDS / 5
"""Of one transaction, where the work can be divided."""

SETTLE_SECONDS = 60
"""How long a committed transaction may take until read_committed consumers see its end."""

DEFAULT_LIMIT = 1_048_588
"""Of a topic's max.message.bytes (Kafka, Topic configs)."""

OVERHEAD_BYTES = 512
"""What a batch of one message has besides its key, value and headers, and to spare."""


@dataclass(frozen=True)
class Outgoing:
    """A message to be produced; without a partition, the key chooses it. `place` is the partition and offset of the
    record that it was made of, where there is one."""

    topic: str
    key: bytes | None
    value: bytes | None
    headers: Headers = ()
    partition: int = -1
    place: tuple[int, int] | None = None

    @property
    def size(self) -> int:
        """Bytes of a batch with this message alone, uncompressed, or somewhat less."""
        headers = sum(len(name) + len(value or b"") + 10 for name, value in self.headers)
        return len(self.key or b"") + len(self.value or b"") + headers + OVERHEAD_BYTES


def begin(kafka: Kafka, transactional_id: str) -> Producer:
    """Open a producer. From here on, an older process with this id is fenced off and can produce nothing.

    Raises: Unreachable.
    """
    settings = {"transaction_timeout_ms": SECONDS * 1000, "message_max_bytes": 1_000_000_000}
    producer = kafka.producer(transactional_id=transactional_id, **settings)
    with kafka.explained():
        producer.init_transactions()
    return producer


def message_limit(kafka: Kafka, topic: str) -> int:
    """How many bytes a batch of the topic may have; Kafka's default where the key may not see the setting.

    Raises: Unreachable.
    """
    return int(kafka.topic_setting(topic, "max.message.bytes") or DEFAULT_LIMIT)


def commit(kafka: Kafka, producer: Producer, messages: Iterable[Outgoing]) -> None:
    """Produce all messages or none; returns when readers see them.

    Raises:
        Unreachable: Kafka does not answer.
        UnclearState: A newer process took over.
        LakehouseError: The transaction was open for too long.
    """
    from confluent_kafka import KafkaError, KafkaException

    topics, began = set(), time.monotonic()
    with kafka.explained():
        producer.begin_transaction()
        try:
            for message in messages:
                topics.add((message.topic, message.partition if message.partition >= 0 else None))
                kafka.enqueue(producer, message.topic, message.key, message.value, message.headers, message.partition)
            producer.commit_transaction()
        except BaseException as error:
            open_seconds, code = time.monotonic() - began, None
            if isinstance(error, KafkaException):
                code = error.args[0].code()
            if not (code and error.args[0].fatal()):
                producer.abort_transaction()
            ended = (KafkaError._FENCED, KafkaError.INVALID_PRODUCER_EPOCH, KafkaError._TIMED_OUT)
            if code in ended and open_seconds >= SECONDS:
                raise LakehouseError(
                    f"A transaction on topic '{next(iter(topics))[0]}' was open for {open_seconds:.0f} s, and Kafka "
                    f"aborts one after {SECONDS} s. None of its messages is visible. Set a lower "
                    f"'max_records_per_batch' on the topic in lakehouse.yaml, and check the load of the brokers"
                ) from error
            raise
    for topic, partition in topics:
        settle(kafka, topic, partition)


def parts(messages: Iterable[Outgoing]) -> Iterator[Iterator[Outgoing]]:
    """Divide messages for several transactions, each of bounded number, bytes and time.

    Each part has to be used up before the next; there is at least one, and it may be empty.
    """
    source = iter(messages)
    following = next(source, None)

    def part() -> Iterator[Outgoing]:
        nonlocal following
        count, size, began = 0, 0, time.monotonic()
        while following is not None:
            count, size = count + 1, size + following.size
            yield following
            following = next(source, None)
            if count >= MOST_MESSAGES or size >= MOST_BYTES or time.monotonic() - began >= MOST_SECONDS:
                return

    yield part()
    while following is not None:
        yield part()


def settle(kafka: Kafka, topic: str, partition: int | None = None) -> None:
    """Wait until read_committed consumers see the end of the log: commit markers come after the answer.

    Parameters: `partition` is the only one to wait for.
    Raises: Unreachable when a transaction stays open.
    """
    written = kafka.offsets([topic], committed=False)[topic]
    awaited = written if partition is None else [partition]

    def is_visible() -> bool:
        offsets = kafka.offsets([topic])[topic]
        return all(offsets[p].end >= written[p].end for p in awaited)

    if not poll(is_visible, pause=POLL_SECONDS, deadline_seconds=SETTLE_SECONDS):
        raise Unreachable("Kafka", kafka.servers, f"open transactions on topic '{topic}'", "commit not visible")
