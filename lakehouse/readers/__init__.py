"""Readers: the systems that expose published tables, one module each.

To add one, write a module with a Reader and name it in SYSTEMS (lakehouse/config/environment.py). A separate
distribution names its class as an entry point of the group `lakehouse.readers`.
"""

from functools import cache
from pkgutil import resolve_name

from lakehouse.config.discovery import environment_name
from lakehouse.config.environment import SYSTEMS
from lakehouse.config.loader import place
from lakehouse.config.model import Config, Topic
from lakehouse.core.errors import ConfigError
from lakehouse.core.registry import implementations
from lakehouse.readers.reader import Reader, Registration
from resources.protocols import Resources

GROUP = "lakehouse.readers"


@cache
def registered() -> tuple[Reader, ...]:
    """Return all readers: those of this project and of installed distributions."""
    names = ["iceberg"]
    of_project: list[type[Reader]] = [resolve_name(system.reader) for system in SYSTEMS.values() if system.reader]
    readers = implementations(of_project, GROUP).values()
    for reader in readers:
        if reader.upstream not in names:
            raise ConfigError(
                f"Reader '{reader.name}' follows '{reader.upstream}', which is not a reader that precedes it (entry "
                f"points of {GROUP}). No reader was loaded. Correct its attribute 'upstream'"
            )
        names.append(reader.name)
    return tuple(reader() for reader in readers)


def configured(config: Config) -> tuple[Reader, ...]:
    """Return the readers of the current environment, each after the one that it follows.

    Raises:
        ConfigError: The environment has a reader without the one that it follows.
    """
    environment = environment_name()
    settings = config.environments.get(environment, {})
    readers = tuple(_in(config, environment, reader) for reader in registered() if reader.resource in settings)
    for reader in readers:
        upstream = reader_of(reader.upstream)
        if upstream and upstream not in readers:
            where = place(config, ("environments", environment, reader.resource))
            raise ConfigError(
                f"{where}: {reader.label} shows what {upstream.label} has, and the environment has no "
                f"`{upstream.resource}`. Nothing was changed. Add its settings, or remove those of `{reader.resource}`"
            )
    return readers


def _in(config: Config, environment: str, reader: Reader) -> Reader:
    try:
        return reader.of_environment(config.environments[environment])
    except ConfigError as error:
        raise ConfigError(f"{place(config, ('environments', environment, reader.resource))}: {error}") from None


def reader_of(name: str) -> Reader | None:
    """Return the reader with that name; None if the name is of another kind of asset."""
    return next((reader for reader in registered() if reader.name == name), None)


def publish(config: Config, topic: Topic, resources: Resources) -> dict[Reader, Registration]:
    """Expose a topic's published table in each reader of the current environment, one after the other."""
    ref, table = resources.catalog.chain(topic.table_in(config.namespace)).require_published()
    return {reader: reader.publish_tables(topic, ref, table, resources) for reader in configured(config)}
