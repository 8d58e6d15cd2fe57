"""Tableflow: the provider integration with AWS, the catalog integration with Glue, and topics kept as tables."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from lakehouse.core.errors import LakehouseError
from lakehouse.deploy.confluent.confluent_resource import GRANTED_SECONDS, LISTED_SECONDS, ConfluentResource
from lakehouse.deploy.resource import Outputs, Resource, Updatable
from resources.confluent.api_client import Key
from resources.confluent.clusters import Cluster, SchemaRegistryCluster
from resources.confluent.organization import Environment
from resources.confluent.tableflow import (
    CatalogIntegration,
    CatalogIntegrations,
    ProviderIntegration,
    TableflowTopic,
    TableflowTopics,
)
from resources.confluent.waiting import retry_while_forbidden, wait, wait_until_deleted, wait_until_visible

TABLE_SECONDS = 60 * 60
TABLE_GONE_SECONDS = 30 * 60
NAMING = "metadata_column_naming_scheme"
BEGUN = frozenset({"PENDING", "CONNECTED", "RUNNING"})


@dataclass(frozen=True, kw_only=True, repr=False)
class ProviderIntegrationResource(ConfluentResource[ProviderIntegration]):
    """Confluent's way to assume a role in the AWS account. The role is created later: it trusts what this returns."""

    address = "confluent/provider_integration"
    environment: Resource[Environment]

    @property
    def label(self) -> str:
        """The provider integration with its name."""
        return f"provider integration '{self.names.confluent}'"

    def read(self, outputs: Outputs) -> ProviderIntegration | None:
        """Read it by name."""
        return self.cloud.provider_integrations(outputs[self.environment].id).find(self.names.confluent)

    def create(self, outputs: Outputs) -> ProviderIntegration:
        """Create it for the role that it will assume."""
        integrations = self.cloud.provider_integrations(outputs[self.environment].id)
        return integrations.create(self.names.confluent, self.names.role_arn("confluent"))

    def wait_until_ready(self, outputs: Outputs, current: ProviderIntegration) -> ProviderIntegration:
        """Wait until it is listed."""
        return self.wait_until_listed(outputs)

    def delete(self, outputs: Outputs, current: ProviderIntegration) -> None:
        """Delete it once nothing uses it: Tableflow goes on for a while behind its answer."""

        def used() -> ProviderIntegration | None:
            now = self.read(outputs)
            return now if now and now.usages else None

        wait_until_deleted(f"what uses {self.label}", used, deadline_seconds=TABLE_GONE_SECONDS, clock=self.clock)
        self.cloud.provider_integrations(outputs[self.environment].id).delete(current.id)
        wait_until_deleted(self.label, lambda: self.read(outputs), deadline_seconds=LISTED_SECONDS, clock=self.clock)


