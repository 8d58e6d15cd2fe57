"""The resources of Tableflow in Confluent Cloud: access to the bucket, catalog integrations, and topics as tables."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from lakehouse.deploy.aws.bucket import BucketState
from lakehouse.deploy.confluent.access.declared_access import ASSIGNER
from lakehouse.deploy.confluent.access.service_accounts import RoleBindingsResource, RoleScopes
from lakehouse.deploy.confluent.base_resources import BaseResources
from lakehouse.deploy.confluent.keys.key_resources import KeyResources
from lakehouse.deploy.confluent.tableflow.catalog_integrations import (
    CatalogIntegrationResource,
    GlueCatalogResource,
    OpenCatalogClient,
    OpenCatalogResource,
)
from lakehouse.deploy.confluent.tableflow.tableflow_tables import (
    OwnStorage,
    ProviderIntegrationResource,
    TableflowTopicResource,
)
from lakehouse.deploy.confluent.topics.declared_topics import DeclaredTopics, tableflow_config
from lakehouse.deploy.confluent.topics.topic_resources import TopicResource
from lakehouse.deploy.resource import Resource


@dataclass(frozen=True)
class TableflowResources:
    """Resources of Tableflow. In Confluent's own storage there are only the topics."""

    base: BaseResources
    topics: DeclaredTopics
    keys: KeyResources
    topic_resources: Mapping[str, TopicResource]
    """The topics in Kafka by entry."""
    producers: Mapping[str, Resource[Any]]
    """The resources that write the records of topics, by entry; external producers write those of all others."""

    def all(self, confluent_role: Resource[Any] | None, bucket: Resource[BucketState] | None) -> list[Resource[Any]]:
        """List the resources after the provider integration, dependencies first.

        Args:
            confluent_role: The IAM role that Tableflow assumes; None if it creates no table in the account.
            bucket: The bucket of its tables; None in the same case.
        """
        if confluent_role is None or bucket is None:
            return list(self._tables(None, ()))
        # Tableflow acts with the permissions of its key's owner.
        assigner = RoleBindingsResource(
            *self.base.common,
            roles=(ASSIGNER,),
            account=self.base.accounts["app_manager"],
            scopes=RoleScopes(self.base.environment, integration=self.provider_integration),
            part="provider_integration",
        )
        catalogs = tuple(self._catalogs((assigner, confluent_role, bucket)))
        return [assigner, *catalogs, *self._tables(OwnStorage(bucket, self.provider_integration), catalogs)]

    @cached_property
    def provider_integration(self) -> ProviderIntegrationResource:
        """Tableflow's way into AWS, created only if Tableflow creates any table there."""
        return ProviderIntegrationResource(*self.base.common, environment=self.base.environment)

    @cached_property
    def open_catalog(self) -> OpenCatalogClient | None:
        """The client of the Open Catalog in which Tableflow registers its tables; None if it does not."""
        declared = self.base.deployment.tableflow.open_catalog
        is_used = declared and self.base.has_tableflow_bucket
        return OpenCatalogClient(declared, self.base.secrets) if declared and is_used else None

    def _catalogs(self, after: tuple[Resource[Any], ...]) -> Iterator[CatalogIntegrationResource]:
        yield GlueCatalogResource(
            *self.base.common,
            cluster=self.base.cluster,
            tableflow_key=self.keys.tableflow,
            provider_integration=self.provider_integration,
            after=after,
        )
        if self.open_catalog:
            yield OpenCatalogResource(
                *self.base.common,
                cluster=self.base.cluster,
                tableflow_key=self.keys.tableflow,
                client=self.open_catalog,
            )

    def _tables(
        self, storage: OwnStorage | None, catalogs: tuple[CatalogIntegrationResource, ...]
    ) -> Iterator[TableflowTopicResource]:
        for topic in self.topics.tables:
            yield TableflowTopicResource(
                *self.base.common,
                entry=topic.name,
                topic_name=topic.topic,
                subject=topic.subject("value"),
                config=tableflow_config(topic),
                visible=topic.visible,
                write_mode="UPSERT" if topic in self.topics.upserted else "APPEND",
                cluster=self.base.cluster,
                registry=self.base.registry,
                topic=self.topic_resources[topic.name],
                catalogs=catalogs,
                storage=storage,
                tableflow_key=self.keys.tableflow,
                registry_key=self.keys.registry,
                filled_by=self.producers.get(topic.name),
            )
