"""Deadlines for all calls to a Spark Connect server.

PySpark sets no deadline on any call. A server that hangs, or a stage that waits for executors that never start, would
block a thread until the process ends. Work has no limit on its total time, because a large table may need hours, but on
the time without progress.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import grpc

from lakehouse.core.errors import Stalled

if TYPE_CHECKING:
    from pyspark.sql.connect.proto import ExecutePlanResponse

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

    def intercept_unary_unary(self, continuation: Callable[..., Any], details: Any, request: Any) -> Any:
        """Limit a call with one request and one response.

        Raises:
            Stalled: No response arrived in time.
        """
        method = details.method.rpartition("/")[2]
        seconds = self._stall_seconds if method in LONG_CALLS else min(self._stall_seconds, RESPONSE_SECONDS)
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

        Raises:
            Stalled: The operation made no progress.
        """
        while True:
            started, error = time.monotonic(), None
            try:
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


def _code(error: object) -> grpc.StatusCode | None:
    return error.code() if isinstance(error, grpc.Call) else None
