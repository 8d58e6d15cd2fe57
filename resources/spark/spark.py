"""A client of Spark through Spark Connect, which needs no JVM in this process.

Kinds of servers (servers.py) differ in how their address is known, and derive from `Spark`.
"""

from __future__ import annotations

import os
import socket
import threading
import time
from abc import abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Self
from urllib.parse import urlsplit

import dagster as dg
from pydantic import Field, PrivateAttr

from lakehouse.core.errors import ClockSkew, RequestRejected, Stalled, Unreachable
from resources.iceberg.commits import require_spark_clock

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.connect.shell.progress import StageInfo

    from resources.spark.connection import Channel


TIMEOUT_SECONDS = 10
PROGRESS_SECONDS = 10
"""Minimum time between two progress messages."""

# Matches a quoted value with escaped quotes, or a word. Spark prints plans as Protobuf text, with a backslash before
# each quote and backslash: after `\\"`, everything up to the end of the enclosing text is redacted. The text of a long
# option ends within a key.
REDACTION = {
    "spark.sql.redaction.string.regex": r"""(?is)(?:password|secret|token)\s*=\s*\\*"""
    r"""(?:"[^"\\]*+(?:\\.[^"\\]*+)*+|'[^'\\]*+(?:\\.[^'\\]*+)*+|[^\s;"'\\]++)"""
    r"""|-----BEGIN [A-Z ]*PRIVATE KEY-----[A-Z0-9+/=\s\\-]*+""",
    "spark.sql.redaction.options.regex": "(?i)url|secret|password|token|credential|jaas|keystore[.]key",
}
"""Redaction in Spark's plans, events and UI: the options of the Kafka source contain passwords and keys."""

PLANNING = {
    # Spark infers further conditions from each filter, once for each renamed column: with 300 columns and a check of
    # each, planning one batch took two minutes. Nothing here depends on inferred conditions.
    "spark.sql.constraintPropagation.enabled": "false",
    # Each level of maps within maps takes about eight iterations of the analyzer, whose default limit is 100.
    "spark.sql.analyzer.maxIterations": "1000",
    # Limits the plan texts in Spark's UI, which otherwise include all checks of a wide table.
    "spark.sql.ui.explainMode": "simple",
}
"""Settings of query planning."""

_SHARED: dict[str, Any] = {}
"""The sessions that the resources of this process share, by address. PySpark's builder would return the session of
another server, too."""
_LOCK = threading.Lock()


class Progress:
    """Progress messages of an operation (PySpark, SparkSession.registerProgressHandler)."""

    def __init__(self, report: Callable[[str], None]):
        """
        Args:
            report: Receives a message at most every PROGRESS_SECONDS.
        """
        self.report, self.last_report = report, time.monotonic()

    def __call__(self, stages: Iterable[StageInfo] | None, inflight_tasks: int, operation_id: str, done: bool) -> None:
        now, known = time.monotonic(), list(stages or ())
        if done or not known or now - self.last_report < PROGRESS_SECONDS:
            return
        self.last_report = now
        tasks, completed = (sum(getattr(s, name) for s in known) for name in ("num_tasks", "num_completed_tasks"))
        megabytes = sum(stage.num_bytes_read for stage in known) / 1_000_000
        self.report(
            f"Spark: {completed:,} of {tasks:,} tasks done, {inflight_tasks:,} running, {megabytes:,.0f} MB read"
        )


@dataclass(frozen=True)
class AwsRight:
    """Actions in AWS that opening a session requires."""

    actions: tuple[str, ...]
    """Such as `emr-serverless:GetSessionEndpoint`."""
    resources: tuple[str, ...]
    """The ARNs of what they are allowed on."""


