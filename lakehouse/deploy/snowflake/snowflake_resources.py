"""The resources of a deployment in Snowflake: what it needs to show the tables of Glue or more, and who may use it."""

from collections.abc import Callable, Iterator, Mapping, Sequence
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
    CatalogTable,
    GlueIntegration,
    IcebergTables,
    RestAccessVerification,
    RestIntegration,
)
from lakehouse.deploy.snowflake.objects import AccessVerification, AccountObject, Container, ExternalVolume
from resources.aws.glue import Glue
from resources.aws.secrets_manager import Secrets
from resources.confluent.clusters import Cluster
from resources.iceberg.rest_catalog import RestCatalog
from resources.snowflake import sql
from resources.snowflake.session import SnowflakeSession


def snowflake_resources(
    session: SnowflakeSession,
    secrets: Secrets,
    names: Names,
    config: Config,
    snowflake_role: Resource[Any],
    *,
    tableflow_cluster: Resource[Cluster] | None = None,
    rest_catalog: Callable[[], RestCatalog] | None = None,
    open_catalog: OpenCatalogClient | None = None,
    clock: Clock = SYSTEM_CLOCK,
) -> list[Resource[Any]]:
    """List the resources, dependencies first, apart from those in AWS and Confluent Cloud.

    Args:
        session: A session of an administrator.
        secrets: Hold the keys of the users.
        names: The names of the deployment's resources.
        config: lakehouse.yaml.
        snowflake_role: The IAM role that Snowflake assumes.
        tableflow_cluster: The Kafka cluster; None if Tableflow creates no table in the AWS account.
        rest_catalog: Returns the environment's REST catalog; None if it has none.
        open_catalog: The client of the Open Catalog in which Tableflow registers its tables; None if it does not.
        clock: Measures how long Snowflake's access is waited for.
    """
    administrator = Administrator(session, names.owner)
    users = service_users(session, secrets, names, config)
    database = _database(administrator, names)
    schema = _schema(administrator, database, "snowflake/schema", naming.snowflake_name(config.namespace))
    volumes = {names.bucket: spark_volume(administrator, names)}
    if tableflow_cluster:
        volumes[names.tableflow_bucket] = _volume(
            administrator, names, "snowflake/tableflow_volume", "TABLEFLOW_VOLUME", names.tableflow_bucket
        )
    integration = glue_integration(administrator, names, config)
    catalogs = list(
        _rest_catalogs(administrator, names, config, database, volumes, rest_catalog, tableflow_cluster, open_catalog)
    )
    objects = [
        *users.objects(),
        _warehouse(administrator, names),
        database,
        schema,
        *volumes.values(),
        integration,
        *(resource for catalog in catalogs for resource in (catalog.schema, catalog.integration)),
    ]
    declared = *users.grants(), *_grants(names, schema, volumes, integration, catalogs)
    grants = Grants("snowflake/grants", administrator, declared=declared, after=tuple(objects))
    return [
        *objects,
        grants,
        *users.keys(grants),
        *_verifications(administrator, names, snowflake_role, volumes, integration, clock),
        *(catalog.verification(clock) for catalog in catalogs),
        *_glue_tables(administrator, names, config, schema, volumes, integration, tableflow_cluster),
        *(catalog.tables for catalog in catalogs),
    ]


def service_users(session: SnowflakeSession, secrets: Secrets, names: Names, config: Config) -> ServiceUsers:
    """Return the roles, users and key pairs."""
    namespace = f"{names.snowflake('DATABASE')}.{naming.snowflake_name(config.namespace)}"
    return ServiceUsers(session, secrets, names, namespace)


def spark_volume(administrator: Administrator, names: Names) -> ExternalVolume:
    """Return the external volume over the bucket of Spark's tables."""
    return _volume(administrator, names, "snowflake/volume", "VOLUME", names.bucket)


