"""The environment, its Kafka cluster and its Schema Registry."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from lakehouse.deploy.confluent.confluent_resource import LISTED_SECONDS, ConfluentResource
from lakehouse.deploy.resource import Outputs, Resource, Undeletable
from resources.confluent.clusters import READY, Cluster, SchemaRegistryCluster
from resources.confluent.flink import ComputePool
from resources.confluent.organization import Environment
from resources.confluent.tableflow import ProviderIntegration
from resources.confluent.waiting import wait, wait_until_deleted

MINUTE = 60
CLUSTER_SECONDS = 60 * MINUTE
CLUSTER_DELETION_SECONDS = 30 * MINUTE
REGISTRY_SECONDS = 10 * MINUTE


@dataclass(frozen=True, kw_only=True, repr=False)
class EnvironmentResource(ConfluentResource[Environment]):
    """The environment. Deleting it deletes its contents, so it is retained while it has foreign resources."""

    address = "confluent/environment"
    holds_data: bool
    """True if its cluster holds data."""

    @property
    def label(self) -> str:
        """The environment with its name."""
        return f"environment '{self.names.confluent}'"

    def read(self, outputs: Outputs) -> Environment | None:
        """Read the environment by name."""
        return self.cloud.environments().find(self.names.confluent)

    def create(self, outputs: Outputs) -> Environment:
        """Create the environment."""
        return self.cloud.environments().create(self.names.confluent)

    def wait_until_ready(self, outputs: Outputs, current: Environment) -> Environment:
        """Wait until the environment is listed."""
        return self.wait_until_listed(outputs)

    def delete(self, outputs: Outputs, current: Environment) -> None:
        """Delete the environment with its contents."""
        self.cloud.environments().delete(current.id)
        wait_until_deleted(self.label, lambda: self.read(outputs), deadline_seconds=LISTED_SECONDS, clock=self.clock)

    def retained(self, outputs: Outputs, current: Environment) -> str:
        """Name resources in it that the deployment did not create, or the deletion protection of its cluster."""
        clusters = self.cloud.clusters(current.id).list()
        contents: dict[str, Sequence[Cluster | ComputePool | ProviderIntegration]] = {
            "cluster": clusters,
            "compute pool": self.cloud.compute_pools(current.id).list(),
            "provider integration": self.cloud.provider_integrations(current.id).list(),
        }
        foreign = [
            f"{kind} '{entry.name}' ({entry.id})"
            for kind, objects in contents.items()
            for entry in objects
            if entry.name != self.names.confluent
        ]
        if foreign:
            return f"contains resources that the deployment did not create: {', '.join(foreign)}"
        return "its cluster has deletion protection" if any(cluster.protected for cluster in clusters) else ""


@dataclass(frozen=True, kw_only=True, repr=False)
class ClusterResource(ConfluentResource[Cluster]):
    """The Kafka cluster, with all its topics."""

    address = "confluent/cluster"
    environment: Resource[Environment]
    holds_data: bool
    """True if it has topics that external producers fill."""

    @property
    def label(self) -> str:
        """The cluster with its name."""
        return f"Kafka cluster '{self.names.confluent}'"

    def read(self, outputs: Outputs) -> Cluster | None:
        """Read the cluster by name."""
        return self.cloud.clusters(outputs[self.environment].id).find(self.names.confluent)

    def create(self, outputs: Outputs) -> Cluster:
        """Create the cluster."""
        clusters = self.cloud.clusters(outputs[self.environment].id)
        return clusters.create(self.names.confluent, self.names.region)

    def wait_until_ready(self, outputs: Outputs, current: Cluster) -> Cluster:
        """Wait until the cluster runs and is listed."""
        clusters = self.cloud.clusters(outputs[self.environment].id)
        wait(self.label, lambda: clusters.get(current.id), READY, deadline_seconds=CLUSTER_SECONDS, clock=self.clock)
        return self.wait_until_listed(outputs)

    def delete(self, outputs: Outputs, current: Cluster) -> None:
        """Delete the cluster with all its topics."""
        clusters = self.cloud.clusters(outputs[self.environment].id)
        clusters.delete(current.id)
        wait_until_deleted(
            self.label, lambda: clusters.get(current.id), deadline_seconds=CLUSTER_DELETION_SECONDS, clock=self.clock
        )

    def retained(self, outputs: Outputs, current: Cluster) -> str:
        """Name the cluster's deletion protection."""
        return "has deletion protection" if current.protected else ""


@dataclass(frozen=True, kw_only=True, repr=False)
class SchemaRegistryResource(ConfluentResource[SchemaRegistryCluster], Undeletable[SchemaRegistryCluster]):
    """The Schema Registry, which Confluent creates with the first cluster and deletes with the environment."""

    address = "confluent/schema_registry"
    retained_because = "is deleted with the environment"
    environment: Resource[Environment]
    cluster: Resource[Cluster]

    @property
    def label(self) -> str:
        """The Schema Registry with the environment's name."""
        return f"Schema Registry of '{self.names.confluent}'"

    def read(self, outputs: Outputs) -> SchemaRegistryCluster | None:
        """Read the environment's only one."""
        return self.cloud.schema_registry_clusters(outputs[self.environment].id).find()

    def create(self, outputs: Outputs) -> SchemaRegistryCluster:
        """Wait until Confluent has created it."""
        return self.wait_until_listed(outputs, REGISTRY_SECONDS)

    def wait_until_ready(self, outputs: Outputs, current: SchemaRegistryCluster) -> SchemaRegistryCluster:
        """Wait until the Schema Registry runs."""
        return wait(self.label, lambda: self.read(outputs), READY, deadline_seconds=REGISTRY_SECONDS, clock=self.clock)
