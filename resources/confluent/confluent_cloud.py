"""The resource for Confluent Cloud's REST API: the state of one cluster, and clients of all objects of a deployment."""

from __future__ import annotations

from typing import ClassVar

import dagster as dg
from pydantic import Field

from lakehouse.core.errors import ConfigError
from resources.aws.secret_reader import read_secret_fields
from resources.confluent import URL
from resources.confluent.api_client import ApiClient, Key
from resources.confluent.clusters import (
    Acls,
    Cluster,
    Clusters,
    Connector,
    Connectors,
    SchemaRegistryCluster,
    Subjects,
    Topics,
)
from resources.confluent.flink import Region, Statements
from resources.confluent.organization import Environment
from resources.confluent.tableflow import CatalogIntegrations, TableflowTopic, TableflowTopics
from resources.masked_field import masked_field, secret_field

KEY, KEY_SECRET, ENVIRONMENT, CLUSTER = "api.key", "api.key.secret", "environment.id", "kafka.cluster.id"
"""Fields of a secret that contains an API key."""


class ConfluentCloud(dg.ConfigurableResource):
    """An organization in Confluent Cloud, accessed with a Cloud API key.

    Kafka, the Schema Registry, Flink and Tableflow each need another key. Clients connect at their first call.
    """

    ONE_OF: ClassVar = ("api_key", "secret")
    """Settings of which one is required."""

    api_key: str = Field(default="", description="Id of a Cloud API key.")
    api_secret: str = secret_field("", "Its secret.")
    environment_id: str = Field(default="", description="The environment of the Kafka cluster: env-…")
    cluster_id: str = Field(default="", description="The Kafka cluster: lkc-…")
    secret: str = Field(
        default="",
        description="A secret in AWS Secrets Manager with api.key and api.key.secret (of a Cloud API key), "
        "environment.id and kafka.cluster.id, in place of the settings above.",
    )
    tableflow_api_key: str = Field(default="", description="Id of a Tableflow API key.")
    tableflow_api_secret: str = secret_field("", "Its secret.")
    tableflow_secret: str = Field(
        default="",
        description="A secret in AWS Secrets Manager with api.key and api.key.secret (of a Tableflow API key).",
    )
    role_arn: str = Field(default="", description="IAM role to assume to read secrets of AWS Secrets Manager.")
    url: str = masked_field(URL, "Address of the API, if it is not Confluent's own.")
    deadline_seconds: int = Field(
        default=20, gt=0, description="Seconds for which a request without a response is retried."
    )

    def client(self) -> ApiClient:
        """Return the client of the API that manages the organization."""
        key = self._key(self.secret) if self.secret else Key(self.api_key, self.api_secret)
        return self._client("Confluent Cloud", self.url, key)

    def kafka_cluster(self) -> Cluster | None:
        """Return the environment's Kafka cluster; None if it does not exist or is not visible to the key."""
        environment_id, cluster_id = self._place()
        return Clusters(self.client(), environment_id).get(cluster_id)

    def connector(self, name: str) -> Connector | None:
        """Return the state of a managed connector of the cluster, without its settings, or None as `kafka_cluster`."""
        return Connectors(self.client(), *self._place()).find(name)

    def tableflow_topic(self, name: str) -> TableflowTopic | None:
        """Return the state of Tableflow for a topic of the cluster, or None as `kafka_cluster`, or if it is off."""
        if not (self.tableflow_secret or self.tableflow_api_key):
            raise ConfigError(
                "The environment has no Tableflow API key",
                "The state was not read",
                "Add tableflow_secret, or tableflow_api_key and tableflow_api_secret, to `confluent_cloud` of the "
                "environment in lakehouse.yaml",
            )
        key = Key(self.tableflow_api_key, self.tableflow_api_secret)
        if self.tableflow_secret:
            key = self._key(self.tableflow_secret)
        return TableflowTopics(self._client("Tableflow", self.url, key), *self._place()).find(name)

    def _place(self) -> tuple[str, str]:
        if self.secret:
            ids = read_secret_fields(self.secret, ENVIRONMENT, CLUSTER, role_arn=self.role_arn)
            return ids[ENVIRONMENT], ids[CLUSTER]
        if not (self.environment_id and self.cluster_id):
            raise ConfigError(
                "The environment does not name its Kafka cluster in Confluent Cloud",
                "The state was not read",
                "Add environment_id and cluster_id to `confluent_cloud` of the environment in lakehouse.yaml",
            )
        return self.environment_id, self.cluster_id

    def _key(self, secret: str) -> Key:
        stored = read_secret_fields(secret, KEY, KEY_SECRET, role_arn=self.role_arn)
        return Key(stored[KEY], stored[KEY_SECRET])

    def _client(self, name: str, url: str, key: Key) -> ApiClient:
        return ApiClient(name, url, key, self.deadline_seconds)

    def connectors(self, cluster: Cluster) -> Connectors:
        """Return the client of a cluster's managed connectors."""
        return Connectors(self.client(), cluster.environment_id, cluster.id)

    # The keys are those of the service: of Kafka, the Schema Registry, Flink or Tableflow.

    def topics(self, cluster: Cluster, key: Key) -> Topics:
        """Return the client of a cluster's topics."""
        return Topics(self._client("Kafka REST", cluster.http_endpoint, key), cluster.id)

    def acls(self, cluster: Cluster, key: Key) -> Acls:
        """Return the client of a cluster's access control lists."""
        return Acls(self._client("Kafka REST", cluster.http_endpoint, key), cluster.id)

    def subjects(self, registry: SchemaRegistryCluster, key: Key) -> Subjects:
        """Return the client of a Schema Registry's subjects."""
        return Subjects(self._client("Schema Registry", registry.http_endpoint, key))

    def statements(self, region: Region, environment: Environment, key: Key) -> Statements:
        """Return the client of an environment's Flink statements in a region."""
        return Statements(self._client("Flink", region.http_endpoint, key), environment.organization_id, environment.id)

    def catalog_integrations(self, cluster: Cluster, key: Key) -> CatalogIntegrations:
        """Return the client of a cluster's catalog integrations."""
        return CatalogIntegrations(self._client("Tableflow", self.url, key), cluster.environment_id, cluster.id)

    def list_tableflow_regions(self, key: Key) -> None:
        """List the regions of Tableflow, which every Tableflow key may do."""
        self._client("Tableflow", self.url, key).listed("/tableflow/v1/regions", dict)

    def tableflow_topics(self, cluster: Cluster, key: Key) -> TableflowTopics:
        """Return the client of the topics that Tableflow maintains as tables."""
        return TableflowTopics(self._client("Tableflow", self.url, key), cluster.environment_id, cluster.id)
