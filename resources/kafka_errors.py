"""Errors of Kafka's clients: whether nobody answers, a right is missing, or a newer producer took over."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lakehouse.core.errors import LakehouseError, UnclearState, Unreachable
from resources.election import electing

if TYPE_CHECKING:
    from confluent_kafka import KafkaException


def error_of(error: KafkaException, servers: str) -> LakehouseError | None:
    """Return what an error of a client means for the caller; None where it means nothing known.

    Args:
        error: The client's error.
        servers: The addresses that were tried.
    """
    from confluent_kafka import KafkaError

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
    cause = error.args[0]
    if cause.code() == KafkaError._FENCED:
        return UnclearState("A newer process took over this producer; its transaction stands, not this one")
    if cause.code() in silent:
        check = "that the broker is up (`lakehouse status`), the address, and the API key"
        return Unreachable("Kafka", servers, check, cause.str())
    if cause.code() in refused:
        return LakehouseError(
            f"Kafka at {servers} refuses: {cause.str()}. Nothing was changed. Grant it to the API key"
        )
    return None