@dataclass(frozen=True, kw_only=True, repr=False)
class CatalogIntegrationResource(ConfluentResource[CatalogIntegration], Updatable[CatalogIntegration]):
    """Tableflow's publication in AWS Glue. It stays PENDING until there is a table, so nothing waits for CONNECTED."""

    address = "confluent/catalog_integration"
    cluster: Resource[Cluster]
    tableflow_key: Resource[Key]
    provider_integration: Resource[ProviderIntegration]
    after: tuple[Resource[Any], ...]
    """The role binding, the IAM role and the bucket that Tableflow uses."""

    @property
    def label(self) -> str:
        """The catalog integration with its name."""
        return f"catalog integration '{self.names.confluent}' with AWS Glue"

    @property
    def read_depends_on(self) -> tuple[Resource[Any], ...]:
        """The cluster and the key that opens its Tableflow."""
        return (self.cluster, self.tableflow_key)

    def read(self, outputs: Outputs) -> CatalogIntegration | None:
        """Read it by name."""
        return self._catalogs(outputs).find(self.names.confluent)

    def create(self, outputs: Outputs) -> CatalogIntegration:
        """Create it, as soon as the key is allowed to."""

        def create() -> CatalogIntegration:
            return self._catalogs(outputs).create_glue(self.names.confluent, outputs[self.provider_integration].id)

        return retry_while_forbidden(self.label, create, deadline_seconds=GRANTED_SECONDS, clock=self.clock)

    def wait_until_ready(self, outputs: Outputs, current: CatalogIntegration) -> CatalogIntegration:
        """Wait until it has begun."""
        return wait(self.label, lambda: self.read(outputs), BEGUN, deadline_seconds=LISTED_SECONDS, clock=self.clock)

    def diff(self, outputs: Outputs, current: CatalogIntegration) -> list[str]:
        """Compare the provider integration that it uses."""
        uses, right = current.provider_integration_id, outputs[self.provider_integration].id
        return [] if uses == right else [f"it goes through provider integration '{uses}' instead of '{right}'"]

    def update(self, outputs: Outputs, current: CatalogIntegration) -> CatalogIntegration:
        """Replace it: none can be moved to another provider integration. Glue keeps what was published."""
        self.delete(outputs, current)
        return self.create(outputs)

    def delete(self, outputs: Outputs, current: CatalogIntegration) -> None:
        """Delete it. Glue keeps what was published."""
        catalogs = self._catalogs(outputs)
        catalogs.delete(current.id)
        wait_until_deleted(
            self.label, lambda: catalogs.get(current.id), deadline_seconds=LISTED_SECONDS, clock=self.clock
        )

    def _catalogs(self, outputs: Outputs) -> CatalogIntegrations:
        return self.cloud.catalog_integrations(outputs[self.cluster], outputs[self.tableflow_key])


