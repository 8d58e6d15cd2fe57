"""Clients of the systems that the pipeline reads and writes."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from pkgutil import resolve_name

from lakehouse.pipeline.engine import Engine, EngineClient
from resources.aws.glue import Glue
from resources.build import with_own_connections
from resources.iceberg.catalog import Catalog
from resources.iceberg.tableflow_catalog import TableflowCatalog
from resources.protocols import (
    KafkaClient,
    ReadableCatalog,
    RegistryClient,
    Resources,
    SparkClient,
    find_resource,
)

CLIENTS = ("kafka", "schema_registry", "spark", "catalog")
"""Keys of the Dagster resources that provide the clients."""


def engine_client(server: SparkClient) -> EngineClient:
    """Return the client of the engine on a server, whose module is loaded only now."""
    client: EngineClient = resolve_name(server.engine)(server)
    return client


@dataclass(frozen=True)
class Clients:
    """Clients of the systems, one each."""

    kafka: KafkaClient
    schema_registry: RegistryClient
    engines: EngineClient
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
            engine_client(resources.spark),
            resources.catalog,
            find_resource(resources, "glue", Glue),
            find_resource(resources, "tableflow_catalog", TableflowCatalog),
        )

    @property
    def engine(self) -> Engine:
        """The engine, with the settings of the catalog."""
        return self.engine_of(self.catalog)

    def engine_of(self, catalog: ReadableCatalog) -> Engine:
        """Return the engine, with the settings of a catalog."""
        return self.engines.engine(catalog.spark_settings(), self.kafka)

    def with_own_connections(self) -> Clients:
        """Return clients with separate connections and a separate session of the engine, for use by another thread."""
        return Clients(
            with_own_connections(self.kafka),
            with_own_connections(self.schema_registry),
            self.engines.with_own_session(),
            with_own_connections(self.catalog),
            self.glue and with_own_connections(self.glue),
            self.tableflow_catalog and with_own_connections(self.tableflow_catalog),
        )

    def close(self) -> None:
        """Close the session of the engine; ignore errors, because its server may be unreachable."""
        with suppress(Exception):
            self.engines.close()
