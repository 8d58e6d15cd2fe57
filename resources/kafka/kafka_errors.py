"""Translation of errors of Kafka's clients."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lakehouse.core.errors import LakehouseError, TransientError, Unreachable
from resources.kafka.kafka_retry import election_errors

if TYPE_CHECKING:
    from confluent_kafka import KafkaException


def to_error(error: KafkaException, servers: str) -> LakehouseError | None:
    """Translate an error of a Kafka client; None for any other than a lost connection, permission or transaction.

    Args:
        error: The client's error.
        servers: Addresses of the brokers.
    """
    from confluent_kafka import KafkaError

    unreachable = (
        KafkaError._TRANSPORT,
        KafkaError._ALL_BROKERS_DOWN,
        KafkaError._TIMED_OUT,
        KafkaError._RESOLVE,
        KafkaError._AUTHENTICATION,
        KafkaError.REQUEST_TIMED_OUT,
        *election_errors(),
    )
    refused = (
        KafkaError.TOPIC_AUTHORIZATION_FAILED,
        KafkaError.GROUP_AUTHORIZATION_FAILED,
        KafkaError.CLUSTER_AUTHORIZATION_FAILED,
    )
    cause = error.args[0]
    if cause.code() == KafkaError._FENCED:
        return TransientError(
            "A newer process replaced this producer, whose transaction was aborted",
            "Nothing of it is visible",
            "Retry the run or command if the other process failed; a stream retries",
        )
    if cause.code() in unreachable:
        check = "that the broker is up (`lakehouse status`), the address, and the API key"
        return Unreachable("Kafka", servers, check, cause.str())
    if cause.code() in refused:
        return LakehouseError(
            f"Kafka at {servers} refuses: {cause.str()}. The call changed nothing. Grant the permission to the user or "
            f"API key"
        )
    return None
