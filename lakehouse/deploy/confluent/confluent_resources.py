"""The resources of a deployment in Confluent Cloud."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from lakehouse.config.deployment import Deployment
from lakehouse.config.model import Config
from lakehouse.core.polling import SYSTEM_CLOCK, Clock
from lakehouse.deploy.aws.bucket import BucketState
from lakehouse.deploy.confluent.access import (
    AclsResource,
    PermissionsReport,
    RoleBindingsResource,
    RoleScopes,
    ServiceAccountResource,
)
from lakehouse.deploy.confluent.api_keys import (
    ApiKeyResource,
    CatalogKeyResource,
    FlinkKeyResource,
    KafkaKeyResource,
    ManagerKeyResource,
    RegistryKeyResource,
    RotationKeyResource,
    TableflowKeyResource,
)
from lakehouse.deploy.confluent.declared import ASSIGNER, DeclaredAccess, DeclaredTopics, milliseconds, tableflow_config
from lakehouse.deploy.confluent.flink import FlinkTopicResource, StatementResource
from lakehouse.deploy.confluent.foundation import (
    ClusterResource,
    ComputePoolResource,
    EnvironmentResource,
    ExistingCluster,
    ExistingEnvironment,
    SchemaRegistryResource,
)
from lakehouse.deploy.confluent.tableflow import (
    CatalogIntegrationResource,
    GlueCatalogResource,
    OpenCatalogClient,
    OpenCatalogResource,
    OwnStorage,
    ProviderIntegrationResource,
    TableflowTopicResource,
)
from lakehouse.deploy.confluent.topics import DatagenResource, DeclaredTopicResource, TopicResource
from lakehouse.deploy.names import ROTATION, Names
from lakehouse.deploy.resource import Resource
from resources.aws.secrets_manager import Secrets
from resources.confluent.confluent_cloud import ConfluentCloud


@dataclass(frozen=True)
class BaseResources:
    """The resources that keys, topics and Tableflow refer to."""

    cloud: ConfluentCloud
    secrets: Secrets
    names: Names
    config: Config
    deployment: Deployment
    clock: Clock = SYSTEM_CLOCK

    @property
    def common(self) -> tuple[ConfluentCloud, Names, Clock]:
        """The first fields of every resource."""
        return self.cloud, self.names, self.clock

    @property
    def has_tableflow(self) -> bool:
        """True if Tableflow creates any table."""
        return bool(self._topics.tables)

    @property
    def has_tableflow_bucket(self) -> bool:
        """True if Tableflow creates any table in a bucket of the account."""
        return self.has_tableflow and self.deployment.tableflow.storage == "own_bucket"

    @cached_property
    def environment(self) -> EnvironmentResource | ExistingEnvironment:
        """The environment."""
        if existing := self.names.existing.confluent_environment:
            return ExistingEnvironment(*self.common, environment_id=existing)
        return EnvironmentResource(*self.common, holds_data=self._topics.hold_data)

    @cached_property
    def cluster(self) -> ClusterResource | ExistingCluster:
        """The Kafka cluster."""
        if existing := self.names.existing.confluent_cluster:
            return ExistingCluster(*self.common, environment=self.environment, cluster_id=existing)
        return ClusterResource(*self.common, environment=self.environment, holds_data=self._topics.hold_data)

    @cached_property
    def registry(self) -> SchemaRegistryResource:
        """The Schema Registry."""
        return SchemaRegistryResource(*self.common, environment=self.environment, cluster=self.cluster)

    @cached_property
    def compute_pool(self) -> ComputePoolResource:
        """Flink's compute pool, created only for statements."""
        return ComputePoolResource(*self.common, environment=self.environment)

    @property
    def compute(self) -> tuple[ComputePoolResource, ...]:
        """The compute pool; empty without statements."""
        return (self.compute_pool,) if self.deployment.flink else ()

    @cached_property
    def accounts(self) -> dict[str, ServiceAccountResource]:
        """The service accounts by purpose."""
        return {
            purpose: ServiceAccountResource(
                *self.common,
                secrets=self.secrets,
                purpose=purpose,
                secret_names=tuple(name for (owner, _), name in self._access.secrets.items() if owner == purpose),
            )
            for purpose in self._access.accounts
        }

    @cached_property
    def role_bindings(self) -> dict[str, RoleBindingsResource]:
        """The role bindings by purpose of the account."""
        return {
            purpose: RoleBindingsResource(
                *self.common,
                roles=roles,
                account=self.accounts[purpose],
                scopes=RoleScopes(self.environment, self.cluster, self.registry),
                owned=tuple(self.accounts.values()) if purpose == ROTATION else (),
            )
            for purpose, roles in self._access.roles.items()
        }

    @cached_property
    def _topics(self) -> DeclaredTopics:
        return DeclaredTopics(self.config, self.deployment)

    @cached_property
    def _access(self) -> DeclaredAccess:
        return DeclaredAccess(self._topics, self.names)


