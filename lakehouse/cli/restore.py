"""Restores registrations in the embedded Glue and Snowflake, which keep their state in memory only."""

from __future__ import annotations

from collections.abc import Collection
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TYPE_CHECKING

from lakehouse.cli.systems import kafka_topics, open_clients
from lakehouse.config import loader
from lakehouse.core.tables.naming import TableRef
from lakehouse.readers import configured, publish
from resources.iceberg.catalog import Catalog

if TYPE_CHECKING:
    from lakehouse.local.stack import ServerState


def restore(*, with_routes: bool) -> list[str]:
    """Publish every published table of the Iceberg catalog to the readers, as the assets do.

    Args:
        with_routes: Whether to include the topics in Kafka that routes match.

    Returns:
        The names of the restored topics.
    """
    config = loader.load()
    if not configured(config):
        return []
    with open_clients(config) as resources:
        names = kafka_topics(config, resources) if with_routes else ()
        topics = [
            topic
            for topic in (*config.topics.values(), *config.routed_topics(names))
            if _is_published(resources.catalog, topic.table_in(config.namespace))
        ]
        for topic in topics:
            publish(config, topic, resources)
    return [topic.name for topic in topics]


def _is_published(catalog: Catalog, ref: TableRef) -> bool:
    table = catalog.load(ref)
    return table is not None and table.current_snapshot() is not None


class Restoration:
    """Runs `restore` in a thread while the servers that start after Glue and Snowflake come up.

    Args:
        servers: The servers that are started. Without Kafka, tables of routes cannot be restored.
    """

    IN_MEMORY = frozenset({"aws", "snowflake"})
    REQUIRED = IN_MEMORY | {"s3"}

    def __init__(self, servers: Collection[str]) -> None:
        self._with_routes = "kafka" in servers
        self._required = self.REQUIRED | ({"kafka"} if self._with_routes else set())
        self._pool = ThreadPoolExecutor(1)
        self._ready: dict[str, bool] = {}
        self._restored: Future[list[str]] | None = None

    def on_ready(self, state: ServerState) -> None:
        """Note that a server is ready, and start to restore when all required servers are.

        Nothing is restored if Glue and Snowflake were running before.
        """
        self._ready[state.name] = state.seconds > 0
        is_complete = self._ready.keys() >= self._required
        if is_complete and self._restored is None and any(self._ready[server] for server in self.IN_MEMORY):
            self._restored = self._pool.submit(restore, with_routes=self._with_routes)

    def result(self) -> list[str]:
        """Wait for `restore` and return the names of the restored topics. Raises what `restore` raises."""
        return self._restored.result() if self._restored else []
