"""An environment of lakehouse.yaml as resources: each system's settings are the fields of its resource."""

from __future__ import annotations

import os
from collections.abc import Callable
from functools import cache
from typing import Any, TypeVar, get_args

import dagster as dg

from lakehouse.config.environment import RESOURCES, EnvRef, Setting
from lakehouse.config.loader import Config
from lakehouse.core.errors import ConfigError
from lakehouse.core.words import did_you_mean
from resources.athena import Athena
from resources.aws import Glue
from resources.catalog import Catalog
from resources.kafka import Kafka
from resources.open_lineage import OpenLineage
from resources.rest_catalog import RestCatalog
from resources.schema_registry import SchemaRegistry
from resources.snowflake import Snowflake
from resources.spark import Spark
from resources.webhook import Webhook

SYSTEMS: dict[str, type[dg.ConfigurableResource]] = {
    "kafka": Kafka,
    "schema_registry": SchemaRegistry,
    "spark": Spark,
    "catalog": Catalog,
    "glue": Glue,
    "snowflake": Snowflake,
    "alerts": Webhook,
    "open_lineage": OpenLineage,
    "athena": Athena,
    "rest_catalog": RestCatalog,
}

Resource = TypeVar("Resource", bound=dg.ConfigurableResource)

OPTIONAL = ("athena", "rest_catalog", *(point.name for point in RESOURCES))
"""Systems that there are only where an environment names them."""


def build_resources(config: Config, environment: str) -> dict[str, dg.ConfigurableResource]:
    """The resources of one environment. Values of environment variables are read at run time, not here, where only
    those that are not set become their default. A system that requires no setting may be left out.

    Raises: ConfigError when the environment is not declared, or names a field its system does not have.
    """
    if environment not in config.environments:
        known = ", ".join(config.environments)
        raise ConfigError(f"Environment '{environment}' (LAKEHOUSE_ENV) is not in lakehouse.yaml, which has: {known}")
    settings, at = config.environments[environment], f"environments.{environment}"
    wanted = {name: system(name) for name in (*SYSTEMS, *OPTIONAL) if name in settings or name not in OPTIONAL}
    return {name: _build(f"{at}.{name}", cls, settings.get(name)) for name, cls in wanted.items()}


def system(name: str) -> type[dg.ConfigurableResource]:
    """Return the class of a system's resource, of this project or of another distribution."""
    return SYSTEMS[name] if name in SYSTEMS else RESOURCES[name].load()


def opener(config: Config, environment: str, name: str) -> Callable[[], Any] | None:
    """What gives one system's resource with its variables read, when it is called; None where the environment, which
    may not be declared yet, does not name the system.

    It raises: ConfigError when a variable is not set.
    """
    settings, at = config.environments.get(environment, {}).get(name), f"environments.{environment}.{name}"
    if settings is None:
        return None

    @cache
    def opened() -> Any:
        refs = [each for each in settings.values() if isinstance(each, EnvRef) and each.default is None]
        if unset := [ref.env for ref in refs if ref.env not in os.environ]:
            raise ConfigError(
                f"lakehouse.yaml: {at}: {', '.join(unset)} not set. Nothing was changed. Set the variables"
            )
        return _build(at, SYSTEMS[name], settings).process_config_and_initialize()

    return opened


def _build(at: str, cls: type[dg.ConfigurableResource], settings: dict[str, Setting] | None) -> dg.ConfigurableResource:
    fields = cls.model_fields
    either = getattr(cls, "EITHER", ())
    if settings is None:
        if either or any(field.is_required() for field in fields.values()):
            raise ConfigError(f"lakehouse.yaml: {at}: missing. Add the system's settings")
        settings = {}
    for name in settings:
        if name not in fields:
            said = f"no such key.{did_you_mean(name, fields)} Known keys: {', '.join(fields)}"
            raise ConfigError(f"lakehouse.yaml: {at}.{name}: {said}")
    missing = [name for name, field in fields.items() if field.is_required() and name not in settings]
    if either and not settings.keys() & set(either):
        missing.insert(0, " or ".join(either))
    if missing:
        raise ConfigError(f"lakehouse.yaml: {at}: {', '.join(missing)} missing. Add it, or {{env: NAME}}")
    return cls(**{name: _value(setting, fields[name].annotation) for name, setting in settings.items()})


def _value(setting: Setting, annotation: object) -> object:
    if not isinstance(setting, EnvRef):
        return setting
    if setting.default is not None and setting.env not in os.environ:
        return setting.default
    is_int = annotation is int or int in get_args(annotation)
    return dg.EnvVar.int(setting.env) if is_int else dg.EnvVar(setting.env)


def another(resource: Resource) -> Resource:
    """A resource of the same settings whose connections are its own, for another thread."""
    return type(resource)(**{name: getattr(resource, name) for name in type(resource).model_fields})
