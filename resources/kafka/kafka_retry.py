"""Retries for the short time in which a partition leader or group coordinator is being elected."""

from collections.abc import Callable
from typing import TypeVar

from lakehouse.core.polling import retry

TIMEOUT_SECONDS = 10
LOGIN_SECONDS = 60
"""Interval at which a client that lives long gets the login that a secret has now."""
POLL_SECONDS = 0.05

Result = TypeVar("Result")


def election_errors() -> tuple[int, ...]:
    """Return the error codes of brokers just after a topic or group was created, or after a broker restarted."""
    from confluent_kafka import KafkaError

    return (
        KafkaError.NOT_LEADER_FOR_PARTITION,
        KafkaError.LEADER_NOT_AVAILABLE,
        KafkaError.UNKNOWN_LEADER_EPOCH,
        KafkaError.NOT_COORDINATOR,
        KafkaError.COORDINATOR_NOT_AVAILABLE,
        KafkaError.COORDINATOR_LOAD_IN_PROGRESS,
    )


def retry_during_election(request: Callable[[], Result]) -> Result:
    """Return the result of a request, retrying while no broker leads or coordinates.

    Raises:
        KafkaException: An election did not end within TIMEOUT_SECONDS, or the request failed for any other reason.
    """
    from confluent_kafka import KafkaException

    def is_electing(error: BaseException) -> bool:
        return isinstance(error, KafkaException) and error.args[0].code() in election_errors()

    return retry(request, when=is_electing, pause=POLL_SECONDS, deadline_seconds=TIMEOUT_SECONDS)
