"""What the embedded Glue and Snowflake forget when they stop, put back from the Iceberg catalog, which does not."""

from __future__ import annotations

from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from lakehouse.local.stack import State
    from resources.catalog import Catalog


def restore() -> list[str]:
    """Register every published table again and show it in Snowflake, as the assets do; returns the topics.

    Raises: LakehouseError.
    """
    from lakehouse.cli.systems import connected
    from lakehouse.config import loader
    from lakehouse.readers import publish

    config = loader.load()
    with connected(config) as systems:
        published = partial(_is_published, systems.catalog, config.namespace)
        topics = [topic for topic in config.topics.values() if published(topic.table)]
        for topic in topics:
            publish(config, topic, systems)
    return [topic.name for topic in topics]


def _is_published(catalog: Catalog, namespace: str, name: str) -> bool:
    table = catalog.load(namespace, name)
    return table is not None and table.current_snapshot() is not None


class Restoring:
    """`restore`, run beside the start of the servers that come after Glue and Snowflake."""

    FORGETFUL = frozenset({"aws", "snowflake"})
    NEEDED = FORGETFUL | {"s3"}

    def __init__(self) -> None:
        self._pool = ThreadPoolExecutor(1)
        self._ready: dict[str, bool] = {}
        self._restored: Future[list[str]] | None = None

    def on_ready(self, state: State) -> None:
        """Note that a server is ready. One that this `up` started, and did not find running, knows nothing."""
        self._ready[state.name] = state.seconds > 0
        complete = self._ready.keys() >= self.NEEDED
        if complete and self._restored is None and any(self._ready[server] for server in self.FORGETFUL):
            self._restored = self._pool.submit(restore)

    def result(self) -> list[str]:
        """Wait for the end; returns the topics that were restored.

        Raises: as `restore`.
        """
        return self._restored.result() if self._restored else []
