"""The environment of a command: its resources outside of a Dagster run, and the exit code if it cannot be read."""

import os
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager

import dagster as dg

from lakehouse.cli import boundary
from lakehouse.config.discovery import LOCAL, environment_name
from lakehouse.config.model import Config, Topic
from lakehouse.core.errors import LakehouseError, translate
from lakehouse.core.tables.naming import TableRef
from lakehouse.readers import configured
from resources.build import build_resources, lazy_resource, require_environment, require_variables
from resources.iceberg.catalog import Catalog
from resources.kafka.kafka import Kafka
from resources.protocols import Resources, resource_of


@contextmanager
def open_clients(config: Config) -> Iterator[Resources]:
    """Yield the resources of the environment in LAKEHOUSE_ENV by their keys: kafka, catalog, snowflake …

    Raises:
        ConfigError: The environment is incomplete.
    """
    _prepare(config, environment_name())
    configured(config)
    declared = build_resources(config, environment_name())
    require_variables(config, environment_name())
    with dg.build_resources(declared) as resources:
        yield resources


def _prepare(config: Config, environment: str) -> None:
    """Require that an environment is declared, and set the variables of the embedded stack if it is that one."""
    require_environment(config, environment)
    if environment == LOCAL:
        from lakehouse.local.client_environment import environment as variables

        os.environ.update(variables())


def catalog_of_environment(config: Config, environment: str) -> Catalog:
    """Return the catalog of any environment.

    Raises:
        ConfigError: The environment is not declared, or has no catalog.
    """
    _prepare(config, environment)
    build_resources(config, environment)
    create = lazy_resource(config, environment, "catalog")
    assert create is not None  # a required system
    catalog: Catalog = create()
    return catalog


def kafka_topics(config: Config, resources: Resources) -> list[str]:
    """Return the names of the topics in Kafka that routes may match; none without routes, and Kafka is not asked."""
    return resource_of(resources, "kafka", Kafka).topics() if config.routes else []


def all_topics(config: Config, resources: Resources) -> list[Topic]:
    """Return the entries of lakehouse.yaml and the topics in Kafka that its routes match."""
    return [*config.topics.values(), *config.routed_topics(kafka_topics(config, resources))]


def named_topics(config: Config, names: Sequence[str], resources: Resources) -> list[Topic]:
    """Return the topics with these names; the name of a route stands for its topics in Kafka. No name stands for all
    topics whose tables Spark writes."""
    if not names:
        return all_spark_topics(config, resources)
    is_route = any(name in config.routes for name in names)
    return config.select(names, kafka_topics(config, resources) if is_route else ())


def require_written_by_spark(config: Config, names: Sequence[str]) -> None:
    """Require that each name is that of a route, or of a topic whose table Spark writes."""
    for name in names:
        if name not in config.routes:
            config.topic_written_by_spark(name)


def all_spark_topics(config: Config, resources: Resources) -> list[Topic]:
    """Return those of `all_topics` whose tables Spark writes."""
    return [topic for topic in all_topics(config, resources) if topic.is_ingested]


def require_table(config: Config, topic: Topic, resources: Resources) -> None:
    """Require that the table of a topic exists. Its absence is not the same as a table without rows.

    Raises:
        LakehouseError: It does not exist. The message names the catalog, which may be another one than intended.
    """
    ref, table = resources.catalog.chain(topic.table_in(config.namespace)).newest
    if table is None:
        raise missing_table_error(ref, resources.catalog.address)


def missing_table_error(ref: TableRef, catalog: str) -> LakehouseError:
    """Return the error for a table that does not exist in a catalog, which is named by its address."""
    return LakehouseError(
        f"Table {ref} does not exist in the catalog {catalog} (environment '{environment_name()}')",
        "Nothing was verified or changed",
        "Ingest the topic first (`lakehouse stream --once`), or correct `catalog` of the environment",
    )


UNVERIFIED = 2
"""Exit code if an error prevents a verification. A failed verification exits with 1."""


def verification() -> AbstractContextManager[None]:
    """Exit with 2 if an error prevents the verification in the body."""
    return translate({Exception: lambda error: boundary.to_click(error, UNVERIFIED)})
