"""Deadlines for everything that is asked of a Spark Connect server: none of it may wait for ever.

PySpark sets no deadline on any call. A server that is hung, and a stage that waits for executors that never come, would
hold a thread until the process ends. Work has no limit in all, because a large table may take hours: it has one on how
long nothing happens.
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

ANSWER_SECONDS = 30
"""The most that a call may take which does no work: settings, releases."""

WORKS = ("AnalyzePlan", "AddArtifacts")
"""Calls with one answer that may take as long as work does: to analyze a query, its tables are loaded."""


@dataclass(frozen=True)
class _Timeout(grpc.ClientCallDetails):
    """Replaces the deadline of a call, in seconds, and nothing else of it."""

    timeout: float


@dataclass
class _Work:
    """What is known of an operation: the seconds waited since it last progressed, and how far each stage was."""

    waited: float = 0.0
    stages: tuple[tuple[int, int, int], ...] = ()
    tasks: str = "no stage has begun"

    def note(self, response: ExecutePlanResponse) -> None:
        """Take up what the server sent; anything but a repeated report of the same numbers is progress."""
        if response.HasField("execution_progress"):
            progress = response.execution_progress
            stages = tuple((s.stage_id, s.num_completed_tasks, s.input_bytes_read) for s in progress.stages)
            total, done = (sum(getattr(s, n) for s in progress.stages) for n in ("num_tasks", "num_completed_tasks"))
            self.tasks = f"{done:,} of {total:,} tasks done, {progress.num_inflight_tasks:,} running"
            if stages == self.stages:
                return
            self.stages = stages
        self.waited = 0.0


class Deadlines(grpc.UnaryUnaryClientInterceptor, grpc.UnaryStreamClientInterceptor, grpc.StreamUnaryClientInterceptor):
    """Bounds each call of a channel to a Spark Connect server.

    An operation fails once `stall_seconds` have passed in which no task of it finished, nothing was read and no result
    came. PySpark then releases it, and the server cancels what is left of it.
    """

    def __init__(self, where: str, stall_seconds: float):
        """
        Args:
            where: The server's address, for messages.
            stall_seconds: How long work may make no progress, in seconds.
        """
        self._where, self._stall_seconds = where, stall_seconds
        self._work: dict[str, _Work] = {}

    def intercept_unary_unary(self, continuation: Callable[..., Any], details: Any, request: Any) -> Any:
        """Bound a call with one request and one answer.

        Raises:
            Stalled: No answer came in time.
        """
        method = details.method.rpartition("/")[2]
        seconds = self._stall_seconds if method in WORKS else min(self._stall_seconds, ANSWER_SECONDS)
        call = continuation(_Timeout(seconds), request)
        if isinstance(call, grpc.RpcError) and _code(call) is grpc.StatusCode.DEADLINE_EXCEEDED:
            raise Stalled("Spark Connect", self._where, f"did not answer {method} within {seconds:g} s") from call
        return call

    intercept_stream_unary = intercept_unary_unary

    def intercept_unary_stream(self, continuation: Callable[..., Any], details: Any, request: Any) -> Any:
        """Bound the wait for an operation's next response; a reattached operation goes on with the same clock."""
        work = self._work.setdefault(request.operation_id, _Work())
        # PySpark starts the call before it asks for responses. A wait is never shorter than a second, or the rest
        # of a stall would be waited for in ever smaller pieces.
        call = continuation(_Timeout(max(1.0, self._stall_seconds - work.waited)), request)
        return self._responses(call, request.operation_id, work)

    def _responses(self, call: Any, operation: str, work: _Work) -> Iterator[Any]:
        """Yield an operation's responses; ends early where its call ran out of time but the operation did not.

        PySpark takes an end without a final response as a reason to reattach.

        Raises:
            Stalled: The operation made no progress.
        """
        while True:
            began, error = time.monotonic(), None
            try:
                response = next(call, None)
            except grpc.RpcError as caught:
                response, error = None, caught
            work.waited += time.monotonic() - began
            if response is not None:
                work.note(response)
            if error is not None and _code(error) is not grpc.StatusCode.DEADLINE_EXCEEDED:
                self._work.pop(operation, None)
                raise error
            if work.waited >= self._stall_seconds:
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
