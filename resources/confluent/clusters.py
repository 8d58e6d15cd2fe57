"""Kafka clusters, and the Schema Registry that Confluent creates with the first cluster of an environment."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from resources.confluent.api_client import ApiClient, objects, single_match

READY = frozenset({"PROVISIONED"})


@dataclass(frozen=True)
class Cluster:
    """A Kafka cluster.

    Attributes:
        kafka_crn: The Confluent Resource Name that is the parent of its topics.
        http_endpoint: The address of Kafka's REST API; empty while the cluster is provisioned.
        bootstrap_endpoint: The bootstrap server; empty while the cluster is provisioned.
        protected: Whether Confluent refuses to delete the cluster.
        detail: Empty: the API has no message about the phase.
    """

    id: str
    name: str
    environment_id: str
    phase: str
    kafka_crn: str
    http_endpoint: str
    bootstrap_endpoint: str
    protected: bool
    detail: str = ""

    @property
    def crn(self) -> str:
        """The Confluent Resource Name of the cluster itself."""
        return self.kafka_crn.rpartition("/kafka=")[0]

    @staticmethod
    def of(response: dict[str, Any]) -> Cluster:
        """Parse a response."""
        spec = response["spec"]
        return Cluster(
            id=response["id"],
            name=spec["display_name"],
            environment_id=spec["environment"]["id"],
            phase=response["status"]["phase"],
            kafka_crn=response["metadata"]["resource_name"],
            http_endpoint=spec.get("http_endpoint") or "",
            bootstrap_endpoint=spec.get("kafka_bootstrap_endpoint") or "",
            protected=bool(spec.get("deletion_protection")),
        )


@dataclass(frozen=True)
class Clusters:
    """The Kafka clusters of one environment."""

    client: ApiClient
    environment_id: str

    def list(self) -> list[Cluster]:
        """Return the clusters that are visible to the key."""
        return list(self.client.items("/cmk/v2/clusters", Cluster.of, {"environment": self.environment_id}))

    def find(self, name: str) -> Cluster | None:
        """Return the cluster with a display name, or None.

        Raises:
            UnclearState: Several clusters have the name.
        """
        return single_match(f"Kafka cluster '{name}'", [cluster for cluster in self.list() if cluster.name == name])

    def get(self, cluster_id: str) -> Cluster | None:
        """Return the cluster with an id; None if it does not exist."""
        query = {"environment": self.environment_id}
        return self.client.find(f"/cmk/v2/clusters/{cluster_id}", Cluster.of, query)

    def create(self, name: str, region: str) -> Cluster:
        """Start to create a Standard cluster in one zone. `wait` until it is READY."""
        spec = {
            "display_name": name,
            "availability": "SINGLE_ZONE",
            "cloud": "AWS",
            "region": region,
            "config": {"kind": "Standard"},
            "environment": {"id": self.environment_id},
        }
        return self.client.send("POST", "/cmk/v2/clusters", Cluster.of, body={"spec": spec})

    def delete(self, cluster_id: str) -> None:
        """Start to delete a cluster with all its topics. Wait with `wait_until_deleted`."""
        self.client.delete(
            f"/cmk/v2/clusters/{cluster_id}",
            {"environment": self.environment_id},
            may_exist=lambda: any(cluster.id == cluster_id for cluster in self.list()),
        )


@dataclass(frozen=True)
class SchemaRegistryCluster:
    """A Schema Registry."""

    id: str
    phase: str
    crn: str
    http_endpoint: str
    detail: str = ""

    @staticmethod
    def of(response: dict[str, Any]) -> SchemaRegistryCluster:
        """Parse a response."""
        return SchemaRegistryCluster(
            id=response["id"],
            phase=response["status"]["phase"],
            crn=response["metadata"]["resource_name"],
            http_endpoint=response["spec"].get("http_endpoint") or "",
        )


@dataclass(frozen=True)
class SchemaRegistryClusters:
    """The Schema Registry of one environment. It cannot be created or deleted separately."""

    client: ApiClient
    environment_id: str

    def find(self) -> SchemaRegistryCluster | None:
        """Return the Schema Registry; None before the environment has its first cluster.

        Raises:
            UnclearState: There are several.
        """
        query = {"environment": self.environment_id}
        registries = list(self.client.items("/srcm/v3/clusters", SchemaRegistryCluster.of, query))
        return single_match(f"the Schema Registry of {self.environment_id}", registries)


@dataclass(frozen=True)
class Subjects:
    """The subjects in a Schema Registry."""

    client: ApiClient

    def list(self) -> list[str]:
        """Return the names of the subjects."""
        return self.client.listed("/subjects", objects)
