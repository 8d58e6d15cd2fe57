"""The environment, its Kafka cluster, its Schema Registry and Flink's compute pool.

The environment and the cluster are the deployment's own, or existed before it and are named by lakehouse.yaml.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from lakehouse.core.errors import LakehouseError
from lakehouse.deploy.confluent.confluent_resource import LISTED_SECONDS, ConfluentResource
from lakehouse.deploy.resource import EXISTED, Outputs, Resource, T, Undeletable
from resources.confluent.clusters import READY, Cluster, Clusters, SchemaRegistryCluster, SchemaRegistryClusters
from resources.confluent.flink import READY as POOL_READY
from resources.confluent.flink import ComputePool, ComputePools, Region, Regions
from resources.confluent.organization import Environment, Environments
from resources.confluent.tableflow import ProviderIntegration, ProviderIntegrations

MINUTE = 60
CLUSTER_SECONDS = 60 * MINUTE
CLUSTER_DELETION_SECONDS = 30 * MINUTE
REGISTRY_SECONDS = 10 * MINUTE
POOL_SECONDS = 60 * MINUTE
MAX_CFU = 10


@dataclass(frozen=True, kw_only=True, repr=False)
class OwnOrExisting(ConfluentResource[T]):
    """An object of the deployment, or one that existed before it, which lakehouse.yaml names by its id."""

    key: ClassVar[str]
    """Its key of `existing` in lakehouse.yaml."""
    holds_data: bool
    """True if it has topics that external producers fill, or tables in Confluent's storage."""

    @property
    def existing_id(self) -> str:
        """The id of the existing object; empty if the deployment creates one."""
        return str(getattr(self.names.existing, self.key))

    @property
    def retained_because(self) -> str:
        return EXISTED if self.existing_id else ""

    def require_access(self, current: T | None) -> T:
        """Require that Confluent Cloud shows the existing object."""
        if current is None:
            raise LakehouseError(
                f"This Cloud API key has no access to {self.label} in Confluent Cloud. None was created in its place. "
                f"Correct `existing.{self.key}` of the deployment in lakehouse.yaml, or use a key whose account has "
                f"access"
            )
        return current


