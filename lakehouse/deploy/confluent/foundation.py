"""What everything in Confluent Cloud stands on: the environment, its Kafka cluster and its Schema Registry."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from lakehouse.core.polling import REAL, Clock
from lakehouse.deploy.names import Names
from lakehouse.deploy.step import Found, Step
from resources.confluent.clusters import READY, Cluster, SchemaRegistryCluster
from resources.confluent.flink import ComputePool
from resources.confluent.organization import Environment
from resources.confluent.tableflow import ProviderIntegration
from resources.confluent.waiting import wait, wait_gone, wait_there
from resources.confluent_cloud import ConfluentCloud

MINUTE = 60
LISTED_SECONDS = 5 * MINUTE
"""Until a list shows what was made. Whoever looks earlier might make it twice."""
CLUSTER_SECONDS = 60 * MINUTE
CLUSTER_GONE_SECONDS = 30 * MINUTE
REGISTRY_SECONDS = 10 * MINUTE


@dataclass(frozen=True)
class EnvironmentStep(Step):
    """The environment. Deleting it deletes all that is in it, so it stays while anything of others is."""

    cloud: ConfluentCloud
    names: Names
    holds_data: bool = False
    """Whether its cluster does."""
    clock: Clock = REAL
    name: ClassVar[str] = "confluent/environment"

    @property
    def what(self) -> str:
        return f"environment '{self.names.confluent}'"

    def find(self, found: Found) -> Environment | None:
        return self.cloud.environments().find(self.names.confluent)

    def create(self, found: Found) -> Environment:
        return self.cloud.environments().create(self.names.confluent)

    def settle(self, found: Found, it: Environment) -> Environment:
        return wait_there(self.what, lambda: self.find(found), deadline_seconds=LISTED_SECONDS, clock=self.clock)

    def delete(self, found: Found, it: Environment) -> None:
        self.cloud.environments().delete(it.id)
        wait_gone(self.what, lambda: self.find(found), deadline_seconds=LISTED_SECONDS, clock=self.clock)

    def kept(self, found: Found, it: Environment) -> str:
        clusters = self.cloud.clusters(it.id).list()
        others: dict[str, Sequence[Cluster | ComputePool | ProviderIntegration]] = {
            "cluster": clusters,
            "compute pool": self.cloud.compute_pools(it.id).list(),
            "provider integration": self.cloud.provider_integrations(it.id).list(),
        }
        foreign = [
            f"{kind} '{each.name}' ({each.id})"
            for kind, things in others.items()
            for each in things
            if each.name != self.names.confluent
        ]
        if foreign:
            return f"not of this deployment is in it: {', '.join(foreign)}"
        return "its cluster has deletion protection" if any(each.protected for each in clusters) else ""


@dataclass(frozen=True)
class ClusterStep(Step):
    """The Kafka cluster, with all its topics."""

    cloud: ConfluentCloud
    names: Names
    holds_data: bool = False
    """Whether there are topics in it that others fill."""
    clock: Clock = REAL
    name: ClassVar[str] = "confluent/cluster"
    needs: ClassVar[tuple[str, ...]] = ("confluent/environment",)

    @property
    def what(self) -> str:
        return f"Kafka cluster '{self.names.confluent}'"

    def find(self, found: Found) -> Cluster | None:
        return self.cloud.clusters(found["confluent/environment"].id).find(self.names.confluent)

    def create(self, found: Found) -> Cluster:
        clusters = self.cloud.clusters(found["confluent/environment"].id)
        return clusters.create(self.names.confluent, self.names.region)

    def settle(self, found: Found, it: Cluster) -> Cluster:
        clusters = self.cloud.clusters(found["confluent/environment"].id)
        wait(self.what, lambda: clusters.get(it.id), READY, deadline_seconds=CLUSTER_SECONDS, clock=self.clock)
        return wait_there(self.what, lambda: self.find(found), deadline_seconds=LISTED_SECONDS, clock=self.clock)

    def delete(self, found: Found, it: Cluster) -> None:
        clusters = self.cloud.clusters(found["confluent/environment"].id)
        clusters.delete(it.id)
        wait_gone(self.what, lambda: clusters.get(it.id), deadline_seconds=CLUSTER_GONE_SECONDS, clock=self.clock)

    def kept(self, found: Found, it: Cluster) -> str:
        return "has deletion protection" if it.protected else ""


@dataclass(frozen=True)
class SchemaRegistryStep(Step):
    """The Schema Registry. It comes with the environment's first cluster and goes with the environment."""

    cloud: ConfluentCloud
    names: Names
    clock: Clock = REAL
    name: ClassVar[str] = "confluent/schema_registry"
    needs: ClassVar[tuple[str, ...]] = ("confluent/environment", "confluent/cluster")

    @property
    def what(self) -> str:
        return f"Schema Registry of '{self.names.confluent}'"

    def find(self, found: Found) -> SchemaRegistryCluster | None:
        return self.cloud.schema_registry_clusters(found["confluent/environment"].id).find()

    def create(self, found: Found) -> SchemaRegistryCluster:
        return wait_there(self.what, lambda: self.find(found), deadline_seconds=REGISTRY_SECONDS, clock=self.clock)

    def settle(self, found: Found, it: SchemaRegistryCluster) -> SchemaRegistryCluster:
        return wait(self.what, lambda: self.find(found), READY, deadline_seconds=REGISTRY_SECONDS, clock=self.clock)

    def delete(self, found: Found, it: SchemaRegistryCluster) -> None:
        """Nothing: `kept` says why."""

    def kept(self, found: Found, it: SchemaRegistryCluster) -> str:
        return "goes with the environment"
