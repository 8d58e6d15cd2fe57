"""Errors of a session that the Spark Connect server has ended."""

import grpc
import pytest
from pyspark.errors import PySparkRuntimeError

from lakehouse.core.errors import RequestRejected, TransientError, is_transient
from resources.spark.connection import Retries, is_ended

LOST = PySparkRuntimeError(
    errorClass="RESPONSE_ALREADY_RECEIVED", messageParameters={"error_type": "INVALID_HANDLE.SESSION_NOT_FOUND"}
)
FAILED = PySparkRuntimeError(errorClass="CANNOT_PARSE_DATATYPE", messageParameters={"msg": "x"})


class Client:
    """Stands for PySpark's client, which the retries only remember."""


def test_retries_lost_operation_is_an_error_of_the_project():
    """A restarted server does not know an operation of which responses were received."""
    client = Client()
    retries = Retries("localhost:1", client)
    assert retries.can_retry(LOST) and not is_ended(client)
    with pytest.raises(TransientError, match="localhost:1 has ended this session"):
        retries.to_state().next_attempt(LOST)
    assert is_ended(client)


def test_retries_other_error_of_pyspark_is_not_retried():
    assert not Retries("localhost:1", Client()).can_retry(FAILED)


class Refusal(grpc.RpcError, grpc.Call):
    """A response of a server that refuses the token."""

    def code(self):
        return grpc.StatusCode.UNAUTHENTICATED

    def details(self):
        return "Invalid authentication token"


Refusal.__abstractmethods__ = frozenset()


def test_refused_token_is_not_an_outage_and_not_retried():
    retries = Retries("localhost:1", Client())
    assert retries.can_retry(Refusal())
    with pytest.raises(RequestRejected, match=r"localhost:1\) refused the token \(UNAUTHENTICATED\)") as raised:
        retries.to_state().next_attempt(Refusal())
    assert not is_transient(raised.value)
