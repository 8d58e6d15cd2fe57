"""The resources in Confluent Cloud that all others refer to: environment, cluster, registry, accounts and roles."""

from dataclasses import dataclass
from functools import cached_property

from lakehouse.config.deployment import Deployment
from lakehouse.config.loader import Config
from lakehouse.core.polling import SYSTEM_CLOCK, Clock
from lakehouse.deploy.confluent.access.declared_access import DeclaredAccess
from lakehouse.deploy.confluent.access.service_accounts import RoleBindingsResource, RoleScopes, ServiceAccountResource
from lakehouse.deploy.confluent.compute_pool import ComputePoolResource
from lakehouse.deploy.confluent.foundation import (
    ClusterResource,
    EnvironmentResource,
    ExistingCluster,
    ExistingEnvironment,
    SchemaRegistryResource,
)
from lakehouse.deploy.confluent.topics.declared_topics import DeclaredTopics
from lakehouse.deploy.names import ROTATION, Names
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