@dataclass(frozen=True)
class KeyResources:
    """The keys of the service accounts by purpose and API."""

    base: BaseResources
    secrets: Mapping[tuple[str, str], str]
    """The secret of each key, by purpose of the account and API."""

    @property
    def all(self) -> list[ApiKeyResource]:
        """All keys, dependencies first."""
        return list(self._keys.values())

    @property
    def manager(self) -> ApiKeyResource:
        """The key with which topics and access control lists are created."""
        return self._keys["app_manager", "kafka"]

    @property
    def registry(self) -> ApiKeyResource:
        """The key with which subjects are listed."""
        return self._keys["schema_registry", "schema_registry"]

    @property
    def tableflow(self) -> ApiKeyResource:
        """The key for Tableflow, created only if Tableflow creates any table."""
        return self._keys["app_manager", "tableflow"]

    @property
    def flink(self) -> ApiKeyResource:
        """The key for Flink, created only for statements."""
        return self._keys["flink", "flink"]

    @cached_property
    def _keys(self) -> dict[tuple[str, str], ApiKeyResource]:
        return {(purpose, api): self._key(purpose, api) for purpose, api in self.secrets}

    def _key(self, purpose: str, api: str) -> ApiKeyResource:
        """Return the key of an account for an API."""
        base = self.base
        fields: dict[str, Any] = {
            "account": base.accounts[purpose],
            "secret": self.secrets[purpose, api],
            "roles": base.role_bindings.get(purpose),
        }
        match api, purpose:
            case "kafka", _:
                kind = ManagerKeyResource if purpose == "app_manager" else KafkaKeyResource
                return kind(*base.common, **fields, cluster=base.cluster)
            case "schema_registry", _:
                return RegistryKeyResource(*base.common, **fields, registry=base.registry)
            case "tableflow", "spark":
                return CatalogKeyResource(*base.common, **fields, environment=base.environment)
            case "tableflow", _:
                return TableflowKeyResource(*base.common, **fields, cluster=base.cluster)
            case "flink", _:
                fields |= {"environment": base.environment, "compute_pool": base.compute_pool}
                return FlinkKeyResource(*base.common, **fields)
            case _:
                recorded = (base.environment, base.cluster, base.registry, *base.compute)
                return RotationKeyResource(*base.common, **fields, recorded=recorded)


