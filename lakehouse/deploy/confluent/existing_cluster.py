"""An environment and a Kafka cluster that existed before the deployment: used, never changed or deleted."""

from __future__ import annotations

from dataclasses import dataclass

from lakehouse.core.errors import LakehouseError
from lakehouse.deploy.confluent.confluent_resource import ConfluentResource
from lakehouse.deploy.resource import ExistingResource, Outputs, Resource
from resources.confluent.clusters import Cluster
from resources.confluent.organization import Environment


@dataclass(frozen=True, kw_only=True, repr=False)
class ExistingEnvironment(ConfluentResource[Environment], ExistingResource[Environment]):
    """An environment, by its id."""

    address = "confluent/environment"
    environment_id: str

    @property
    def label(self) -> str:
        """The environment with its id."""
        return f"environment '{self.environment_id}'"

    def read(self, outputs: Outputs) -> Environment:
        """Read the environment by id.

        Raises:
            LakehouseError: It does not exist.
        """
        for environment in self.cloud.environments().list():
            if environment.id == self.environment_id:
                return environment
        raise missing(self.label, "confluent_environment")


@dataclass(frozen=True, kw_only=True, repr=False)
class ExistingCluster(ConfluentResource[Cluster], ExistingResource[Cluster]):
    """A Kafka cluster, by its id."""

    address = "confluent/cluster"
    environment: Resource[Environment]
    cluster_id: str

    @property
    def label(self) -> str:
        """The cluster with its id."""
        return f"Kafka cluster '{self.cluster_id}'"

    def read(self, outputs: Outputs) -> Cluster:
        """Read the cluster by id.

        Raises:
            LakehouseError: It does not exist.
        """
        cluster = self.cloud.clusters(outputs[self.environment].id).get(self.cluster_id)
        if cluster is None:
            raise missing(self.label, "confluent_cluster")
        return cluster


def missing(label: str, key: str) -> LakehouseError:
    """Return the error about an object that lakehouse.yaml names and Confluent Cloud does not show."""
    return LakehouseError(
        f"This Cloud API key has no access to {label} in Confluent Cloud. Nothing was changed. Correct "
        f"`existing.{key}` of the deployment in lakehouse.yaml, or use a key whose account has access"
    )