def glue_integration(administrator: Administrator, names: Names, config: Config) -> GlueIntegration:
    """Return the catalog integration with Glue."""
    name, role_arn, external_id = names.snowflake("GLUE"), names.role_arn("snowflake"), names.external_id("catalog")
    creation = sql.create_glue_rest_integration(
        name,
        role_arn=role_arn,
        external_id=external_id,
        catalog_id=names.account,
        region=names.region,
        namespace=config.namespace,
        comment=administrator.comment,
    )
    return GlueIntegration(
        "snowflake/integration",
        administrator,
        kind="CATALOG INTEGRATION",
        identifier=(name,),
        creation=creation,
        declared={
            "CATALOG_NAMESPACE": config.namespace,
            "API_AWS_EXTERNAL_ID": external_id,
            "SIGV4_IAM_ROLE": role_arn,
            "SIGV4_SIGNING_REGION": names.region,
            REFRESH: str(sql.REFRESH_SECONDS),
        },
    )


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
    sources: tuple[CatalogTable, ...]
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


def _rest_catalogs(
    administrator: Administrator,
    names: Names,
    config: Config,
    database: Container,
    volumes: Mapping[str, ExternalVolume],
    rest_catalog: Callable[[], RestCatalog] | None,
    tableflow_cluster: Resource[Cluster] | None,
    open_catalog: OpenCatalogClient | None,
) -> Iterator[RestTables]:
    """Yield the REST catalogs that Snowflake also shows: the environment's with the tables of Spark, and the Open
    Catalog with those of Tableflow.
    """
    schema = naming.snowflake_name(config.namespace)
    tables = partial(
        RestTables,
        administrator=administrator,
        role=names.snowflake("ROLE"),
        warehouse=names.snowflake("WAREHOUSE"),
    )
    if rest_catalog:
        yield tables(
            part="rest",
            catalog_label="the REST catalog",
            rest_catalog=rest_catalog,
            namespace=config.namespace,
            sources=_spark_tables(config),
            integration_name=names.snowflake("REST"),
            schema=_schema(administrator, database, "snowflake/rest_schema", f"{schema}_REST"),
            volume=volumes[names.bucket],
        )
    if tableflow_cluster and open_catalog:
        yield tables(
            part="open_catalog",
            catalog_label="the Open Catalog",
            rest_catalog=partial(_open_rest_catalog, open_catalog),
            namespace=open_catalog.declared.namespace or tableflow_cluster,
            sources=_tableflow_tables(config),
            integration_name=names.snowflake("OPEN_CATALOG"),
            schema=_schema(administrator, database, "snowflake/open_catalog_schema", f"{schema}_OPEN_CATALOG"),
            volume=volumes[names.tableflow_bucket],
        )


def _verifications(
    administrator: Administrator,
    names: Names,
    snowflake_role: Resource[Any],
    volumes: Mapping[str, ExternalVolume],
    integration: GlueIntegration,
    clock: Clock,
) -> Iterator[AccessVerification]:
    for bucket, volume in volumes.items():
        yield AccessVerification(
            f"{volume.address}_verified",
            administrator,
            label=f"Snowflake's access to {bucket}",
            question=sql.verify_external_volume(volume.identifier[0]),
            after=(volume, snowflake_role),
            clock=clock,
        )
    yield AccessVerification(
        "snowflake/integration_verified",
        administrator,
        label=f"Snowflake's access to Glue in {names.region}",
        question=sql.verify_catalog_integration(integration.identifier[0]),
        after=(integration, snowflake_role),
        clock=clock,
    )


def _glue_tables(
    administrator: Administrator,
    names: Names,
    config: Config,
    schema: Container,
    volumes: Mapping[str, ExternalVolume],
    integration: GlueIntegration,
    tableflow_cluster: Resource[Cluster] | None,
) -> Iterator[IcebergTables]:
    glue = Glue(region=names.region, catalog_id=names.account)
    # Not after the verifications: the tables can be deleted also when access is broken.
    tables = partial(
        IcebergTables,
        administrator=administrator,
        schema=schema,
        role=names.snowflake("ROLE"),
        warehouse=names.snowflake("WAREHOUSE"),
        integration=integration.identifier[0],
        after=(integration,),
        is_registered=lambda database, table: glue.registration(database, table) is not None,
    )
    spark, volume = _spark_tables(config), volumes[names.bucket]
    yield tables("snowflake/tables", sources=spark, namespace=config.namespace, volume=volume)
    if tableflow_cluster:
        # Tableflow's database in Glue is named by the cluster's id.
        yield tables(
            "snowflake/tableflow_tables",
            sources=_tableflow_tables(config),
            namespace=tableflow_cluster,
            volume=volumes[names.tableflow_bucket],
        )


