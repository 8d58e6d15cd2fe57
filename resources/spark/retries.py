"""Retries of calls to a Spark Connect server whose connection was lost."""

from __future__ import annotations

from pyspark.sql.connect.client.retries import DefaultPolicy, RetryPolicyState

from lakehouse.core.errors import Stalled

RETRIES, MAX_WAIT_MS = 6, 10_000
"""About half a minute in total: the first pause is 50 ms, and each further one four times as long."""


class Retries(DefaultPolicy):
    """PySpark's retries, with an error of the project after the last one.

    By default the client retries for ten minutes, even when it closes the session of a lost server, and then raises a
    PySparkException like those for failed work.
    """

    def __init__(self, where: str):
        """
        Args:
            where: The server's address, for messages.
        """
        super().__init__(max_retries=RETRIES, max_backoff=MAX_WAIT_MS)
        self.where = where

    def to_state(self) -> RetryPolicyState:
        """Return the state of the retries of one call."""
        return _State(self)


class _State(RetryPolicyState):
    def __init__(self, policy: Retries):
        super().__init__(policy)
        self._where = policy.where

    def next_attempt(self, exception: BaseException | None = None) -> int:
        """Return the pause before the next attempt, in milliseconds.

        Raises:
            Stalled: The last attempt failed.
        """
        wait_ms = super().next_attempt(exception)
        if wait_ms is None:
            symptom = "closed the connection, or refuses connections, and all retries failed"
            raise Stalled("Spark Connect", self._where, symptom) from exception
        return wait_ms
