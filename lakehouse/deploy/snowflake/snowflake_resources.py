"""The resources of a deployment in Snowflake: what it needs to show the tables of Glue or more, and who may use it."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any

from lakehouse.config.model import Config, Topic
from lakehouse.core.polling import SYSTEM_CLOCK, Clock
from lakehouse.core.tables import naming
from lakehouse.deploy.confluent.tableflow import OpenCatalogClient
from lakehouse.deploy.names import Names
from lakehouse.deploy.resource import Resource
from lakehouse.deploy.snowflake.access import Grant, Grants, ServiceUsers, privilege, reading
from lakehouse.deploy.snowflake.administrator import Administrator
from lakehouse.deploy.snowflake.catalogs import (
    REFRESH,
    GlueIntegration,
    IcebergTables,
    RestAccessVerification,
    RestIntegration,
    Source,
)
from lakehouse.deploy.snowflake.objects import (
    AccessVerification,
    AccountObject,
    Container,
    ExistingObject,
    ExternalVolume,
)
from resources.aws.glue import Glue
from resources.aws.secrets_manager import Secrets
from resources.confluent.clusters import Cluster
from resources.iceberg.rest_catalog import RestCatalog
from resources.snowflake import sql
from resources.snowflake.session import SnowflakeSession


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
            question=sql.verify_catalog_integration(self.integration_name),
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


@dataclass(frozen=True)
class SnowflakeResources:
    """The resources in Snowflake. Those that other clouds refer to, or that occur often, are properties."""

    session: SnowflakeSession
    """Of an administrator."""
    secrets: Secrets
    """Hold the service user's key."""
    names: Names
    config: Config
    clock: Clock = SYSTEM_CLOCK
    rest_catalog: Callable[[], RestCatalog] | None = None
    """Returns the environment's REST catalog; None if it has none."""

    def all(
        self,
        snowflake_role: Resource[Any],
        tableflow_cluster: Resource[Cluster] | None,
        open_catalog: OpenCatalogClient | None = None,
    ) -> list[Resource[Any]]:
        """List the resources, dependencies first, apart from those in AWS and Confluent Cloud.

        Args:
            snowflake_role: The IAM role that Snowflake assumes.
            tableflow_cluster: The Kafka cluster; None if Tableflow creates no table in the AWS account.
            open_catalog: The client of the Open Catalog in which Tableflow registers its tables; None if it does not.
        """
        volumes = (self.volume, *([self.tableflow_volume] if tableflow_cluster else ()))
        catalogs = list(self._rest_catalogs(tableflow_cluster, open_catalog))
        objects = [
            *self.users.objects(),
            self.warehouse,
            self.database,
            self.schema,
            *volumes,
            self.integration,
            *(resource for catalog in catalogs for resource in (catalog.schema, catalog.integration)),
        ]
        grants = Grants(
            "snowflake/grants",
            self._administrator,
            declared=tuple(self._grants(volumes, catalogs)),
            after=tuple(objects),
        )
        return [
            *objects,
            grants,
            *self.users.keys(grants),
            *self._verifications(snowflake_role, volumes, catalogs),
            *self._tables(tableflow_cluster),
            *(catalog.tables for catalog in catalogs),
        ]

    @cached_property
    def users(self) -> ServiceUsers:
        """The roles, users and key pairs."""
        namespace = f"{self._database_name}.{self._schema_name}"
        return ServiceUsers(self.session, self.secrets, self.names, namespace)

    @cached_property
    def warehouse(self) -> AccountObject | ExistingObject:
        """The warehouse in which queries run."""
        address, name = "snowflake/warehouse", self.names.snowflake("WAREHOUSE")
        if self.names.existing.snowflake_warehouse:
            return ExistingObject(address, self._administrator, kind="WAREHOUSE", name=name)
        creation = sql.create_warehouse(name, comment=self._administrator.comment)
        return AccountObject(address, self._administrator, kind="WAREHOUSE", identifier=(name,), creation=creation)

    @cached_property
    def database(self) -> Container | ExistingObject:
        """The database."""
        if self.names.existing.snowflake_database:
            return ExistingObject("snowflake/database", self._administrator, kind="DATABASE", name=self._database_name)
        creation = sql.create_database(self._database_name, comment=self._administrator.comment)
        return Container(
            "snowflake/database",
            self._administrator,
            kind="DATABASE",
            identifier=(self._database_name,),
            creation=creation,
        )

    @cached_property
    def schema(self) -> Container:
        """The schema of tables over Glue."""
        return self._schema("snowflake/schema", self._schema_name)

    @cached_property
    def volume(self) -> ExternalVolume:
        """The external volume over the bucket of Spark's tables."""
        return self._volume("snowflake/volume", self.names.snowflake("VOLUME"), self.names.bucket)

    @cached_property
    def tableflow_volume(self) -> ExternalVolume:
        """The external volume over the bucket of Tableflow's tables, created only if there is one."""
        return self._volume(
            "snowflake/tableflow_volume", self.names.snowflake("TABLEFLOW_VOLUME"), self.names.tableflow_bucket
        )

    @cached_property
    def integration(self) -> GlueIntegration:
        """The catalog integration with Glue."""
        names, role_arn = self.names, self.names.role_arn("snowflake")
        external_id = names.external_id("catalog")
        creation = sql.create_glue_rest_integration(
            self.names.snowflake("GLUE"),
            role_arn=role_arn,
            external_id=external_id,
            catalog_id=names.account,
            region=names.region,
            namespace=self.config.namespace,
            comment=self._administrator.comment,
        )
        return GlueIntegration(
            "snowflake/integration",
            self._administrator,
            kind="CATALOG INTEGRATION",
            identifier=(self.names.snowflake("GLUE"),),
            creation=creation,
            declared={
                "CATALOG_NAMESPACE": self.config.namespace,
                "API_AWS_EXTERNAL_ID": external_id,
                "SIGV4_IAM_ROLE": role_arn,
                "SIGV4_SIGNING_REGION": names.region,
                REFRESH: str(sql.REFRESH_SECONDS),
            },
        )

    def _grants(self, volumes: Sequence[ExternalVolume], catalogs: Sequence[RestTables]) -> Iterator[Grant]:
        role, schema = self.names.snowflake("ROLE"), self.schema.identifier
        yield from self.users.grants()
        yield privilege("USAGE", "WAREHOUSE", (self.names.snowflake("WAREHOUSE"),), role)
        yield privilege("USAGE", "DATABASE", (self._database_name,), role)
        yield privilege("USAGE", "SCHEMA", schema, role)
        yield privilege("CREATE ICEBERG TABLE", "SCHEMA", schema, role)
        for volume in volumes:
            yield privilege("USAGE", "EXTERNAL VOLUME", volume.identifier, role)
        yield privilege("USAGE", "INTEGRATION", self.integration.identifier, role)
        yield reading(self._database_name, self._schema_name, role)
        for catalog in catalogs:
            yield from catalog.grants

    def _verifications(
        self, snowflake_role: Resource[Any], volumes: Sequence[ExternalVolume], catalogs: Sequence[RestTables]
    ) -> Iterator[AccessVerification]:
        for volume, bucket in zip(volumes, (self.names.bucket, self.names.tableflow_bucket), strict=False):
            yield AccessVerification(
                f"{volume.address}_verified",
                self._administrator,
                label=f"Snowflake's access to {bucket}",
                question=sql.verify_external_volume(volume.identifier[0]),
                after=(volume, snowflake_role),
                clock=self.clock,
            )
        yield AccessVerification(
            "snowflake/integration_verified",
            self._administrator,
            label=f"Snowflake's access to Glue in {self.names.region}",
            question=sql.verify_catalog_integration(self.integration.identifier[0]),
            after=(self.integration, snowflake_role),
            clock=self.clock,
        )
        for catalog in catalogs:
            yield catalog.verification(self.clock)

    def _tables(self, tableflow_cluster: Resource[Cluster] | None) -> Iterator[IcebergTables]:
        """Yield the tables over Glue: of Spark's topics, and of Tableflow's, whose database is named by the cluster's
        id."""
        glue = Glue(region=self.names.region, catalog_id=self.names.account)
        # Not after the verifications: the tables can be deleted also when access is broken.
        tables = partial(
            IcebergTables,
            administrator=self._administrator,
            schema=self.schema,
            role=self.names.snowflake("ROLE"),
            warehouse=self.names.snowflake("WAREHOUSE"),
            integration=self.integration.identifier[0],
            after=(self.integration,),
            is_registered=lambda database, table: glue.registration(database, table) is not None,
        )
        yield tables(
            "snowflake/tables",
            sources=self._spark_sources,
            namespace=self.config.namespace,
            volume=self.volume,
        )
        if tableflow_cluster:
            yield tables(
                "snowflake/tableflow_tables",
                sources=self._tableflow_sources,
                namespace=tableflow_cluster,
                volume=self.tableflow_volume,
            )

    def _rest_catalogs(
        self, tableflow_cluster: Resource[Cluster] | None, open_catalog: OpenCatalogClient | None
    ) -> Iterator[RestTables]:
        """Yield the REST catalogs that Snowflake also shows: the environment's with the tables of Spark, and the Open
        Catalog with those of Tableflow."""
        tables = partial(
            RestTables,
            administrator=self._administrator,
            role=self.names.snowflake("ROLE"),
            warehouse=self.names.snowflake("WAREHOUSE"),
        )
        if self.rest_catalog:
            yield tables(
                part="rest",
                catalog_label="the REST catalog",
                rest_catalog=self.rest_catalog,
                namespace=self.config.namespace,
                sources=self._spark_sources,
                integration_name=self.names.snowflake("REST"),
                schema=self._schema("snowflake/rest_schema", f"{self._schema_name}_REST"),
                volume=self.volume,
            )
        if tableflow_cluster and open_catalog:
            yield tables(
                part="open_catalog",
                catalog_label="the Open Catalog",
                rest_catalog=partial(_rest_catalog, open_catalog),
                namespace=open_catalog.declared.namespace or tableflow_cluster,
                sources=self._tableflow_sources,
                integration_name=self.names.snowflake("OPEN_CATALOG"),
                schema=self._schema("snowflake/open_catalog_schema", f"{self._schema_name}_OPEN_CATALOG"),
                volume=self.tableflow_volume,
            )

    @property
    def _spark_sources(self) -> tuple[Source, ...]:
        topics = self.config.topics.values()
        return tuple(_source(topic, topic.table) for topic in topics if topic.is_ingested)

    @property
    def _tableflow_sources(self) -> tuple[Source, ...]:
        topics = self.config.topics.values()
        return tuple(_source(topic, topic.topic) for topic in topics if not topic.is_ingested)

    def _volume(self, address: str, name: str, bucket: str) -> ExternalVolume:
        # Snowflake has one user in AWS for all volumes of an account, so all have one external id in the trust policy.
        location, role_arn = f"s3://{bucket}/", self.names.role_arn("snowflake")
        external_id = self.names.external_id("volume")
        creation = sql.create_external_volume(
            name,
            location=location,
            role_arn=role_arn,
            external_id=external_id,
            comment=self._administrator.comment,
        )
        return ExternalVolume(
            address,
            self._administrator,
            kind="EXTERNAL VOLUME",
            identifier=(name,),
            creation=creation,
            declared={
                "STORAGE_BASE_URL": location,
                "STORAGE_AWS_ROLE_ARN": role_arn,
                "STORAGE_AWS_EXTERNAL_ID": external_id,
            },
        )

    def _schema(self, address: str, name: str) -> Container:
        creation = sql.create_schema(self._database_name, name, comment=self._administrator.comment)
        return Container(
            address,
            self._administrator,
            kind="SCHEMA",
            identifier=(self._database_name, name),
            creation=creation,
            after=(self.database,),
        )

    @cached_property
    def _administrator(self) -> Administrator:
        return Administrator(self.session, self.names.owner)

    @property
    def _database_name(self) -> str:
        return self.names.snowflake("DATABASE")

    @property
    def _schema_name(self) -> str:
        return naming.snowflake_name(self.config.namespace)


def _source(topic: Topic, catalog_table: str) -> Source:
    return Source(naming.snowflake_name(topic.table), catalog_table)


def _rest_catalog(client: OpenCatalogClient) -> RestCatalog:
    """Return the Open Catalog as Snowflake enters it."""
    declared = client.declared
    client_id, client_secret = client.credentials()
    return RestCatalog(
        uri=declared.endpoint,
        warehouse=declared.warehouse,
        client_id=client_id,
        client_secret=client_secret,
        scope=declared.scope,
        move="notify",
    )
