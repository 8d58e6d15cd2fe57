"""The connection to a Spark Connect server: its channel, deadlines of all calls, retries, and its log messages.

PySpark sets no deadline on any call. A server that hangs, or a stage that waits for executors that never start, would
block a thread until the process ends. Work has no limit on its total time, because a large table may need hours, but on
the time without progress.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from weakref import WeakSet

import grpc
from pyspark.errors import PySparkException
from pyspark.sql.connect.client.core import DefaultChannelBuilder
from pyspark.sql.connect.client.retries import DefaultPolicy, RetryPolicyState

from lakehouse.core.errors import RequestRejected, Stalled, TransientError
from lakehouse.core.waiting import waiting_for

if TYPE_CHECKING:
    from pyspark.sql.connect.client import SparkConnectClient
    from pyspark.sql.connect.proto import ExecutePlanResponse


LOOPBACK = "127.0.0.1"


class Channel(DefaultChannelBuilder):
    """PySpark's channel, with loopback servers reached at 127.0.0.1 only.

    gRPC resolves `localhost` to [::1] first, where another user of the machine may listen for the token. PySpark itself
    sends a token without TLS only to a host spelled `localhost`.
    """

    def toChannel(self) -> grpc.Channel:  # noqa: N802  PySpark's name
        """Open the channel.

        The token is not part of the channel's credentials, as it is in PySpark: gRPC calls Python for those from a
        thread that holds a lock of the channel, while a thread that closes the channel waits for that lock and holds
        Python's. This stopped two processes for good.
        """
        is_loopback = not self.use_ssl and self.host in ("localhost", LOOPBACK)
        if is_loopback:
            self._host = LOOPBACK
            self.setChannelOption("grpc.enable_http_proxy", 0)
        if not self.secure:
            return self._insecure_channel(self.endpoint)
        credentials = grpc.local_channel_credentials() if is_loopback else grpc.ssl_channel_credentials()
        return self._secure_channel(self.endpoint, credentials)

    def metadata(self) -> Iterable[tuple[str, str]]:
        if self.token is None:
            return super().metadata()
        return [*super().metadata(), ("authorization", f"Bearer {self.token}")]


RESPONSE_SECONDS = 30
"""Limit for calls that do no work, such as settings and releases."""

LONG_CALLS = ("AnalyzePlan", "AddArtifacts")
"""Calls with one response that may last as long as work: the analysis of a query loads its tables."""


@dataclass(frozen=True)
class _Timeout(grpc.ClientCallDetails):
    """Call details with another time-out, in seconds."""

    timeout: float


@dataclass
class _Work:
    """The state of an operation: seconds since its last progress, and the progress of each stage."""

    idle_seconds: float = 0.0
    stages: tuple[tuple[int, int, int], ...] = ()
    tasks: str = "no stage has started"

    def record(self, response: ExecutePlanResponse) -> None:
        """Record a response; any one except an unchanged progress report counts as progress."""
        if response.HasField("execution_progress"):
            progress = response.execution_progress
            stages = tuple((s.stage_id, s.num_completed_tasks, s.input_bytes_read) for s in progress.stages)
            total, done = (sum(getattr(s, n) for s in progress.stages) for n in ("num_tasks", "num_completed_tasks"))
            self.tasks = f"{done:,} of {total:,} tasks done, {progress.num_inflight_tasks:,} running"
            if stages == self.stages:
                return
            self.stages = stages
        self.idle_seconds = 0.0


class Deadlines(grpc.UnaryUnaryClientInterceptor, grpc.UnaryStreamClientInterceptor, grpc.StreamUnaryClientInterceptor):
    """Deadlines for the calls of a channel to a Spark Connect server.

    An operation fails after `stall_seconds` in which no task finished, nothing was read and no result arrived. PySpark
    then releases it, and the server cancels the rest.
    """

    def __init__(self, where: str, stall_seconds: float):
        """
        Args:
            where: The server's address, for messages.
            stall_seconds: Maximum time without progress, in seconds.
        """
        self._where, self._stall_seconds = where, stall_seconds
        self._work: dict[str, _Work] = {}
        _CHANNELS.add(self)

    @property
    def operations(self) -> int:
        """The number of operations that have not ended."""
        return len(self._work)

    def intercept_unary_unary(self, continuation: Callable[..., Any], details: Any, request: Any) -> Any:
        """Limit a call with one request and one response."""
        method = details.method.rpartition("/")[2]
        seconds = self._stall_seconds if method in LONG_CALLS else min(self._stall_seconds, RESPONSE_SECONDS)
        with waiting_for("Spark"):
            call = continuation(_Timeout(seconds), request)
        if isinstance(call, grpc.RpcError) and _code(call) is grpc.StatusCode.DEADLINE_EXCEEDED:
            raise Stalled("Spark Connect", self._where, f"did not answer {method} within {seconds:g} s") from call
        return call

    intercept_stream_unary = intercept_unary_unary

    def intercept_unary_stream(self, continuation: Callable[..., Any], details: Any, request: Any) -> Any:
        """Limit the wait for an operation's next response; a reattached operation keeps its idle time."""
        work = self._work.setdefault(request.operation_id, _Work())
        # PySpark starts the call before it requests responses. A wait lasts at least a second; otherwise the rest of a
        # stall would be waited for in ever smaller pieces.
        call = continuation(_Timeout(max(1.0, self._stall_seconds - work.idle_seconds)), request)
        return self._responses(call, request.operation_id, work)

    def _responses(self, call: Any, operation: str, work: _Work) -> Iterator[Any]:
        """Yield an operation's responses; return early if the call timed out but the operation did not.

        PySpark reattaches when the responses end without a final one.
        """
        while True:
            started, error = time.monotonic(), None
            try:
                with waiting_for("Spark"):
                    response = next(call, None)
            except grpc.RpcError as caught:
                response, error = None, caught
            work.idle_seconds += time.monotonic() - started
            if response is not None:
                work.record(response)
            if error is not None and _code(error) is not grpc.StatusCode.DEADLINE_EXCEEDED:
                self._work.pop(operation, None)
                raise error
            if work.idle_seconds >= self._stall_seconds:
                self._work.pop(operation, None)
                call.cancel()
                problem = f"made no progress for {self._stall_seconds:g} s ({work.tasks})"
                raise Stalled("Spark Connect", self._where, problem) from error
            if response is None:
                return
            if response.HasField("result_complete"):
                self._work.pop(operation, None)
            yield response


