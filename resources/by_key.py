"""The Dagster resources of an environment as attributes of one object, by their keys in lakehouse.yaml."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol, TypeVar

from lakehouse.core.errors import ConfigError

if TYPE_CHECKING:
    from resources.iceberg.catalog import Catalog
    from resources.protocols import KafkaClient, RegistryClient, SparkClient

Resource = TypeVar("Resource")


class Resources(Protocol):
    """The resources that an asset, check, sensor or command requires, such as Dagster's `context.resources`.

    Those of the pipeline are declared here. `resource_of` returns any other by its key.
    """

    @property
    def kafka(self) -> KafkaClient:
        """The Kafka cluster."""

    @property
    def schema_registry(self) -> RegistryClient:
        """The schema registry."""

    @property
    def spark(self) -> SparkClient:
        """The Spark server."""

    @property
    def catalog(self) -> Catalog:
        """The Iceberg catalog."""


def resource_of(resources: Resources, key: str, type_: type[Resource]) -> Resource:
    """Return the resource with a key, which is of a class.

    Raises:
        ConfigError: The environment has none.
        TypeError: It is of another class.
    """
    if (resource := find_resource(resources, key, type_)) is None:
        raise ConfigError(
            f"The current environment (LAKEHOUSE_ENV) has no '{key}'. Nothing was changed. Add its settings in "
            f"lakehouse.yaml"
        )
    return resource


def find_resource(resources: Resources, key: str, type_: type[Resource]) -> Resource | None:
    """Return the resource with a key, which is of a class; None if the environment has none.

    Raises:
        TypeError: It is of another class.
    """
    resource = getattr(resources, key, None)
    if resource is not None and not isinstance(resource, type_):
        raise TypeError(f"resource '{key}' is a {type(resource).__qualname__}, not a {type_.__qualname__}")
    return resource
