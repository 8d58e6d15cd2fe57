"""Spark, reached through Spark Connect: a warm engine somewhere else, and no JVM in this process."""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import dagster as dg
from pydantic import Field, PrivateAttr

from lakehouse.core.errors import ClockSkew, Stalled, Unreachable
from resources.clocks import require_clock_of
from resources.hidden import hidden
from resources.spark_logs import silence_failed_queries

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.connect.shell.progress import StageInfo

    from resources.spark_channel import Channel


TIMEOUT_SECONDS = 10
TELL_SECONDS = 10
RETRIES, MAX_WAIT_MS = 6, 10_000
"""About half a minute: the client waits 50 ms, then four times as long each time."""

# A value in quotes, whose own quotes are escaped, or a word. Spark prints plans as Protobuf text, which puts a
# backslash before each quote and backslash: what follows `\\"` is hidden up to the end of the enclosing text.
REDACTION = {
    "spark.sql.redaction.string.regex": r"""(?is)(?:password|secret|token)\s*=\s*\\*"""
    r"""(?:"[^"\\]*+(?:\\.[^"\\]*+)*+|'[^'\\]*+(?:\\.[^'\\]*+)*+|[^\s;"'\\]++)""",
    "spark.sql.redaction.options.regex": "(?i)url|secret|password|token|credential|jaas",
}
"""What plans, events and the UI of Spark do not show: passwords in the options of the Kafka source."""

PLANNING = {
    # Spark derives further conditions from each filter, once for each column that is renamed: of 300 columns with a
    # check each it took two minutes to plan one batch. Nothing here relies on conditions that are not written down.
    "spark.sql.constraintPropagation.enabled": "false",
    # The text of each plan that Spark's UI shows, which is all of a wide table's checks by default.
    "spark.sql.ui.explainMode": "simple",
}
"""How queries are planned."""


class Progress:
    """Says how far an operation is, at most every ten seconds (PySpark, SparkSession.registerProgressHandler)."""

    def __init__(self, say: Callable[[str], None]):
        self.say, self.told = say, time.monotonic()

    def __call__(self, stages: Iterable[StageInfo] | None, inflight_tasks: int, operation_id: str, done: bool) -> None:
        now, found = time.monotonic(), list(stages or ())
        if done or not found or now - self.told < TELL_SECONDS:
            return
        self.told = now
        tasks, completed = (sum(getattr(s, name) for s in found) for name in ("num_tasks", "num_completed_tasks"))
        megabytes = sum(stage.num_bytes_read for stage in found) / 1_000_000
        self.say(f"Spark: {completed:,} of {tasks:,} tasks done, {inflight_tasks:,} running, {megabytes:,.0f} MB read")


class Spark(dg.ConfigurableResource):
    """A Spark Connect server, the embedded one or a cluster's."""

    remote: str = hidden(
        description="Address as `sc://host:port`, with `/;use_ssl=true;token=…` where the server asks for a token."
    )

    stall_seconds: int = Field(
        600, ge=1, description="How long an operation may make no progress (no task ends) before it is cancelled."
    )

    _session: SparkSession | None = PrivateAttr(default=None)
    _settings: dict[str, str] = PrivateAttr(default_factory=dict)
    _say: Callable[[str], None] | None = PrivateAttr(default=None)
    _shared: bool = PrivateAttr(default=True)

    def apart(self) -> Spark:
        """The same server by a session of its own, which another thread may use: what is set for a write is set for
        all of its session."""
        other = Spark(remote=self.remote, stall_seconds=self.stall_seconds)
        other._shared = False
        return other

    def tell(self, say: Callable[[str], None]) -> None:
        """Tell how far long work of this run's session is."""
        self._say = say

    def session(self, settings: Mapping[str, str]) -> SparkSession:
        """The session of this run, with `settings` applied; made on first use and closed with the run.

        Raises: Unreachable when the server does not answer; ClockSkew when its clock is not this machine's.
        """
        # All of a process share one session, and another resource's run may have closed it.
        if self._session is None or self._session.is_stopped:  # type: ignore[attr-defined]  # of Spark Connect
            self._session, self._settings = self._connect(), {}
            try:
                require_clock_of(self._session)
            except ClockSkew:
                self.close()
                raise
        # Each is a round trip, and all have stood since the first batch of a run.
        for key, value in settings.items():
            if self._settings.get(key) != value:
                self._session.conf.set(key, value)
                self._settings[key] = value
        # PySpark binds the result of a checkpoint to the active session of the thread, which may be another, or none.
        type(self._session)._active_session.session = self._session  # type: ignore[attr-defined]  # of Spark Connect
        return self._session

    def _connect(self) -> SparkSession:
        from dagster_pyspark import LazyPySparkResource
        from pyspark.errors import PySparkException
        from pyspark.sql.connect.client.retries import DefaultPolicy
        from pyspark.sql.connect.session import SparkSession

        from resources.deadlines import Deadlines

        channel = self._channel()
        where = channel.endpoint
        host, _, port = where.rpartition(":")
        check = "that the server is up (`lakehouse status`), and its address"
        silence_failed_queries()
        session = None
        try:
            socket.create_connection((host.strip("[]"), int(port)), TIMEOUT_SECONDS).close()
            channel.add_interceptor(Deadlines(where, self.stall_seconds))
            # As PySpark's other builder does, which takes no channel: functions then make expressions of Spark Connect.
            os.environ["SPARK_CONNECT_MODE_ENABLED"] = "1"
            builder = SparkSession.builder.channelBuilder(channel)
            session = builder.getOrCreate() if self._shared else builder.create()
            if self._shared:
                # dagster-pyspark takes no channel, but finds the session of this process.
                session = LazyPySparkResource(spark_config={"spark.remote": self.remote}).spark_session
            # By default the client tries for ten minutes, also to say goodbye to a server that is gone.
            session.client.set_retry_policies([DefaultPolicy(max_retries=RETRIES, max_backoff=MAX_WAIT_MS)])
            if self._say:
                report: Any = Progress(self._say)  # PySpark's type names the same parameters by keyword only
                session.registerProgressHandler(report)
            for name, setting in (REDACTION | PLANNING).items():
                session.conf.set(name, setting)
            session.version  # noqa: B018  the session is lazy: this is the first round trip
            connected: Any = session  # PySpark's own annotations name the session that both of its kinds derive from
            return connected
        except (OSError, PySparkException, Stalled) as error:
            if session is not None:
                # Otherwise the end of the process waits for this server once more.
                session.client.close()
            cause = error.symptom if isinstance(error, Stalled) else error
            raise Unreachable("Spark Connect", where, check, cause) from error

    def _channel(self) -> Channel:
        """The way to the server.

        Raises: Unreachable, without the address, when PySpark does not take it.
        """
        from pyspark.errors import PySparkException

        from resources.spark_channel import Channel

        with suppress(PySparkException, ValueError):
            return Channel(self.remote)
        # Raised apart from PySpark's error, which quotes the token: Dagster stores causes.
        host = urlsplit(self.remote.partition(";")[0]).netloc.rpartition("@")[2]
        check = (
            "`spark.remote` in lakehouse.yaml (SPARK_REMOTE): its form is sc://host:port/;use_ssl=true;token=…, where "
            "a `=` in the token is written %3D"
        )
        raise Unreachable("Spark Connect", host or "its address", check, "PySpark cannot parse the address")

    def teardown_after_execution(self, context: dg.InitResourceContext) -> None:
        """Free what the server keeps for this session."""
        self.close()

    def close(self) -> None:
        """End the session, if there is one. The next use opens another."""
        if self._session is not None:
            self._session.stop()
            self._session = None
