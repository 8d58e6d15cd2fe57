"""Kafka clusters, and the Schema Registry that comes with the first one of an environment."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from resources.confluent.plane import Plane, the_one

READY = frozenset({"PROVISIONED"})


@dataclass(frozen=True)
class Cluster:
    """A Kafka cluster. `kafka_crn` is the name under which its topics are; the endpoints are empty while it starts."""

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
    def of(answer: dict[str, Any]) -> Cluster:
        """Read an answer."""
        spec = answer["spec"]
        return Cluster(
            id=answer["id"],
            name=spec["display_name"],
            environment_id=spec["environment"]["id"],
            phase=answer["status"]["phase"],
            kafka_crn=answer["metadata"]["resource_name"],
            http_endpoint=spec.get("http_endpoint", ""),
            bootstrap_endpoint=spec.get("kafka_bootstrap_endpoint", ""),
            protected=bool(spec.get("deletion_protection")),
        )


@dataclass(frozen=True)
class Clusters:
    """The Kafka clusters of one environment."""

    plane: Plane
    environment_id: str

    def list(self) -> list[Cluster]:
        """All that the key may see."""
        answers = self.plane.items("/cmk/v2/clusters", {"environment": self.environment_id})
        return [Cluster.of(answer) for answer in answers]

    def find(self, name: str) -> Cluster | None:
        """By display name.

        Raises: UnclearState when several have it.
        """
        return the_one(f"Kafka cluster '{name}'", [each for each in self.list() if each.name == name])

    def get(self, cluster_id: str) -> Cluster | None:
        """By id; None when it is gone."""
        answer = self.plane.find(f"/cmk/v2/clusters/{cluster_id}", {"environment": self.environment_id})
        return answer and Cluster.of(answer)

    def create(self, name: str, region: str, cloud: str = "AWS") -> Cluster:
        """Begin to make a Standard cluster in one zone: `wait` for READY."""
        spec = {
            "display_name": name,
            "availability": "SINGLE_ZONE",
            "cloud": cloud,
            "region": region,
            "config": {"kind": "Standard"},
            "environment": {"id": self.environment_id},
        }
        return Cluster.of(self.plane.call("POST", "/cmk/v2/clusters", body={"spec": spec}))

    def delete(self, cluster_id: str) -> None:
        """Begin to delete it with all its topics: `wait_gone`."""
        self.plane.delete(f"/cmk/v2/clusters/{cluster_id}", {"environment": self.environment_id})


@dataclass(frozen=True)
class SchemaRegistryCluster:
    """A Schema Registry."""

    id: str
    phase: str
    crn: str
    http_endpoint: str
    detail: str = ""

    @staticmethod
    def of(answer: dict[str, Any]) -> SchemaRegistryCluster:
        """Read an answer."""
        return SchemaRegistryCluster(
            id=answer["id"],
            phase=answer["status"]["phase"],
            crn=answer["metadata"]["resource_name"],
            http_endpoint=answer["spec"].get("http_endpoint", ""),
        )


@dataclass(frozen=True)
class SchemaRegistryClusters:
    """The Schema Registry of one environment. It is neither made nor deleted by itself."""

    plane: Plane
    environment_id: str

    def find(self) -> SchemaRegistryCluster | None:
        """It, or None as long as no cluster has made it start.

        Raises: UnclearState when there are several.
        """
        answers = self.plane.items("/srcm/v3/clusters", {"environment": self.environment_id})
        what = f"the Schema Registry of {self.environment_id}"
        return the_one(what, [SchemaRegistryCluster.of(answer) for answer in answers])


@dataclass(frozen=True)
class Subjects:
    """The subjects in a Schema Registry."""

    plane: Plane

    def list(self) -> list[str]:
        """Their names."""
        return self.plane.listed("/subjects")
