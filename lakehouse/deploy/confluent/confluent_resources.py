"""The resources of a deployment in Confluent Cloud."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

from lakehouse.config.deployment import Deployment
from lakehouse.config.loader import Config
from lakehouse.core.polling import SYSTEM_CLOCK, Clock
from lakehouse.deploy.aws.bucket import BucketState
from lakehouse.deploy.confluent.access.declared_access import ASSIGNER, DeclaredAccess
from lakehouse.deploy.confluent.access.permissions import PermissionsReport
from lakehouse.deploy.confluent.access.service_accounts import (
    AclsResource,
    RoleBindingsResource,
    RoleScopes,
    ServiceAccountResource,
)
from lakehouse.deploy.confluent.compute_pool import ComputePoolResource
from lakehouse.deploy.confluent.existing_cluster import ExistingCluster, ExistingEnvironment
from lakehouse.deploy.confluent.flink_resources import FlinkTopicResource, StatementResource
from lakehouse.deploy.confluent.foundation import ClusterResource, EnvironmentResource, SchemaRegistryResource
from lakehouse.deploy.confluent.keys.stored_api_keys import (
    ApiKeyResource,
    CatalogKeyResource,
    FlinkKeyResource,
    KafkaKeyResource,
    ManagerKeyResource,
    RegistryKeyResource,
    TableflowKeyResource,
)
from lakehouse.deploy.confluent.rotation_key import RotationKeyResource
from lakehouse.deploy.confluent.tableflow.tableflow_resources import TableflowResources
from lakehouse.deploy.confluent.topics.declared_topics import DeclaredTopics, milliseconds
from lakehouse.deploy.confluent.topics.topic_resources import DatagenResource, DeclaredTopicResource
from lakehouse.deploy.names import ROTATION, Names
from lakehouse.deploy.resource import Resource
from resources.aws.secrets_manager import Secrets
from resources.confluent.confluent_cloud import ConfluentCloud

KAFKA_ACCOUNTS = ("app_manager", "app_consumer", "app_producer", "spark")
"""Purposes of the accounts that have a key for the Kafka cluster."""


@dataclass(frozen=True)
class ConfluentResources:
    """The resources in Confluent Cloud. Those that other clouds refer to, or that occur often, are properties."""

    cloud: ConfluentCloud
    secrets: Secrets
    names: Names
    config: Config
    deployment: Deployment
    clock: Clock = SYSTEM_CLOCK

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
            *self._compute,
            *self.role_bindings.values(),
            *self.keys,
            *self.declared_topics.values(),
            *self.acls.values(),
            *self.connectors.values(),
            *self.statements.values(),
            *self.flink_topics.values(),
            *self.tableflow.all(confluent_role, bucket),
            self._permissions,
        ]

    @property
    def has_tableflow(self) -> bool:
        """True if Tableflow creates any table."""
        return bool(self._topics.tables)

    @property
    def has_tableflow_bucket(self) -> bool:
        """True if Tableflow creates any table in a bucket of the account."""
        return self.has_tableflow and self.deployment.tableflow.storage == "own_bucket"

    @cached_property
    def tableflow(self) -> TableflowResources:
        """The resources of Tableflow, of which there may be none."""
        return TableflowResources(self, self._topics)

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
    def _compute(self) -> tuple[ComputePoolResource, ...]:
        return (self.compute_pool,) if self.deployment.flink else ()

    @cached_property
    def accounts(self) -> dict[str, ServiceAccountResource]:
        """The service accounts by purpose."""
        return {
            purpose: ServiceAccountResource(
                *self.common,
                secrets=self.secrets,
                purpose=purpose,
                secret_names=tuple(name for (owner, _), name in self.secret_names.items() if owner == purpose),
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
    def secret_names(self) -> dict[tuple[str, str], str]:
        """The secret of each key, by purpose of the account and API (the kickstarter's layout)."""
        paths = {(purpose, "kafka"): f"kafka_cluster/{purpose}/python_client" for purpose in KAFKA_ACCOUNTS}
        paths["schema_registry", "schema_registry"] = "schema_registry_cluster/python_client"
        paths["spark", "schema_registry"] = "schema_registry_cluster/spark/python_client"
        paths["app_manager", "tableflow"] = "tableflow"
        if self._topics.stored_by_confluent:
            paths["spark", "tableflow"] = "tableflow/spark/python_client"
        paths["flink", "flink"] = "flink"
        paths[ROTATION, "cloud"] = ROTATION
        return {key: f"{self.names.confluent_secrets}/{path}" for key, path in paths.items() if self._is_needed(key[1])}

    @cached_property
    def keys(self) -> list[ApiKeyResource]:
        """All API keys."""
        return [
            self.manager_key,
            *(self._kafka_key(purpose) for purpose in KAFKA_ACCOUNTS if purpose != "app_manager"),
            self.registry_key,
            self._registry_key("spark"),
            *([self.tableflow_key] if self.has_tableflow else ()),
            *([self._catalog_key] if self._topics.stored_by_confluent else ()),
            *([self.flink_key] if self.deployment.flink else ()),
            # The last, with which a rotation replaces the others.
            self.rotation_key,
        ]

    @cached_property
    def manager_key(self) -> KafkaKeyResource:
        """The key with which topics and access control lists are created."""
        return self._kafka_key("app_manager", ManagerKeyResource)

    @cached_property
    def registry_key(self) -> RegistryKeyResource:
        """The key with which subjects are listed."""
        return self._registry_key("schema_registry")

    @cached_property
    def tableflow_key(self) -> TableflowKeyResource:
        """The key for Tableflow, created only if Tableflow creates any table."""
        return TableflowKeyResource(
            *self.common,
            account=self.accounts["app_manager"],
            secret=self.secret_names["app_manager", "tableflow"],
            roles=self.role_bindings["app_manager"],
            cluster=self.cluster,
        )

    @property
    def _catalog_key(self) -> CatalogKeyResource:
        """The key with which Spark and Dagster read the tables in Confluent's storage."""
        return CatalogKeyResource(
            *self.common,
            account=self.accounts["spark"],
            secret=self.secret_names["spark", "tableflow"],
            roles=self.role_bindings["spark"],
            environment=self.environment,
        )

    @cached_property
    def flink_key(self) -> FlinkKeyResource:
        """The key for Flink, created only for statements."""
        return FlinkKeyResource(
            *self.common,
            account=self.accounts["flink"],
            secret=self.secret_names["flink", "flink"],
            roles=self.role_bindings["flink"],
            environment=self.environment,
            compute_pool=self.compute_pool,
        )

    @cached_property
    def rotation_key(self) -> RotationKeyResource:
        """The key with which keys are replaced."""
        return RotationKeyResource(
            *self.common,
            account=self.accounts[ROTATION],
            secret=self.secret_names[ROTATION, "cloud"],
            roles=self.role_bindings[ROTATION],
            recorded=(self.environment, self.cluster, self.registry, *self._compute),
        )

    @cached_property
    def declared_topics(self) -> dict[str, DeclaredTopicResource]:
        """The topics that Flink does not create, and those that receive dead letters, by entry."""
        declared = {
            each.name: self._declared_topic(
                each.name,
                each.topic,
                each.partitions,
                holds_data=each.source.is_external or each in self._topics.stored_by_confluent,
                retention_ms=milliseconds(each.retention.records) if each.retention.records else None,
                compacted=each in self._topics.upserted,
            )
            for each in self._topics.all
            if each.topic not in self._topics.statements
        }
        letters = {
            f"{each.name}/dead_letters": self._declared_topic(f"{each.name}/dead_letters", topic, each.partitions)
            for topic, each in self._topics.dead_letters.items()
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
                manager_key=self.manager_key,
            )
            for purpose, allowed in self._access.acls.items()
        }

    @cached_property
    def connectors(self) -> dict[str, DatagenResource]:
        """The Datagen connectors by entry."""
        return {
            each.name: DatagenResource(
                *self.common,
                entry=each.name,
                connector=source.connector(each.name),
                topic_name=each.topic,
                settings=source.connector_settings(self.config, each),
                subject=each.subject("value"),
                cluster=self.cluster,
                registry=self.registry,
                account=self.accounts["app_connector"],
                acls=self.acls["app_connector"],
                topic=self.declared_topics[each.name],
                registry_key=self.registry_key,
            )
            for each, source in self._topics.generated
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
                flink_key=self.flink_key,
                after=tuple(self.connectors.values()),
            )
            for name, sql in self.deployment.flink.items()
        }

    @cached_property
    def flink_topics(self) -> dict[str, FlinkTopicResource]:
        """The topics that Flink statements create, by entry."""
        return {
            each.name: FlinkTopicResource(
                *self.common,
                entry=each.name,
                topic=each.topic,
                cluster=self.cluster,
                manager_key=self.manager_key,
                is_in_existing_cluster=bool(self.names.existing.confluent_cluster),
                holds_data=each in self._topics.stored_by_confluent,
                statement=self.statements[self._topics.statements[each.topic]],
            )
            for each in self._topics.all
            if each.topic in self._topics.statements
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
            manager_key=self.manager_key,
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
            manager_key=self.manager_key,
            is_in_existing_cluster=bool(self.names.existing.confluent_cluster),
            partitions=partitions,
            holds_data=holds_data,
            retention_ms=retention_ms,
            compacted=compacted,
        )

    def _kafka_key(self, purpose: str, kind: type[KafkaKeyResource] = KafkaKeyResource) -> KafkaKeyResource:
        return kind(
            *self.common,
            account=self.accounts[purpose],
            secret=self.secret_names[purpose, "kafka"],
            roles=self.role_bindings.get(purpose),
            cluster=self.cluster,
        )

    def _registry_key(self, purpose: str) -> RegistryKeyResource:
        return RegistryKeyResource(
            *self.common,
            account=self.accounts[purpose],
            secret=self.secret_names[purpose, "schema_registry"],
            roles=self.role_bindings.get(purpose),
            registry=self.registry,
        )

    def _is_needed(self, api: str) -> bool:
        return {"tableflow": self.has_tableflow, "flink": bool(self.deployment.flink)}.get(api, True)

    @cached_property
    def _topics(self) -> DeclaredTopics:
        return DeclaredTopics(self.config, self.deployment)

    @cached_property
    def _access(self) -> DeclaredAccess:
        return DeclaredAccess(self._topics, self.names)

    @property
    def common(self) -> tuple[ConfluentCloud, Names, Clock]:
        """The first fields of every resource."""
        return self.cloud, self.names, self.clock
