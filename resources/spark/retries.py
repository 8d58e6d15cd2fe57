"""Retries of calls to a Spark Connect server whose connection was lost, and the detection of sessions that it lost."""

from __future__ import annotations

from typing import TYPE_CHECKING
from weakref import WeakSet

import grpc
from pyspark.errors import PySparkException
from pyspark.sql.connect.client.retries import DefaultPolicy, RetryPolicyState

from lakehouse.core.errors import Stalled, TransientError

if TYPE_CHECKING:
    from pyspark.sql.connect.client import SparkConnectClient

RETRIES, MAX_WAIT_MS = 6, 10_000
"""About half a minute in total: the first pause is 50 ms, and each further one four times as long."""

_ENDED: WeakSet[SparkConnectClient] = WeakSet()
"""Clients whose session the server has ended.

They are marked as closed only when they are replaced: a call of PySpark's own threads may notice the end first, and
PySpark would raise one of its errors, like those for failed work, in the thread that uses the session.
"""


def is_ended(client: SparkConnectClient) -> bool:
    """Return whether a call has noticed that the server has ended the session of a client."""
    return client in _ENDED


class Retries(DefaultPolicy):
    """PySpark's retries, with errors of the project after the last one and for a session that the server has ended.

    By default the client retries for ten minutes, even when it closes the session of a lost server, and then raises a
    PySparkException like those for failed work. It raises such an exception for an ended session, too.
    """

    def __init__(self, where: str, client: SparkConnectClient):
        """
        Args:
            where: The server's address, for messages.
            client: The client of the session.
        """
        super().__init__(max_retries=RETRIES, max_backoff=MAX_WAIT_MS)
        self.where, self.client = where, client

    def can_retry(self, e: BaseException) -> bool:
        """Return whether the state of the retries decides about an error."""
        return _is_session_ended(e) or super().can_retry(e)

    def to_state(self) -> RetryPolicyState:
        """Return the state of the retries of one call."""
        return _State(self)


class _State(RetryPolicyState):
    def __init__(self, policy: Retries):
        super().__init__(policy)
        self._where, self._client = policy.where, policy.client

    def next_attempt(self, exception: BaseException | None = None) -> int:
        """Return the pause before the next attempt, in milliseconds.

        Raises:
            Stalled: The last attempt failed.
            TransientError: The server has ended the session.
        """
        if exception is not None and _is_session_ended(exception):
            _ENDED.add(self._client)
            raise TransientError(
                f"Spark Connect at {self._where} has ended this session: the server was restarted, or closed it",
                "The operation was cancelled, and nothing that it had not committed is kept",
                "Retry the run or command",
            ) from exception
        wait_ms = super().next_attempt(exception)
        if wait_ms is None:
            symptom = "closed the connection, or refuses connections, and all retries failed"
            raise Stalled("Spark Connect", self._where, symptom) from exception
        return wait_ms


def _is_session_ended(error: BaseException) -> bool:
    """Return whether the server does not know the session, or no longer, or has lost an operation that it had begun."""
    if isinstance(error, PySparkException):
        return error.getCondition() == "RESPONSE_ALREADY_RECEIVED"
    # SESSION_CHANGED, SESSION_CLOSED or SESSION_NOT_FOUND (Spark, error-conditions.json).
    return isinstance(error, grpc.Call) and (error.details() or "").startswith("[INVALID_HANDLE.SESSION_")
