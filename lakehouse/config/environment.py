"""Environments of lakehouse.yaml: the settings of the systems of each."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from importlib.metadata import entry_points
from typing import TYPE_CHECKING, Annotated, Literal

from pydantic import Discriminator, Field, Tag

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
    own_types: tuple[str, ...] = ()
    """The values of the key `type` that this project has; empty if the system has no such key."""
    types_group: str = ""
    """The entry point group of other distributions whose names are further values."""
    is_optional: bool = False
    """Whether the system exists only in environments that name it."""

    @property
    def types(self) -> tuple[str, ...]:
        """The known values of the key `type`, without loading their classes."""
        others = entry_points(group=self.types_group) if self.types_group else ()
        return (*self.own_types, *sorted(point.name for point in others))


_OWN = {
    "kafka": SystemClasses("resources.kafka.kafka:Kafka"),
    "schema_registry": SystemClasses("resources.schema_registry:SchemaRegistry"),
    "spark": SystemClasses(
        "resources.spark.servers:Connect",
        kinds="resources.spark.servers:registered",
        own_types=("connect",),
        types_group="lakehouse.spark",
    ),
    "catalog": SystemClasses(
        "resources.iceberg.catalog:Catalog", own_types=("sql", "glue", "rest"), types_group="lakehouse.catalogs"
    ),
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

    env: str = Field(pattern=r"^[A-Za-z_]\w*$", description="Name of the environment variable.")
    default: str | int | None = Field(
        None, description="Value if the variable is not set. Without a default, the variable is required."
    )


SETTINGS = "settings"
"""The key of a system with settings of its client library."""

ClientSettings = dict[str, bool | int | str | EnvRef]
"""The value of that key: settings by the library's names."""


def _kind(value: object) -> str:
    if isinstance(value, EnvRef) or (isinstance(value, Mapping) and "env" in value):
        return "EnvRef"
    return "ClientSettings" if isinstance(value, Mapping) else "Value"


SettingValue = Annotated[
    Annotated[str | int, Tag("Value")]
    | Annotated[EnvRef, Tag("EnvRef")]
    | Annotated[ClientSettings, Field(json_schema_extra={"not": {"required": ["env"]}}), Tag("ClientSettings")],
    Discriminator(_kind),
]


def references(settings: Iterable[SettingValue]) -> Iterator[EnvRef]:
    """Yield the references to environment variables in settings, those in settings of client libraries included."""
    for setting in settings:
        if isinstance(setting, EnvRef):
            yield setting
        elif isinstance(setting, dict):
            yield from references(setting.values())
