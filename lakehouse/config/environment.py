"""Environments of lakehouse.yaml: the settings of the systems of each."""

from collections.abc import Mapping
from dataclasses import dataclass
from importlib.metadata import entry_points
from typing import TYPE_CHECKING, Literal

from pydantic import Field

from lakehouse.config.base import ConfigModel


@dataclass(frozen=True)
class SystemClasses:
    """The classes of a system, as `module:class`. They are imported where they are used."""

    resource: str
    """The Dagster resource, whose fields are the system's keys in an environment."""
    kinds: str | None = None
    """A function that returns the resources of a system with several kinds by the key `type`; `resource` is the
    default."""
    reader: str | None = None
    """The reader, if the system exposes published tables."""
    is_optional: bool = False
    """Whether the system exists only in environments that name it."""


_OWN = {
    "kafka": SystemClasses("resources.kafka.kafka:Kafka"),
    "schema_registry": SystemClasses("resources.schema_registry:SchemaRegistry"),
    "spark": SystemClasses("resources.spark.servers:Connect", kinds="resources.spark.servers:registered"),
    "catalog": SystemClasses("resources.iceberg.catalog:Catalog"),
    "glue": SystemClasses(
        "resources.aws.glue:Glue", reader="lakehouse.readers.glue_reader:GlueReader", is_optional=True
    ),
    "snowflake": SystemClasses(
        "resources.snowflake.snowflake:Snowflake",
        reader="lakehouse.readers.snowflake_reader:SnowflakeReader",
        is_optional=True,
    ),
    "alerts": SystemClasses("resources.webhook:Webhook"),
    "open_lineage": SystemClasses("resources.open_lineage:OpenLineage"),
    "athena": SystemClasses("resources.aws.athena:Athena", is_optional=True),
    "rest_catalog": SystemClasses(
        "resources.iceberg.rest_catalog:RestCatalog",
        reader="lakehouse.readers.rest_reader:RestCatalogReader",
        is_optional=True,
    ),
    "tableflow_catalog": SystemClasses("resources.iceberg.tableflow_catalog:TableflowCatalog", is_optional=True),
    "confluent_cloud": SystemClasses("resources.confluent.confluent_cloud:ConfluentCloud", is_optional=True),
}

SYSTEMS: Mapping[str, SystemClasses] = {
    **_OWN,
    **{
        point.name: SystemClasses(point.value, is_optional=True)
        for point in entry_points(group="lakehouse.resources")
        if point.name not in _OWN
    },
}
"""Systems by their keys in an environment, those of other distributions included. A reader that follows another comes
after it."""

if TYPE_CHECKING:
    System = str
else:
    System = Literal[tuple(SYSTEMS)]


class EnvRef(ConfigModel):
    """A value that is read from an environment variable. Secrets must be written this way."""

    env: str = Field(min_length=1, description="Name of the environment variable.")
    default: str | int | None = Field(
        None, description="Value if the variable is not set. Without a default, the variable is required."
    )


SettingValue = str | int | EnvRef