@dataclass(frozen=True, kw_only=True, repr=False)
class TableflowTopicResource(ConfluentResource[TableflowTopic], Updatable[TableflowTopic]):
    """A topic that Tableflow keeps as an Iceberg table in the bucket. Files and Glue's table outlive it."""

    entry: str
    topic_name: str
    subject: str
    """The subject of its schema, without which there is no table."""
    config: Mapping[str, Any]
    """In the words of Tableflow's API."""
    write_mode: str
    """APPEND or UPSERT. Confluent determines it from the topic's `cleanup.policy` and Flink's `changelog.mode`."""
    cluster: Resource[Cluster]
    registry: Resource[SchemaRegistryCluster]
    topic: Resource[Any]
    catalog_integration: Resource[CatalogIntegration]
    provider_integration: Resource[ProviderIntegration]
    tableflow_key: Resource[Key]
    registry_key: Resource[Key]
    bucket: Resource[Any]
    filled_by: Resource[Any] | None
    """The resource that writes the records. None for external producers: the first table then has no known time."""

    @property
    def address(self) -> str:
        """The entry, below `confluent/tableflow/`."""
        return f"confluent/tableflow/{self.entry}"

    @property
    def label(self) -> str:
        """Tableflow with the topic's name."""
        return f"Tableflow of topic '{self.topic_name}'"

    @property
    def read_depends_on(self) -> tuple[Resource[Any], ...]:
        """The cluster and the key that opens its Tableflow."""
        return (self.cluster, self.tableflow_key)

    def read(self, outputs: Outputs) -> TableflowTopic | None:
        """Read it by the topic's name."""
        return self._tables(outputs).find(self.topic_name)

    def create(self, outputs: Outputs) -> TableflowTopic:
        """Turn Tableflow on for the topic.

        Raises:
            LakehouseError: The topic has no schema yet.
        """
        if self.subject not in self.cloud.subjects(outputs[self.registry], outputs[self.registry_key]).list():
            raise LakehouseError(
                f"Topic '{self.topic_name}' has no schema yet (subject '{self.subject}'), so Tableflow cannot make a "
                f"table of it. Nothing was changed. Let its producer write a first record, and run it again"
            )

        def create() -> TableflowTopic:
            integration = outputs[self.provider_integration]
            return self._tables(outputs).create(self.topic_name, self.names.bucket, integration.id, dict(self.config))

        return retry_while_forbidden(self.label, create, deadline_seconds=GRANTED_SECONDS, clock=self.clock)

    def wait_until_ready(self, outputs: Outputs, current: TableflowTopic) -> TableflowTopic:
        """Wait until it has begun or, if the deployment fills the topic, until Glue has the table."""

        def synced() -> TableflowTopic | None:
            now = self.read(outputs)
            return now if now and now.synced else None

        ready = {"RUNNING"} if self.filled_by else BEGUN
        now = wait(self.label, lambda: self.read(outputs), ready, deadline_seconds=TABLE_SECONDS, clock=self.clock)
        self._require_write_mode(now)
        if not self.filled_by:
            return now
        return wait_until_visible(
            f"Glue's table of {self.label}", synced, deadline_seconds=TABLE_SECONDS, clock=self.clock
        )

    def diff(self, outputs: Outputs, current: TableflowTopic) -> list[str]:
        """Compare all settings, also those that cannot be changed."""
        differences = {**self._fixed(outputs, current), **self._changeable(current)}
        return [f"{setting} is {now!r} instead of {right!r}" for setting, (now, right) in differences.items()]

    def update(self, outputs: Outputs, current: TableflowTopic) -> TableflowTopic:
        """Apply the settings that differ.

        Raises:
            LakehouseError: One of them cannot be changed for an existing table.
        """
        if fixed := self._fixed(outputs, current):
            raise LakehouseError(
                f"{self.label} differs in {', '.join(fixed)}, which Confluent sets once for a table. It was left "
                f"unchanged. Correct it in lakehouse.yaml; or disable Tableflow for the topic in Confluent Cloud and "
                f"run this again, which creates a new table from the records that the topic still has"
            )
        changed = {setting: right for setting, (_, right) in self._changeable(current).items()}
        return self._tables(outputs).change(self.topic_name, changed)

    def delete(self, outputs: Outputs, current: TableflowTopic) -> None:
        """Turn Tableflow off for the topic."""
        self._tables(outputs).delete(self.topic_name)
        wait_until_deleted(
            self.label, lambda: self.read(outputs), deadline_seconds=TABLE_GONE_SECONDS, clock=self.clock
        )

    def _require_write_mode(self, current: TableflowTopic) -> None:
        """Refuse a table in which Tableflow appends instead of replacing rows, or the other way round.

        Raises:
            LakehouseError: The topic's settings give the table another write mode.
        """
        if current.write_mode not in ("", self.write_mode):
            policy = "compact" if self.write_mode == "UPSERT" else "delete"
            raise LakehouseError(
                f"{self.label} has write mode {current.write_mode}, but lakehouse.yaml declares {self.write_mode}. The "
                f"table was left unchanged. Turn Tableflow off for the topic, set its cleanup.policy to {policy} (in a "
                f"Flink statement: 'changelog.mode' and 'kafka.cleanup-policy'), and run this again"
            )

    def _fixed(self, outputs: Outputs, current: TableflowTopic) -> dict[str, tuple[Any, Any]]:
        """Return the differences that cannot be changed, by setting: its value, and the declared one."""
        now = {"bucket_name": current.bucket, "provider_integration_id": current.provider_integration_id}
        now[NAMING] = current.config.get(NAMING, "DEFAULT")
        right = {"bucket_name": self.names.bucket, "provider_integration_id": outputs[self.provider_integration].id}
        right[NAMING] = self.config[NAMING]
        if current.write_mode:
            now["write_mode"], right["write_mode"] = current.write_mode, self.write_mode
        return {setting: (now[setting], right[setting]) for setting in right if now[setting] != right[setting]}

    def _changeable(self, current: TableflowTopic) -> dict[str, tuple[Any, Any]]:
        """Return the differences that can be changed, as `_fixed` does. Confluent adds defaults to error handling."""
        return {
            setting: (current.config.get(setting), right)
            for setting, right in self.config.items()
            if setting != NAMING and not _comprises(current.config.get(setting), right)
        }

    def _tables(self, outputs: Outputs) -> TableflowTopics:
        return self.cloud.tableflow_topics(outputs[self.cluster], outputs[self.tableflow_key])


def _comprises(value: Any, declared: Any) -> bool:
    if isinstance(declared, Mapping):
        return isinstance(value, Mapping) and all(value.get(name) == each for name, each in declared.items())
    return bool(value == declared)
