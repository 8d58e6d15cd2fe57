"""The tables of topics, and the catalogs that have them, whoever writes them."""

from typing import Protocol

from lakehouse.config.discovery import environment_name
from lakehouse.config.loader import place
from lakehouse.config.model import Config, Topic
from lakehouse.core.errors import ConfigError
from lakehouse.core.tables import naming
from lakehouse.core.tables.naming import TableRef
from resources.aws.glue import Glue
from resources.iceberg.catalog import Catalog
from resources.iceberg.tableflow_catalog import TableflowCatalog
from resources.protocols import KafkaClient, ReadableCatalog, find_resource, resource_of

TABLEFLOW_CATALOG = "tableflow_catalog"
"""The key of the resource with the tables in Confluent's storage."""


class Stores(Protocol):
    """The systems that have topics and their tables, among the resources of an environment."""

    @property
    def kafka(self) -> KafkaClient:
        """The Kafka cluster."""

    @property
    def catalog(self) -> Catalog:
        """The Iceberg catalog."""


def is_stored_by_confluent(config: Config, topic: Topic) -> bool:
    """Return whether a table is in Confluent's storage, and so in no catalog but Tableflow's own."""
    return not topic.is_ingested and TABLEFLOW_CATALOG in config.environments.get(environment_name(), {})


def table_resources(config: Config, topic: Topic) -> frozenset[str]:
    """Return the keys of the resources that `table_of` and `catalog_of` need.

    Raises:
        ConfigError: Tableflow writes the table, and the environment has neither catalog in which it would be.
    """
    if topic.is_ingested:
        return frozenset()
    environment = environment_name()
    for catalog in (TABLEFLOW_CATALOG, "glue"):
        if catalog in config.environments.get(environment, {}):
            return frozenset({catalog, "kafka"})
    where = place(config, ("environments", environment))
    raise ConfigError(
        f"{where}: it has neither `glue` nor `{TABLEFLOW_CATALOG}`, the catalogs in which Tableflow registers the "
        f"table of '{topic.name}'. Nothing was changed. Add one of them"
    )


def source_resources(config: Config, topic: Topic) -> frozenset[str]:
    """Return the keys of the resources that `table_of` needs for the table that a topic is derived from."""
    return table_resources(config, config.topic(topic.source.upstream)) if topic.source.upstream else frozenset()


def table_of(config: Config, topic: Topic, resources: Stores) -> TableRef:
    """Return the table of a topic.

    Tableflow names a table after its topic, in a database that is named by the id of the Kafka cluster unless the
    resource `glue` names another.

    Args:
        config: The configuration.
        topic: The topic.
        resources: Include those of `table_resources`.

    Raises:
        Unreachable: Kafka does not answer.
    """
    ref = topic.table_in(config.namespace)
    if topic.is_ingested:
        return ref
    if _tableflow_catalog(topic, resources):
        in_catalog = (resources.kafka.cluster_id(), topic.topic)
        return TableRef(ref.namespace, ref.name, in_catalog=in_catalog, spark_catalog=naming.TABLEFLOW_CATALOG)
    database = resource_of(resources, "glue", Glue).tableflow_database or resources.kafka.cluster_id()
    return TableRef(ref.namespace, ref.name, in_catalog=(database, topic.topic))


def catalog_of(topic: Topic, resources: Stores) -> ReadableCatalog:
    """Return the catalog that has the table of a topic."""
    return _tableflow_catalog(topic, resources) or resources.catalog


def _tableflow_catalog(topic: Topic, resources: Stores) -> TableflowCatalog | None:
    return None if topic.is_ingested else find_resource(resources, TABLEFLOW_CATALOG, TableflowCatalog)