@dataclass(frozen=True)
class TableflowResources:
    """Resources of Tableflow. In Confluent's own storage there are only the topics."""

    base: BaseResources
    topics: DeclaredTopics
    keys: KeyResources
    topic_resources: Mapping[str, TopicResource]
    """The topics in Kafka by entry."""
    producers: Mapping[str, Resource[Any]]
    """The resources that write the records of topics, by entry; external producers write those of all others."""

    def all(self, confluent_role: Resource[Any] | None, bucket: Resource[BucketState] | None) -> list[Resource[Any]]:
        """List the resources after the provider integration, dependencies first.

        Args:
            confluent_role: The IAM role that Tableflow assumes; None if it creates no table in the account.
            bucket: The bucket of its tables; None in the same case.
        """
        if confluent_role is None or bucket is None:
            return list(self._tables(None, ()))
        # Tableflow acts with the permissions of its key's owner.
        assigner = RoleBindingsResource(
            *self.base.common,
            roles=(ASSIGNER,),
            account=self.base.accounts["app_manager"],
            scopes=RoleScopes(self.base.environment, integration=self.provider_integration),
            part="provider_integration",
        )
        catalogs = tuple(self._catalogs((assigner, confluent_role, bucket)))
        return [assigner, *catalogs, *self._tables(OwnStorage(bucket, self.provider_integration), catalogs)]

    @cached_property
    def provider_integration(self) -> ProviderIntegrationResource:
        """Tableflow's way into AWS, created only if Tableflow creates any table there."""
        return ProviderIntegrationResource(*self.base.common, environment=self.base.environment)

    @cached_property
    def open_catalog(self) -> OpenCatalogClient | None:
        """The client of the Open Catalog in which Tableflow registers its tables; None if it does not."""
        declared = self.base.deployment.tableflow.open_catalog
        is_used = declared and self.base.has_tableflow_bucket
        return OpenCatalogClient(declared, self.base.secrets) if declared and is_used else None

    def _catalogs(self, after: tuple[Resource[Any], ...]) -> Iterator[CatalogIntegrationResource]:
        yield GlueCatalogResource(
            *self.base.common,
            cluster=self.base.cluster,
            tableflow_key=self.keys.tableflow,
            provider_integration=self.provider_integration,
            after=after,
        )
        if self.open_catalog:
            yield OpenCatalogResource(
                *self.base.common,
                cluster=self.base.cluster,
                tableflow_key=self.keys.tableflow,
                client=self.open_catalog,
            )

    def _tables(
        self, storage: OwnStorage | None, catalogs: tuple[CatalogIntegrationResource, ...]
    ) -> Iterator[TableflowTopicResource]:
        for topic in self.topics.tables:
            yield TableflowTopicResource(
                *self.base.common,
                entry=topic.name,
                topic_name=topic.topic,
                subject=topic.subject("value"),
                config=tableflow_config(topic),
                visible=topic.visible,
                write_mode="UPSERT" if topic in self.topics.upserted else "APPEND",
                cluster=self.base.cluster,
                registry=self.base.registry,
                topic=self.topic_resources[topic.name],
                catalogs=catalogs,
                storage=storage,
                tableflow_key=self.keys.tableflow,
                registry_key=self.keys.registry,
                filled_by=self.producers.get(topic.name),
            )


