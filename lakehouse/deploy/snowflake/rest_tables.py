"""The tables of a REST catalog in Snowflake: their schema, the integration with the catalog, its grants and itself."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property

from lakehouse.core.polling import Clock
from lakehouse.deploy.resource import Resource
from lakehouse.deploy.snowflake.administrator import Administrator
from lakehouse.deploy.snowflake.grants import Grant, privilege, reading
from lakehouse.deploy.snowflake.iceberg_tables import IcebergTables, Source
from lakehouse.deploy.snowflake.integrations import RestAccessVerification, RestIntegration
from lakehouse.deploy.snowflake.objects import Container, ExternalVolume
from resources.confluent.clusters import Cluster
from resources.iceberg.rest_catalog import RestCatalog
from resources.snowflake import snowflake_integrations as integrations


@dataclass(frozen=True, kw_only=True)
class RestTables:
    """The resources of one REST catalog, whose addresses begin with `snowflake/<part>_`."""

    administrator: Administrator
    part: str
    catalog_label: str
    """The catalog, as messages name it."""
    rest_catalog: Callable[[], RestCatalog]
    """Returns the catalog, whose credentials are read then."""
    namespace: str | Resource[Cluster]
    """The catalog's namespace: a name, or the Kafka cluster whose id Tableflow uses as the name."""
    sources: tuple[Source, ...]
    integration_name: str
    schema: Container
    role: str
    warehouse: str
    volume: ExternalVolume
    """The volume over the files of the tables."""

    @cached_property
    def integration(self) -> RestIntegration:
        """The catalog integration."""
        return RestIntegration(
            f"snowflake/{self.part}_integration",
            self.administrator,
            integration=self.integration_name,
            rest_catalog=self.rest_catalog,
            catalog_label=self.catalog_label,
            namespace=self.namespace,
        )

    @property
    def grants(self) -> Iterator[Grant]:
        """The grants to the role."""
        database, schema = self.schema.identifier
        yield privilege("USAGE", "SCHEMA", (database, schema), self.role)
        yield privilege("CREATE ICEBERG TABLE", "SCHEMA", (database, schema), self.role)
        yield privilege("USAGE", "INTEGRATION", (self.integration_name,), self.role)
        yield reading(database, schema, self.role)

    def verification(self, clock: Clock) -> RestAccessVerification:
        """Return the verification of Snowflake's access."""
        return RestAccessVerification(
            f"snowflake/{self.part}_verified",
            self.administrator,
            label=f"Snowflake's access to {self.catalog_label}",
            question=integrations.verify_catalog_integration(self.integration_name),
            after=(self.integration,),
            clock=clock,
            integration=self.integration_name,
            rest_catalog=self.rest_catalog,
        )

    @property
    def tables(self) -> IcebergTables:
        """The tables."""
        rest_catalog = self.rest_catalog
        return IcebergTables(
            f"snowflake/{self.part}_tables",
            self.administrator,
            sources=self.sources,
            namespace=self.namespace,
            schema=self.schema,
            role=self.role,
            warehouse=self.warehouse,
            volume=self.volume,
            integration=self.integration_name,
            is_registered=lambda namespace, table: rest_catalog().registration(namespace, table) is not None,
            after=(self.integration,),
        )
