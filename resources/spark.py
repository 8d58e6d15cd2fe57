"""Spark, reached through Spark Connect: a warm engine somewhere else, and no JVM in this process."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

import dagster as dg
from pydantic import PrivateAttr

from lakehouse.errors import Unreachable

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class Spark(dg.ConfigurableResource):
    """A Spark Connect server, the embedded one or a cluster's."""

    remote: str
    """Address as `sc://host:port`, with `;token=…` where the server asks for one (Spark Connect, client connection)."""

    _session: SparkSession | None = PrivateAttr(default=None)

    def session(self, settings: Mapping[str, str]) -> SparkSession:
        """The session of this run, with `settings` applied; made on first use and closed with the run.

        Raises: Unreachable when the server does not answer.
        """
        if self._session is None:
            self._session = self._connect()
        for key, value in settings.items():
            self._session.conf.set(key, value)
        return self._session

    def _connect(self) -> SparkSession:
        from dagster_pyspark import LazyPySparkResource
        from pyspark.errors import PySparkException

        try:
            session = LazyPySparkResource(spark_config={"spark.remote": self.remote}).spark_session
            session.version  # noqa: B018  the session is lazy: this is the first round trip
            return session
        except PySparkException as error:
            where = urlsplit(self.remote).netloc.split(";")[0]
            raise Unreachable("Spark Connect", where, "that the server is up (`lakehouse status`)") from error

    def teardown_after_execution(self, context: dg.InitResourceContext) -> None:
        """Free what the server keeps for this session."""
        self.close()

    def close(self) -> None:
        """End the session, if there is one. The next use opens another."""
        if self._session is not None:
            self._session.stop()
            self._session = None