class Spark(dg.ConfigurableResource):
    """A Spark Connect server. The fields of its kind are the keys of `spark` in an environment."""

    name: ClassVar[str]
    """The kind's `type` in lakehouse.yaml."""

    address_check: ClassVar[str]
    """What to check if the address is invalid, for messages."""

    engine: ClassVar[str] = "spark.engine:SparkEngines"

    type: str = Field("connect", description="`connect`, or a type of another distribution.")

    stall_seconds: int = Field(
        600, ge=1, description="Seconds without progress (no task ends) after which an operation is cancelled."
    )

    native: Literal["auto", "off", "require"] = Field(
        "auto",
        description="Whether executors use the compiled decoder (docs/native.md): `auto` if they have it, `off`, or "
        "`require`, which refuses batches that it supports if executors lack it.",
    )

    _session: SparkSession | None = PrivateAttr(default=None)
    _settings: dict[str, str] = PrivateAttr(default_factory=dict)
    _report: Callable[[str], None] | None = PrivateAttr(default=None)
    _shared: bool = PrivateAttr(default=True)

    @abstractmethod
    def address(self) -> str:
        """Return the address for a new session, with the login, as `sc://host:port/;use_ssl=true;token=…`."""

    @classmethod
    def aws_rights(cls, account: str, region: str) -> Sequence[AwsRight]:
        """Return what the role of ingestion in a deployment is allowed, so that it can open sessions.

        A kind that has a field `role_arn` gets the role's ARN.

        Args:
            account: The id of the deployment's account.
            region: Its region.
        """
        return ()

    def with_own_session(self) -> Self:
        """Return a resource for the same server with its own session, for use by another thread.

        A session's settings apply to all of its operations, so threads with different settings cannot share one.
        """
        other = type(self)(**{name: getattr(self, name) for name in type(self).model_fields})
        other._shared, other._report = False, self._report
        return other

    def on_progress(self, report: Callable[[str], None]) -> None:
        """Report the progress of long operations of this resource's next session."""
        self._report = report

    def session(self, settings: Mapping[str, str]) -> SparkSession:
        """Return the session of this run with `settings` applied, opened on first use and closed with the run.

        Raises:
            ClockSkew: The server's clock differs from this machine's.
        """
        # The resources of a process share the session of a server, which another resource's run may have closed.
        if self._session is None or _is_over(self._session):
            self._session, self._settings = self._connect(), {}
            try:
                require_spark_clock(self._session)
            except ClockSkew:
                self.close()
                raise
        # Each setting is a round trip, and usually all are unchanged since the first batch of a run.
        for key, value in settings.items():
            if self._settings.get(key) != value:
                self._session.conf.set(key, value)
                self._settings[key] = value
        # PySpark binds the result of a checkpoint to the thread's active session, which may be another one, or none.
        type(self._session)._active_session.session = self._session  # type: ignore[attr-defined]  # of Spark Connect
        return self._session

    def _connect(self) -> SparkSession:
        from dagster_pyspark import LazyPySparkResource
        from pyspark.errors import PySparkException
        from pyspark.sql.connect.session import SparkSession

        from resources.spark.connection import Deadlines, Retries, silence_failed_queries

        address = self.address()
        channel = self._channel(address)
        where = channel.endpoint
        host, _, port = where.rpartition(":")
        check = "that the server is up (`lakehouse status`), and its address"
        silence_failed_queries()
        # PySpark closes a collected session in whichever thread collects garbage. That thread may hold the lock of a
        # channel for which the closing waits. Here, sessions are closed by `close`.
        if hasattr(SparkSession, "__del__"):
            del SparkSession.__del__
        session: Any = None  # PySpark annotates the base class of its two kinds of session
        try:
            socket.create_connection((host.strip("[]"), int(port)), TIMEOUT_SECONDS).close()
            channel.add_interceptor(Deadlines(where, self.stall_seconds))
            # PySpark's other builder, which accepts no channel, sets this too: functions then create expressions of
            # Spark Connect.
            os.environ["SPARK_CONNECT_MODE_ENABLED"] = "1"
            builder = SparkSession.builder.channelBuilder(channel)
            if self._shared:
                with _LOCK:
                    session = _SHARED.get(where)
                    if session is None or _is_over(session):
                        session = _SHARED[where] = builder.create()
                # dagster-pyspark accepts no channel, but uses the active session of this thread.
                SparkSession._active_session.session = session
                session = LazyPySparkResource(spark_config={"spark.remote": address}).spark_session
            else:
                session = builder.create()
            session.client.set_retry_policies([Retries(where, session.client)])
            if self._report:
                handler: Any = Progress(self._report)  # PySpark's type has the same parameters by keyword only
                session.registerProgressHandler(handler)
            for name, setting in (REDACTION | PLANNING).items():
                session.conf.set(name, setting)
            session.version  # noqa: B018  the session is lazy: this is the first round trip
            return session
        except (OSError, PySparkException, Stalled, RequestRejected) as error:
            if session is not None:
                # Otherwise the process waits for this server again when it ends.
                session.client.close()
            if isinstance(error, RequestRejected):
                raise
            cause = error.symptom if isinstance(error, Stalled) else error
            raise Unreachable("Spark Connect", where, check, cause) from error

    def _channel(self, address: str) -> Channel:
        from pyspark.errors import PySparkException

        from resources.spark.connection import Channel

        with suppress(PySparkException, ValueError):
            return Channel(address)
        # Raised outside of the handler of PySpark's error, which quotes the token: Dagster stores causes.
        host = urlsplit(address.partition(";")[0]).netloc.rpartition("@")[2]
        problem = "PySpark cannot parse the address"
        raise Unreachable("Spark Connect", host or "its address", self.address_check, problem)

    def teardown_after_execution(self, context: dg.InitResourceContext) -> None:
        """Release the session on the server."""
        self.close()

    def close(self) -> None:
        """End the session, if there is one. The next use opens a new one."""
        if self._session is not None:
            self._session.stop()
            self._session = None


def _is_over(session: Any) -> bool:
    """Return whether a session was closed, as by another resource's run, or ended by the server."""
    from resources.spark.connection import is_ended

    if is_ended(session.client):
        # Otherwise PySpark sends it another request when the process ends.
        session.client._closed = True
    return bool(session.is_stopped)