@dataclass(frozen=True, kw_only=True, repr=False)
class EnvironmentResource(OwnOrExisting[Environment]):
    """The environment. Deleting it deletes its contents, so it is retained while it has foreign resources."""

    address = "confluent/environment"
    key = "confluent_environment"

    @property
    def label(self) -> str:
        return f"environment '{self.existing_id or self.names.confluent}'"

    def read(self, outputs: Outputs) -> Environment | None:
        environments = Environments(self.cloud.client())
        if not self.existing_id:
            return environments.find(self.names.confluent)
        return self.require_access(
            next((listed for listed in environments.list() if listed.id == self.existing_id), None)
        )

    def create(self, outputs: Outputs) -> Environment:
        return Environments(self.cloud.client()).create(self.names.confluent)

    def wait_until_ready(self, outputs: Outputs, current: Environment) -> Environment:
        return current if self.existing_id else self.wait_until_listed(outputs)

    def delete(self, outputs: Outputs, current: Environment) -> None:
        Environments(self.cloud.client()).delete(current.id)
        self.wait_until_gone(lambda: self.read(outputs), LISTED_SECONDS)

    def retained(self, outputs: Outputs, current: Environment) -> str:
        clusters = Clusters(self.cloud.client(), current.id).list()
        contents: dict[str, Sequence[Cluster | ComputePool | ProviderIntegration]] = {
            "cluster": clusters,
            "compute pool": ComputePools(self.cloud.client(), current.id).list(),
            "provider integration": ProviderIntegrations(self.cloud.client(), current.id).list(),
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
class ClusterResource(OwnOrExisting[Cluster]):
    """The Kafka cluster, with all its topics."""

    address = "confluent/cluster"
    key = "confluent_cluster"
    environment: Resource[Environment]

    @property
    def label(self) -> str:
        return f"Kafka cluster '{self.existing_id or self.names.confluent}'"

    def read(self, outputs: Outputs) -> Cluster | None:
        clusters = Clusters(self.cloud.client(), outputs[self.environment].id)
        if not self.existing_id:
            return clusters.find(self.names.confluent)
        return self.require_access(clusters.get(self.existing_id))

    def create(self, outputs: Outputs) -> Cluster:
        clusters = Clusters(self.cloud.client(), outputs[self.environment].id)
        return clusters.create(self.names.confluent, self.names.region)

    def wait_until_ready(self, outputs: Outputs, current: Cluster) -> Cluster:
        if self.existing_id:
            return current
        clusters = Clusters(self.cloud.client(), outputs[self.environment].id)
        self.wait_for_phase(lambda: clusters.get(current.id), READY, CLUSTER_SECONDS)
        return self.wait_until_listed(outputs)

    def delete(self, outputs: Outputs, current: Cluster) -> None:
        clusters = Clusters(self.cloud.client(), outputs[self.environment].id)
        clusters.delete(current.id)
        self.wait_until_gone(lambda: clusters.get(current.id), CLUSTER_DELETION_SECONDS)

    def retained(self, outputs: Outputs, current: Cluster) -> str:
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
        return f"Schema Registry of '{self.names.confluent}'"

    def read(self, outputs: Outputs) -> SchemaRegistryCluster | None:
        return SchemaRegistryClusters(self.cloud.client(), outputs[self.environment].id).find()

    def create(self, outputs: Outputs) -> SchemaRegistryCluster:
        return self.wait_until_listed(outputs, REGISTRY_SECONDS)

    def wait_until_ready(self, outputs: Outputs, current: SchemaRegistryCluster) -> SchemaRegistryCluster:
        return self.wait_for_phase(lambda: self.read(outputs), READY, REGISTRY_SECONDS)


@dataclass(frozen=True)
class FlinkCompute:
    """A compute pool, and the region to whose API its statements are sent."""

    pool_id: str
    region_id: str
    http_endpoint: str

    @staticmethod
    def of(pool: ComputePool, region: Region) -> FlinkCompute:
        """Combine a compute pool and its region."""
        return FlinkCompute(pool.id, region.id, region.http_endpoint)

    @property
    def region(self) -> Region:
        """The region."""
        return Region(self.region_id, self.http_endpoint)


@dataclass(frozen=True, kw_only=True, repr=False)
class ComputePoolResource(ConfluentResource[FlinkCompute]):
    """The compute pool in which statements run."""

    address = "confluent/compute_pool"
    environment: Resource[Environment]

    @property
    def label(self) -> str:
        return f"compute pool '{self.names.confluent}'"

    def read(self, outputs: Outputs) -> FlinkCompute | None:
        pool = ComputePools(self.cloud.client(), outputs[self.environment].id).find(self.names.confluent)
        return FlinkCompute.of(pool, self._region()) if pool else None

    def require_creatable(self, outputs: Outputs) -> None:
        self._region()

    def create(self, outputs: Outputs) -> FlinkCompute:
        region = self._region()
        pools = ComputePools(self.cloud.client(), outputs[self.environment].id)
        pool = pools.create(self.names.confluent, self.names.region, MAX_CFU)
        return FlinkCompute.of(pool, region)

    def wait_until_ready(self, outputs: Outputs, current: FlinkCompute) -> FlinkCompute:
        pools = ComputePools(self.cloud.client(), outputs[self.environment].id)
        self.wait_for_phase(lambda: pools.get(current.pool_id), POOL_READY, POOL_SECONDS)
        return self.wait_until_listed(outputs, POOL_SECONDS)

    def delete(self, outputs: Outputs, current: FlinkCompute) -> None:
        pools = ComputePools(self.cloud.client(), outputs[self.environment].id)
        pools.delete(current.pool_id)
        self.wait_until_gone(lambda: pools.get(current.pool_id), POOL_SECONDS)

    def _region(self) -> Region:
        region = Regions(self.cloud.client()).find(self.names.region)
        if region is None:
            raise LakehouseError(
                f"Confluent Cloud offers no Flink in AWS region {self.names.region}. No compute pool was created. "
                f"Choose another region for deployment '{self.names.deployment}', or remove its 'flink' statements"
            )
        return region
