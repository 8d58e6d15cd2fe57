"""What the embedded Glue and Snowflake forget when they stop, put back from the Iceberg catalog, which does not."""

from __future__ import annotations

from functools import partial

from lakehouse import config as configuration
from lakehouse.systems import connected
from resources.catalog import Catalog


def restore() -> list[str]:
    """Register every published table again and show it in Snowflake, as the assets do; returns the topics.

    Raises: LakehouseError.
    """
    from assets.glue import register
    from assets.snowflake import show

    config = configuration.load()
    with connected(config) as systems:
        published = partial(_is_published, systems.catalog, config.namespace)
        topics = [topic for topic in config.topics.values() if published(topic.table)]
        for topic in topics:
            register(config, topic, systems.catalog, systems.glue)
            show(config, topic, systems.catalog, systems.snowflake)
    return [topic.name for topic in topics]


def _is_published(catalog: Catalog, namespace: str, name: str) -> bool:
    table = catalog.load(namespace, name)
    return table is not None and table.current_snapshot() is not None