_CHANNELS: WeakSet[Deadlines] = WeakSet()
"""The deadlines of all channels that are open."""


def operations_in_flight() -> int:
    """Return the number of operations of all sessions of this process that have not ended."""
    return sum(deadlines.operations for deadlines in [*_CHANNELS])


def _code(error: object) -> grpc.StatusCode | None:
    return error.code() if isinstance(error, grpc.Call) else None


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
        return _is_session_ended(e) or _is_refused(e) or super().can_retry(e)

    def to_state(self) -> RetryPolicyState:
        return _State(self)


class _State(RetryPolicyState):
    def __init__(self, policy: Retries):
        super().__init__(policy)
        self._where, self._client = policy.where, policy.client

    def next_attempt(self, exception: BaseException | None = None) -> int:
        if exception is not None and _is_session_ended(exception):
            _ENDED.add(self._client)
            raise TransientError(
                f"Spark Connect at {self._where} has ended this session: the server was restarted, or closed it",
                "The operation was cancelled, and nothing that it had not committed is kept",
                "Retry the run or command",
            ) from exception
        if _is_refused(exception):
            code = _code(exception)
            assert code is not None
            check = "the token in `spark.remote` (SPARK_REMOTE), with `=` in it written as %3D"
            raise RequestRejected("Spark Connect", self._where, f"the token ({code.name})", check) from exception
        wait_ms = super().next_attempt(exception)
        if wait_ms is None:
            symptom = "closed the connection, or refuses connections, and all retries failed"
            raise Stalled("Spark Connect", self._where, symptom) from exception
        return wait_ms


def _is_refused(error: object) -> bool:
    return _code(error) in (grpc.StatusCode.UNAUTHENTICATED, grpc.StatusCode.PERMISSION_DENIED)


def _is_session_ended(error: BaseException) -> bool:
    """Return whether the server does not know the session, or no longer, or has lost an operation that it had begun."""
    if isinstance(error, PySparkException):
        return error.getCondition() == "RESPONSE_ALREADY_RECEIVED"
    # SESSION_CHANGED, SESSION_CLOSED or SESSION_NOT_FOUND (Spark, error-conditions.json).
    return isinstance(error, grpc.Call) and (error.details() or "").startswith("[INVALID_HANDLE.SESSION_")


QUERY_LOGGERS = ("SQLQueryContextLogger", "DataFrameQueryContextLogger")
"""pyspark's loggers of failed queries (pyspark.errors.exceptions.base)."""


def silence_failed_queries() -> None:
    """Prevent pyspark from logging the texts of errors, which may quote values.

    The errors are raised as well, and their handlers decide which text to show.
    """
    from pyspark.logger import PySparkLogger
    from pyspark.sql.connect.logging import logger as client_logger

    for logger in (*map(PySparkLogger.getLogger, QUERY_LOGGERS), client_logger):
        # The client's logger is disabled by default, which Dagster undoes when it configures logging; a level persists.
        logger.setLevel(logging.CRITICAL + 1)