def _grants(
    names: Names,
    schema: Container,
    volumes: Mapping[str, ExternalVolume],
    integration: GlueIntegration,
    catalogs: Sequence[RestTables],
) -> Iterator[Grant]:
    role, database = names.snowflake("ROLE"), names.snowflake("DATABASE")
    yield privilege("USAGE", "WAREHOUSE", (names.snowflake("WAREHOUSE"),), role)
    yield privilege("USAGE", "DATABASE", (database,), role)
    yield privilege("USAGE", "SCHEMA", schema.identifier, role)
    yield privilege("CREATE ICEBERG TABLE", "SCHEMA", schema.identifier, role)
    for volume in volumes.values():
        yield privilege("USAGE", "EXTERNAL VOLUME", volume.identifier, role)
    yield privilege("USAGE", "INTEGRATION", integration.identifier, role)
    yield reading(database, schema.identifier[1], role)
    for catalog in catalogs:
        yield from catalog.grants


def _warehouse(administrator: Administrator, names: Names) -> AccountObject:
    name = names.snowflake("WAREHOUSE")
    return AccountObject(
        "snowflake/warehouse",
        administrator,
        kind="WAREHOUSE",
        identifier=(name,),
        creation=sql.create_warehouse(name, comment=administrator.comment),
        existing=bool(names.existing.snowflake_warehouse),
    )


def _database(administrator: Administrator, names: Names) -> Container:
    name = names.snowflake("DATABASE")
    return Container(
        "snowflake/database",
        administrator,
        kind="DATABASE",
        identifier=(name,),
        creation=sql.create_database(name, comment=administrator.comment),
        existing=bool(names.existing.snowflake_database),
    )


def _schema(administrator: Administrator, database: Container, address: str, name: str) -> Container:
    identifier = (*database.identifier, name)
    return Container(
        address,
        administrator,
        kind="SCHEMA",
        identifier=identifier,
        creation=sql.create_schema(*identifier, comment=administrator.comment),
        after=(database,),
    )


def _volume(administrator: Administrator, names: Names, address: str, purpose: str, bucket: str) -> ExternalVolume:
    # Snowflake has one user in AWS for all volumes of an account, so all have one external id in the trust policy.
    name, location, role_arn = names.snowflake(purpose), f"s3://{bucket}/", names.role_arn("snowflake")
    external_id = names.external_id("volume")
    creation = sql.create_external_volume(
        name, location=location, role_arn=role_arn, external_id=external_id, comment=administrator.comment
    )
    return ExternalVolume(
        address,
        administrator,
        kind="EXTERNAL VOLUME",
        identifier=(name,),
        creation=creation,
        declared={
            "STORAGE_BASE_URL": location,
            "STORAGE_AWS_ROLE_ARN": role_arn,
            "STORAGE_AWS_EXTERNAL_ID": external_id,
        },
    )


def _spark_tables(config: Config) -> tuple[CatalogTable, ...]:
    return tuple(_table(topic, topic.table) for topic in config.topics.values() if topic.is_ingested)


def _tableflow_tables(config: Config) -> tuple[CatalogTable, ...]:
    return tuple(_table(topic, topic.topic) for topic in config.topics.values() if not topic.is_ingested)


def _table(topic: Topic, catalog_table: str) -> CatalogTable:
    return CatalogTable(naming.snowflake_name(topic.table), catalog_table)


def _open_rest_catalog(client: OpenCatalogClient) -> RestCatalog:
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
