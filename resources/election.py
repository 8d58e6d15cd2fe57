"""Kafka while it elects: a leader of a partition, or the coordinator of a group, is not there for a moment."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from lakehouse.core.polling import retry

TIMEOUT_SECONDS = 10
POLL_SECONDS = 0.05

Answer = TypeVar("Answer")


def electing() -> tuple[int, ...]:
    """What brokers say for a moment of a topic or group that was just made, or after one of them came back."""
    from confluent_kafka import KafkaError

    return (
        KafkaError.NOT_LEADER_FOR_PARTITION,
        KafkaError.LEADER_NOT_AVAILABLE,
        KafkaError.UNKNOWN_LEADER_EPOCH,
        KafkaError.NOT_COORDINATOR,
        KafkaError.COORDINATOR_NOT_AVAILABLE,
        KafkaError.COORDINATOR_LOAD_IN_PROGRESS,
    )


def when_elected(ask: Callable[[], Answer]) -> Answer:
    """The answer of the broker that leads or coordinates, once there is one.

    Raises: KafkaException when there is none within TIMEOUT_SECONDS, and for every other reason at once.
    """
    from confluent_kafka import KafkaException

    def is_electing(error: BaseException) -> bool:
        return isinstance(error, KafkaException) and error.args[0].code() in electing()

    return retry(ask, when=is_electing, pause=POLL_SECONDS, deadline_seconds=TIMEOUT_SECONDS)
