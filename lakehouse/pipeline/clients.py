"""Clients of the systems that the pipeline reads and writes."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING

from resources.aws.glue import Glue
from resources.build import with_own_connections
from resources.iceberg.catalog import Catalog
from resources.iceberg.tableflow_catalog import TableflowCatalog
from resources.protocols import KafkaClient, RegistryClient, Resources, SparkClient, find_resource

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

CLIENTS = ("kafka", "schema_registry", "spark", "catalog")
"""Keys of the Dagster resources that provide the clients."""


@dataclass(frozen=True)
class Clients:
    """Clients of the systems, one each."""

    kafka: KafkaClient
    schema_registry: RegistryClient
    spark: SparkClient
    catalog: Catalog
    glue: Glue | None = None
    """Names the database of Tableflow's tables; needed only to derive from one."""
    tableflow_catalog: TableflowCatalog | None = None
    """Has Tableflow's tables in Confluent's storage; needed only to derive from one."""

    @staticmethod
    def of(resources: Resources) -> Clients:
        """Return the clients among the resources of an environment."""
        return Clients(
            resources.kafka,
            resources.schema_registry,
            resources.spark,
            resources.catalog,
            find_resource(resources, "glue", Glue),
            find_resource(resources, "tableflow_catalog", TableflowCatalog),
        )

    @property
    def session(self) -> SparkSession:
        """The Spark session, with the settings of the catalog."""
        return self.spark.session(self.catalog.spark_settings())

    def with_own_connections(self) -> Clients:
        """Return clients with separate connections and a separate Spark session, for use by another thread."""
        return Clients(
            with_own_connections(self.kafka),
            with_own_connections(self.schema_registry),
            self.spark.with_own_session(),
            with_own_connections(self.catalog),
            self.glue and with_own_connections(self.glue),
            self.tableflow_catalog and with_own_connections(self.tableflow_catalog),
        )

    def close(self) -> None:
        """Close the Spark session; ignore errors, because its server may be unreachable."""
        with suppress(Exception):
            self.spark.close()
