"""Readers: the systems that expose published tables, one module each.

To add one, write a module with a Reader and add it to READERS. A separate distribution names its class as an entry
point of the group `lakehouse.readers`.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import Any

from lakehouse.config.environment import environment_name
from lakehouse.config.loader import Config
from lakehouse.config.topic import Topic
from lakehouse.core.errors import ConfigError
from lakehouse.core.registry import implementations
from lakehouse.readers.glue import GlueReader
from lakehouse.readers.reader import Reader, Registration
from lakehouse.readers.rest_catalog import RestCatalogReader
from lakehouse.readers.snowflake import SnowflakeReader

READERS: Sequence[type[Reader]] = (GlueReader, SnowflakeReader, RestCatalogReader)
"""The readers of this project. One that follows another comes after it."""

GROUP = "lakehouse.readers"


@cache
def registered() -> tuple[Reader, ...]:
    """Return all readers: this project's and those of installed distributions.

    Raises:
        ConfigError: Two readers have the same name, or one follows a reader that does not come before it.
    """
    names = ["iceberg"]
    readers = implementations(READERS, GROUP).values()
    for reader in readers:
        if reader.upstream not in names:
            raise ConfigError(
                f"Reader '{reader.name}' follows '{reader.upstream}', which is no reader before it (entry points of "
                f"{GROUP}). Correct its attribute 'upstream'"
            )
        names.append(reader.name)
    return tuple(reader() for reader in readers)


def configured(config: Config) -> tuple[Reader, ...]:
    """Return the readers of the environment in use, each after the one that it follows."""
    systems = config.environments.get(environment_name(), {})
    return tuple(reader for reader in registered() if not reader.is_optional or reader.resource in systems)


def reader_of(name: str) -> Reader | None:
    """Return the reader of that name; None for the name of another kind of asset."""
    return next((reader for reader in registered() if reader.name == name), None)


def publish(config: Config, topic: Topic, clients: Any) -> dict[Reader, Registration]:
    """Expose a topic's published table in each reader of the environment in use, one after the other.

    Raises:
        LakehouseError: Nothing was published yet, or a reader refuses; see `Reader.publish`.
    """
    current, table = clients.catalog.published(config.namespace, topic)
    return {reader: reader.publish(config.namespace, current, table, clients) for reader in configured(config)}