@dataclass(frozen=True)
class ConfluentResources(BaseResources):
    """The resources in Confluent Cloud. Those that other clouds refer to, or that occur often, are properties."""

    def all(self, confluent_role: Resource[Any] | None, bucket: Resource[BucketState] | None) -> list[Resource[Any]]:
        """List the resources, dependencies first, apart from those in AWS.

        Args:
            confluent_role: The IAM role that Tableflow assumes; None if Tableflow creates no table in the account.
            bucket: The bucket of Tableflow's tables; None in the same case.
        """
        return [
            # The first to be created and the last to be deleted: they bear the mark of ownership.
            *self.accounts.values(),
            self.environment,
            # Before the cluster: when it is deleted, after the cluster, nothing is left that could use it.
            *([self.tableflow.provider_integration] if self.has_tableflow_bucket else ()),
            self.cluster,
            self.registry,
            *self.compute,
            *self.role_bindings.values(),
            *self.keys.all,
            *self.declared_topics.values(),
            *self.acls.values(),
            *self.connectors.values(),
            *self.statements.values(),
            *self.flink_topics.values(),
            *self.tableflow.all(confluent_role, bucket),
            self._permissions,
        ]

    @cached_property
    def tableflow(self) -> TableflowResources:
        """The resources of Tableflow, of which there may be none."""
        topics = {**self.declared_topics, **self.flink_topics}
        statements = {entry: topic.statement for entry, topic in self.flink_topics.items()}
        return TableflowResources(self, self._topics, self.keys, topics, producers={**statements, **self.connectors})

    @cached_property
    def keys(self) -> KeyResources:
        """The API keys."""
        return KeyResources(self, self._access.secrets)

    @cached_property
    def declared_topics(self) -> dict[str, DeclaredTopicResource]:
        """The topics that Flink does not create, and those that receive dead letters, by entry."""
        declared = {
            topic.name: self._declared_topic(
                topic.name,
                topic.topic,
                topic.partitions,
                holds_data=topic.source.is_external or topic in self._topics.stored_by_confluent,
                retention_ms=milliseconds(topic.retention.records) if topic.retention.records else None,
                compacted=topic in self._topics.upserted,
            )
            for topic in self._topics.all
            if topic.topic not in self._topics.statements
        }
        letters = {
            f"{topic.name}/dead_letters": self._declared_topic(f"{topic.name}/dead_letters", name, topic.partitions)
            for name, topic in self._topics.dead_letters.items()
        }
        return declared | letters

    @cached_property
    def acls(self) -> dict[str, AclsResource]:
        """The access control lists by purpose of the account."""
        return {
            purpose: AclsResource(
                *self.common,
                allowed=allowed,
                account=self.accounts[purpose],
                cluster=self.cluster,
                manager_key=self.keys.manager,
            )
            for purpose, allowed in self._access.acls.items()
        }

    @cached_property
    def connectors(self) -> dict[str, DatagenResource]:
        """The Datagen connectors by entry."""
        return {
            topic.name: DatagenResource(
                *self.common,
                entry=topic.name,
                connector=source.connector(topic.name),
                topic_name=topic.topic,
                settings=source.connector_settings(self.config, topic),
                subject=topic.subject("value"),
                cluster=self.cluster,
                registry=self.registry,
                account=self.accounts["app_connector"],
                acls=self.acls["app_connector"],
                visible=topic.visible,
                topic=self.declared_topics[topic.name],
                registry_key=self.keys.registry,
            )
            for topic, source in self._topics.generated
        }

    @cached_property
    def statements(self) -> dict[str, StatementResource]:
        """The Flink statements by declared name."""
        return {
            name: StatementResource(
                *self.common,
                declared_name=name,
                sql=sql,
                environment=self.environment,
                cluster=self.cluster,
                account=self.accounts["flink"],
                compute_pool=self.compute_pool,
                flink_key=self.keys.flink,
                manager_key=self.keys.manager,
                visible=self._topics.visible,
                after=tuple(self.connectors.values()),
            )
            for name, sql in self.deployment.flink.items()
        }

    @cached_property
    def flink_topics(self) -> dict[str, FlinkTopicResource]:
        """The topics that Flink statements create, by entry."""
        return {
            topic.name: FlinkTopicResource(
                *self.common,
                entry=topic.name,
                topic=topic.topic,
                cluster=self.cluster,
                manager_key=self.keys.manager,
                is_in_existing_cluster=bool(self.names.existing.confluent_cluster),
                holds_data=topic in self._topics.stored_by_confluent,
                statement=self.statements[self._topics.statements[topic.topic]],
            )
            for topic in self._topics.all
            if topic.topic in self._topics.statements
        }

    @property
    def _permissions(self) -> PermissionsReport:
        roles = self._access.roles
        scopes = RoleScopes(self.environment, self.cluster, self.registry)
        if self.has_tableflow_bucket:
            roles = roles | {"app_manager": (*roles["app_manager"], ASSIGNER)}
            scopes = scopes._replace(integration=self.tableflow.provider_integration)
        return PermissionsReport(
            *self.common,
            roles=roles,
            allowed=self._access.acls,
            scopes=scopes,
            cluster=self.cluster,
            accounts=tuple(self.accounts.values()),
            manager_key=self.keys.manager,
        )

    def _declared_topic(
        self,
        entry: str,
        topic: str,
        partitions: int,
        *,
        holds_data: bool = False,
        retention_ms: int | None = None,
        compacted: bool = False,
    ) -> DeclaredTopicResource:
        return DeclaredTopicResource(
            *self.common,
            entry=entry,
            topic=topic,
            cluster=self.cluster,
            manager_key=self.keys.manager,
            is_in_existing_cluster=bool(self.names.existing.confluent_cluster),
            partitions=partitions,
            holds_data=holds_data,
            retention_ms=retention_ms,
            compacted=compacted,
        )
