"""Confluent Cloud: everything that `lakehouse create` makes there, by kind, over the vendor's REST API."""

from __future__ import annotations

import dagster as dg
from pydantic import Field

from resources.confluent import URL
from resources.confluent.api_keys import ApiKeys
from resources.confluent.clusters import Cluster, Clusters, SchemaRegistryCluster, SchemaRegistryClusters, Subjects
from resources.confluent.connectors import Connectors
from resources.confluent.flink import ComputePools, Region, Regions, Statements
from resources.confluent.kafka import Acls, Topics
from resources.confluent.organization import Environment, Environments, RoleBindings, ServiceAccounts
from resources.confluent.plane import Key, Plane
from resources.confluent.tableflow import CatalogIntegrations, ProviderIntegrations, TableflowTopics
from resources.hidden import hidden


class ConfluentCloud(dg.ConfigurableResource):
    """An organization in Confluent Cloud, entered with a Cloud API key. Nothing connects before a method of what is
    returned here is called. Kafka, the Schema Registry, Flink and Tableflow each want a key of their own."""

    api_key: str = Field(description="Id of a Cloud API key.")
    api_secret: str = hidden(description="Its secret.")
    url: str = hidden(URL, "Address of the API, if it is not Confluent's own.")

    def plane(self) -> Plane:
        """The plane on which the organization itself is managed."""
        return Plane("Confluent Cloud", self.url, Key(self.api_key, self.api_secret))

    def environments(self) -> Environments:
        """Environments."""
        return Environments(self.plane())

    def service_accounts(self) -> ServiceAccounts:
        """Service accounts."""
        return ServiceAccounts(self.plane())

    def role_bindings(self) -> RoleBindings:
        """Role bindings."""
        return RoleBindings(self.plane())

    def api_keys(self) -> ApiKeys:
        """API keys."""
        return ApiKeys(self.plane())

    def clusters(self, environment_id: str) -> Clusters:
        """Kafka clusters of an environment."""
        return Clusters(self.plane(), environment_id)

    def schema_registry_clusters(self, environment_id: str) -> SchemaRegistryClusters:
        """The Schema Registry of an environment."""
        return SchemaRegistryClusters(self.plane(), environment_id)

    def connectors(self, cluster: Cluster) -> Connectors:
        """Managed connectors of a cluster."""
        return Connectors(self.plane(), cluster.environment_id, cluster.id)

    def provider_integrations(self, environment_id: str) -> ProviderIntegrations:
        """Ways into AWS accounts, of an environment."""
        return ProviderIntegrations(self.plane(), environment_id)

    def regions(self) -> Regions:
        """Where Flink is offered."""
        return Regions(self.plane())

    def compute_pools(self, environment_id: str) -> ComputePools:
        """Flink's compute pools of an environment."""
        return ComputePools(self.plane(), environment_id)

    def topics(self, cluster: Cluster, key: Key) -> Topics:
        """Topics of a cluster, with a Kafka key."""
        return Topics(Plane("Kafka REST", cluster.http_endpoint, key), cluster.id)

    def acls(self, cluster: Cluster, key: Key) -> Acls:
        """Access control lists of a cluster, with a Kafka key."""
        return Acls(Plane("Kafka REST", cluster.http_endpoint, key), cluster.id)

    def subjects(self, registry: SchemaRegistryCluster, key: Key) -> Subjects:
        """Subjects of a Schema Registry, with a key of its own."""
        return Subjects(Plane("Schema Registry", registry.http_endpoint, key))

    def statements(self, region: Region, environment: Environment, key: Key) -> Statements:
        """Flink's statements in a region of an environment, with a Flink key."""
        return Statements(Plane("Flink", region.http_endpoint, key), environment.organization_id, environment.id)

    def catalog_integrations(self, cluster: Cluster, key: Key) -> CatalogIntegrations:
        """Catalog integrations of a cluster, with a Tableflow key."""
        return CatalogIntegrations(Plane("Tableflow", self.url, key), cluster.environment_id, cluster.id)

    def tableflow_topics(self, cluster: Cluster, key: Key) -> TableflowTopics:
        """Topics that Tableflow keeps as tables, with a Tableflow key."""
        return TableflowTopics(Plane("Tableflow", self.url, key), cluster.environment_id, cluster.id)
