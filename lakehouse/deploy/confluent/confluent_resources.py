"""The resources of a deployment in Confluent Cloud."""

from dataclasses import dataclass
from functools import cached_property
from typing import Any

from lakehouse.deploy.aws.bucket import BucketState
from lakehouse.deploy.confluent.access.declared_access import ASSIGNER
from lakehouse.deploy.confluent.access.permissions import PermissionsReport
from lakehouse.deploy.confluent.access.service_accounts import AclsResource, RoleScopes
from lakehouse.deploy.confluent.base_resources import BaseResources
from lakehouse.deploy.confluent.flink_resources import FlinkTopicResource, StatementResource
from lakehouse.deploy.confluent.keys.key_resources import KeyResources
from lakehouse.deploy.confluent.tableflow.tableflow_resources import TableflowResources
from lakehouse.deploy.confluent.topics.declared_topics import milliseconds
from lakehouse.deploy.confluent.topics.topic_resources import DatagenResource, DeclaredTopicResource
from lakehouse.deploy.resource import Resource


@dataclass(frozen=True)
class ConfluentResources(BaseResources):
    """The resources in Confluent Cloud. Those that other clouds refer to, or that occur often, are properties."""

    def all(self, confluent_role: Resource[Any] | None, bucket: Resource[BucketState] | None) -> list[Resource[Any]]:
        """List the resources, dependencies first, apart from those in AWS.

        Args:
            confluent_role: The IAM role that Tableflow assumes; None if Tableflow creates no table in the account.
            bucket: The bucket of Tableflow's tables; None in the same case.
        """
        return [
            # The first to be created and the last to be deleted: they bear the mark of ownership.
            *self.accounts.values(),
            self.environment,
            # Before the cluster: when it is deleted, after the cluster, nothing is left that could use it.
            *([self.tableflow.provider_integration] if self.has_tableflow_bucket else ()),
            self.cluster,
            self.registry,
            *self.compute,
            *self.role_bindings.values(),
            *self.keys.all,
            *self.declared_topics.values(),
            *self.acls.values(),
            *self.connectors.values(),
            *self.statements.values(),
            *self.flink_topics.values(),
            *self.tableflow.all(confluent_role, bucket),
            self._permissions,
        ]

    @cached_property
    def tableflow(self) -> TableflowResources:
        """The resources of Tableflow, of which there may be none."""
        topics = {**self.declared_topics, **self.flink_topics}
        statements = {entry: topic.statement for entry, topic in self.flink_topics.items()}
        return TableflowResources(self, self._topics, self.keys, topics, producers={**statements, **self.connectors})

    @cached_property
    def keys(self) -> KeyResources:
        """The API keys."""
        return KeyResources(self, self._access.secrets)

    @cached_property
    def declared_topics(self) -> dict[str, DeclaredTopicResource]:
        """The topics that Flink does not create, and those that receive dead letters, by entry."""
        declared = {
            topic.name: self._declared_topic(
                topic.name,
                topic.topic,
                topic.partitions,
                holds_data=topic.source.is_external or topic in self._topics.stored_by_confluent,
                retention_ms=milliseconds(topic.retention.records) if topic.retention.records else None,
                compacted=topic in self._topics.upserted,
            )
            for topic in self._topics.all
            if topic.topic not in self._topics.statements
        }
        letters = {
            f"{topic.name}/dead_letters": self._declared_topic(f"{topic.name}/dead_letters", name, topic.partitions)
            for name, topic in self._topics.dead_letters.items()
        }
        return declared | letters

    @cached_property
    def acls(self) -> dict[str, AclsResource]:
        """The access control lists by purpose of the account."""
        return {
            purpose: AclsResource(
                *self.common,
                allowed=allowed,
                account=self.accounts[purpose],
                cluster=self.cluster,
                manager_key=self.keys.manager,
            )
            for purpose, allowed in self._access.acls.items()
        }

    @cached_property
    def connectors(self) -> dict[str, DatagenResource]:
        """The Datagen connectors by entry."""
        return {
            topic.name: DatagenResource(
                *self.common,
                entry=topic.name,
                connector=source.connector(topic.name),
                topic_name=topic.topic,
                settings=source.connector_settings(self.config, topic),
                subject=topic.subject("value"),
                cluster=self.cluster,
                registry=self.registry,
                account=self.accounts["app_connector"],
                acls=self.acls["app_connector"],
                visible=topic.visible,
                topic=self.declared_topics[topic.name],
                registry_key=self.keys.registry,
            )
            for topic, source in self._topics.generated
        }

    @cached_property
    def statements(self) -> dict[str, StatementResource]:
        """The Flink statements by declared name."""
        return {
            name: StatementResource(
                *self.common,
                declared_name=name,
                sql=sql,
                environment=self.environment,
                cluster=self.cluster,
                account=self.accounts["flink"],
                compute_pool=self.compute_pool,
                flink_key=self.keys.flink,
                manager_key=self.keys.manager,
                visible=self._topics.visible,
                after=tuple(self.connectors.values()),
            )
            for name, sql in self.deployment.flink.items()
        }

    @cached_property
    def flink_topics(self) -> dict[str, FlinkTopicResource]:
        """The topics that Flink statements create, by entry."""
        return {
            topic.name: FlinkTopicResource(
                *self.common,
                entry=topic.name,
                topic=topic.topic,
                cluster=self.cluster,
                manager_key=self.keys.manager,
                is_in_existing_cluster=bool(self.names.existing.confluent_cluster),
                holds_data=topic in self._topics.stored_by_confluent,
                statement=self.statements[self._topics.statements[topic.topic]],
            )
            for topic in self._topics.all
            if topic.topic in self._topics.statements
        }

    @property
    def _permissions(self) -> PermissionsReport:
        roles = self._access.roles
        scopes = RoleScopes(self.environment, self.cluster, self.registry)
        if self.has_tableflow_bucket:
            roles = roles | {"app_manager": (*roles["app_manager"], ASSIGNER)}
            scopes = scopes._replace(integration=self.tableflow.provider_integration)
        return PermissionsReport(
            *self.common,
            roles=roles,
            allowed=self._access.acls,
            scopes=scopes,
            cluster=self.cluster,
            accounts=tuple(self.accounts.values()),
            manager_key=self.keys.manager,
        )

    def _declared_topic(
        self,
        entry: str,
        topic: str,
        partitions: int,
        *,
        holds_data: bool = False,
        retention_ms: int | None = None,
        compacted: bool = False,
    ) -> DeclaredTopicResource:
        return DeclaredTopicResource(
            *self.common,
            entry=entry,
            topic=topic,
            cluster=self.cluster,
            manager_key=self.keys.manager,
            is_in_existing_cluster=bool(self.names.existing.confluent_cluster),
            partitions=partitions,
            holds_data=holds_data,
            retention_ms=retention_ms,
            compacted=compacted,
        )
