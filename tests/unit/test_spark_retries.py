"""Errors of a session that the Spark Connect server has ended."""

import pytest
from pyspark.errors import PySparkRuntimeError

from lakehouse.core.errors import TransientError
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
