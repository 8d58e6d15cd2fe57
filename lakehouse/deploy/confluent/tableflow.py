"""Tableflow: topics kept as tables, the provider integration with AWS, and the catalogs in which it registers tables.

These are AWS Glue, and Snowflake Open Catalog or Apache Polaris.
"""

from abc import abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

from lakehouse.config.deployment import Deployment, OpenCatalog
from lakehouse.core.errors import ConfigError, LakehouseError, UnclearState
from lakehouse.deploy.aws.bucket import BucketState
from lakehouse.deploy.confluent.confluent_resource import LISTED_SECONDS, ConfluentResource
from lakehouse.deploy.resource import Outputs, Resource, Updatable
from lakehouse.deploy.waiting import FAILED, unready, wait_until_deleted, wait_until_visible
from resources.aws.secrets_manager import Secrets
from resources.confluent.api_client import Key
from resources.confluent.clusters import Cluster, SchemaRegistryCluster
from resources.confluent.organization import Environment
from resources.confluent.tableflow import (
    MANAGED,
    CatalogIntegration,
    CatalogIntegrations,
    ProviderIntegration,
    ProviderIntegrations,
    TableflowTopic,
    TableflowTopics,
    glue,
    own_bucket,
)

BEGUN = frozenset({"PENDING", "CONNECTED", "RUNNING"})
HIDDEN = "client_secret"
"""The setting that responses do not reliably show."""


@dataclass(frozen=True)
class OpenCatalogClient:
    """The client with which Tableflow and Snowflake enter an Open Catalog. Its id and secret are in Secrets Manager."""

    declared: OpenCatalog
    secrets: Secrets

    def credentials(self) -> tuple[str, str]:
        """Return the client's id and secret."""
        name = self.declared.secret
        version = self.secrets.read(name)
        values = version.value.reveal() if version else {}
        missing = [key for key in ("client_id", "client_secret") if not values.get(key)]
        if missing:
            problem = f"has no {' and '.join(missing)}" if version else "does not exist"
            raise ConfigError(
                f"lakehouse.yaml: tableflow.open_catalog.secret: '{name}' {problem} in region {self.secrets.region}. "
                f"The catalog integration was left unchanged. Store client_id and client_secret of the catalog's "
                f"service connection in it"
            )
        return values["client_id"], values["client_secret"]


def open_catalog_client(deployment: Deployment, secrets: Secrets) -> OpenCatalogClient | None:
    """Return the client of the Open Catalog in which Tableflow registers its tables; None if none is declared."""
    declared = deployment.tableflow.open_catalog
    return OpenCatalogClient(declared, secrets) if declared else None


@dataclass(frozen=True, kw_only=True, repr=False)
class CatalogIntegrationResource(ConfluentResource[CatalogIntegration], Updatable[CatalogIntegration]):
    """A catalog of Tableflow's tables. It stays PENDING until there is a table, so nothing waits for CONNECTED."""

    cluster: Resource[Cluster]
    tableflow_key: Resource[Key]

    @property
    @abstractmethod
    def name(self) -> str:
        """The integration's name in Confluent Cloud."""

    @abstractmethod
    def config(self, outputs: Outputs) -> dict[str, str]:
        """Return what is declared, as in the API."""

    @property
    def read_depends_on(self) -> tuple[Resource[Any], ...]:
        return (self.cluster, self.tableflow_key)

    def read(self, outputs: Outputs) -> CatalogIntegration | None:
        return self.catalogs(outputs).find(self.name)

    def create(self, outputs: Outputs) -> CatalogIntegration:
        return self.when_granted(lambda: self.catalogs(outputs).create(self.name, self.config(outputs)))

    def wait_until_ready(self, outputs: Outputs, current: CatalogIntegration) -> CatalogIntegration:
        return self.wait_for_phase(lambda: self.read(outputs), BEGUN, LISTED_SECONDS)

    def delete(self, outputs: Outputs, current: CatalogIntegration) -> None:
        # The catalog keeps what was registered.
        catalogs = self.catalogs(outputs)
        catalogs.delete(current.id)
        self.wait_until_gone(lambda: catalogs.get(current.id), LISTED_SECONDS)

    def catalogs(self, outputs: Outputs) -> CatalogIntegrations:
        """Return the catalog integrations of the cluster."""
        return self.cloud.catalog_integrations(outputs[self.cluster], outputs[self.tableflow_key])


@dataclass(frozen=True, kw_only=True, repr=False)
class GlueCatalogResource(CatalogIntegrationResource):
    """Tableflow's registration in AWS Glue."""

    address = "confluent/catalog_integration"
    provider_integration: Resource[ProviderIntegration]
    after: tuple[Resource[Any], ...]
    """The role binding, the IAM role and the bucket that Tableflow uses."""

    @property
    def name(self) -> str:
        return self.names.confluent

    @property
    def label(self) -> str:
        return f"catalog integration '{self.name}' with AWS Glue"

    def config(self, outputs: Outputs) -> dict[str, str]:
        return glue(outputs[self.provider_integration].id)

    def diff(self, outputs: Outputs, current: CatalogIntegration) -> list[str]:
        uses, right = current.config.get("provider_integration_id"), outputs[self.provider_integration].id
        return [] if uses == right else [f"it uses provider integration '{uses}' instead of '{right}'"]

    def warning(self, outputs: Outputs, current: CatalogIntegration) -> str:
        return unready(current, BEGUN)

    def update(self, outputs: Outputs, current: CatalogIntegration) -> CatalogIntegration:
        # None can be moved to another provider integration. Glue keeps what was published.
        self.delete(outputs, current)
        return self.create(outputs)


@dataclass(frozen=True, kw_only=True, repr=False)
class OpenCatalogResource(CatalogIntegrationResource):
    """Tableflow's registration in Snowflake Open Catalog or Apache Polaris, by a client of that catalog.

    The client's secret is in no field: it is read when it is sent.
    """

    address = "confluent/open_catalog"
    client: OpenCatalogClient = field(repr=False)

    @property
    def name(self) -> str:
        return f"{self.names.confluent}-open-catalog"

    @property
    def label(self) -> str:
        return f"catalog integration '{self.name}' with Open Catalog '{self.client.declared.warehouse}'"

    def config(self, outputs: Outputs) -> dict[str, str]:
        declared = self.client.declared
        client_id, client_secret = self.client.credentials()
        config = {
            "kind": "Snowflake",
            "endpoint": declared.endpoint,
            "warehouse": declared.warehouse,
            "allowed_scope": declared.scope,
            "client_id": client_id,
            HIDDEN: client_secret,
        }
        return config | ({"custom_namespace": declared.namespace} if declared.namespace else {})

    def diff(self, outputs: Outputs, current: CatalogIntegration) -> list[str]:
        # The secret cannot be compared. After a failure it is sent again, because it may have been replaced.
        differences = [
            f"{setting} is {current.config.get(setting)!r} instead of {right!r}"
            for setting, right in self._shown(outputs).items()
            if current.config.get(setting) != right
        ]
        return differences + ([f"it has failed: {current.detail}"] if current.phase in FAILED else [])

    def update(self, outputs: Outputs, current: CatalogIntegration) -> CatalogIntegration:
        return self.catalogs(outputs).change(current.id, self.config(outputs))

    def _shown(self, outputs: Outputs) -> Mapping[str, str]:
        return {setting: value for setting, value in self.config(outputs).items() if setting != HIDDEN}


TABLE_SECONDS = 60 * 60
TABLE_DELETION_SECONDS = 30 * 60
NAMING = "metadata_column_naming_scheme"


@dataclass(frozen=True, kw_only=True, repr=False)
class ProviderIntegrationResource(ConfluentResource[ProviderIntegration]):
    """Confluent's way to assume a role in the AWS account. The role is created later: it trusts what this returns."""

    address = "confluent/provider_integration"
    environment: Resource[Environment]

    @property
    def label(self) -> str:
        return f"provider integration '{self.names.confluent}'"

    def read(self, outputs: Outputs) -> ProviderIntegration | None:
        return ProviderIntegrations(self.cloud.client(), outputs[self.environment].id).find(self.names.confluent)

    def create(self, outputs: Outputs) -> ProviderIntegration:
        integrations = ProviderIntegrations(self.cloud.client(), outputs[self.environment].id)
        return integrations.create(self.names.confluent, self.names.role_arn("confluent"))

    def wait_until_ready(self, outputs: Outputs, current: ProviderIntegration) -> ProviderIntegration:
        return self.wait_until_listed(outputs)

    def delete(self, outputs: Outputs, current: ProviderIntegration) -> None:
        # Tableflow stops some time after it confirms the deletion.
        def used() -> ProviderIntegration | None:
            now = self.read(outputs)
            return now if now and now.usages else None

        wait_until_deleted(f"what uses {self.label}", used, deadline_seconds=TABLE_DELETION_SECONDS, clock=self.clock)
        ProviderIntegrations(self.cloud.client(), outputs[self.environment].id).delete(current.id)
        self.wait_until_gone(lambda: self.read(outputs), LISTED_SECONDS)


class OwnStorage(NamedTuple):
    """References to the bucket of Tableflow's tables and to what opens it."""

    bucket: Resource[BucketState]
    provider_integration: Resource[ProviderIntegration]


@dataclass(frozen=True, kw_only=True, repr=False)
class TableflowTopicResource(ConfluentResource[TableflowTopic], Updatable[TableflowTopic]):
    """A topic that Tableflow keeps as an Iceberg table.

    In a bucket of the account, files and Glue's table outlive it. In its own storage, Confluent deletes the table a few
    days after Tableflow was turned off (Confluent, "Configure Storage for Tableflow").
    """

    entry: str
    topic_name: str
    subject: str
    """The subject of its schema, without which there is no table."""
    config: Mapping[str, Any]
    """The settings of the table in the terms of Tableflow's API."""
    write_mode: str
    """APPEND or UPSERT. Confluent determines it from the topic's `cleanup.policy` and Flink's `changelog.mode`."""
    cluster: Resource[Cluster]
    registry: Resource[SchemaRegistryCluster]
    topic: Resource[Any]
    catalogs: tuple[Resource[CatalogIntegration], ...]
    """None in Confluent's storage."""
    storage: OwnStorage | None
    """None for Confluent's storage."""
    tableflow_key: Resource[Key]
    registry_key: Resource[Key]
    visible: Callable[[str], str]
    """Replaces Confluent's text about a failure if it may quote values of sensitive columns."""
    filled_by: Resource[Any] | None
    """The resource that writes the records. None for external producers: the first table then has no known time."""

    @property
    def address(self) -> str:
        return f"confluent/tableflow/{self.entry}"

    @property
    def label(self) -> str:
        return f"Tableflow of topic '{self.topic_name}'"

    @property
    def read_depends_on(self) -> tuple[Resource[Any], ...]:
        return (self.cluster, self.tableflow_key)

    def read(self, outputs: Outputs) -> TableflowTopic | None:
        table = self._tables(outputs).find(self.topic_name)
        return table and replace(table, detail=self.visible(table.detail))

    @property
    def holds_data(self) -> bool:
        return self.storage is None

    def require_creatable(self, outputs: Outputs) -> None:
        if self.storage is None or self.storage.bucket not in outputs:
            return
        bucket = outputs[self.storage.bucket]
        if not bucket.first_object or self._uses(bucket.name, outputs):
            return
        raise UnclearState(
            f"The S3 bucket '{bucket.name}' is not empty (it has '{bucket.first_object}'), and Tableflow may delete "
            f"existing objects when it is first enabled. Tableflow was not enabled for topic '{self.topic_name}', and "
            f"the bucket was left untouched. Empty it, or name an empty bucket in `existing.tableflow_bucket`"
        )

    def _uses(self, bucket: str, outputs: Outputs) -> bool:
        """Return whether Tableflow already stores a table of the cluster in a bucket."""
        if any(dependency not in outputs for dependency in self.read_depends_on):
            return False
        return any(table.storage.get("bucket_name") == bucket for table in self._tables(outputs).list())

    def create(self, outputs: Outputs) -> TableflowTopic:
        if self.subject not in self.cloud.subjects(outputs[self.registry], outputs[self.registry_key]).list():
            raise LakehouseError(
                f"Topic '{self.topic_name}' has no schema yet (subject '{self.subject}'), so Tableflow cannot make a "
                f"table of it. Tableflow was not turned on for it. Let its producer write a first record, and run "
                f"`lakehouse deploy create` again"
            )
        tables, storage = self._tables(outputs), self._storage(outputs)
        return self.when_granted(lambda: tables.create(self.topic_name, storage, self.config))

    def wait_until_ready(self, outputs: Outputs, current: TableflowTopic) -> TableflowTopic:
        def synced() -> TableflowTopic | None:
            now = self.read(outputs)
            return now if now and now.synced else None

        now = self.wait_for_phase(lambda: self.read(outputs), self._ready, TABLE_SECONDS)
        self._require_write_mode(now)
        if not (self.filled_by and self.catalogs):
            return now
        return wait_until_visible(
            f"the registered table of {self.label}", synced, deadline_seconds=TABLE_SECONDS, clock=self.clock
        )

    def diff(self, outputs: Outputs, current: TableflowTopic) -> list[str]:
        differences = {**self._fixed(outputs, current), **self._changeable(current)}
        return [f"{setting} is {now!r} instead of {right!r}" for setting, (now, right) in differences.items()]

    def warning(self, outputs: Outputs, current: TableflowTopic) -> str:
        return unready(current, self._ready)

    def update(self, outputs: Outputs, current: TableflowTopic) -> TableflowTopic:
        if fixed := self._fixed(outputs, current):
            raise LakehouseError(
                f"{self.label} differs in {', '.join(fixed)}, which Confluent sets once for a table. It was left "
                f"unchanged. Correct it in lakehouse.yaml; or disable Tableflow for the topic in Confluent Cloud and "
                f"run `lakehouse deploy create`, which creates a new table from the records that the topic still has"
            )
        changed = {setting: right for setting, (_, right) in self._changeable(current).items()}
        return self._tables(outputs).change(self.topic_name, changed)

    def delete(self, outputs: Outputs, current: TableflowTopic) -> None:
        self._tables(outputs).delete(self.topic_name)
        self.wait_until_gone(lambda: self.read(outputs), TABLE_DELETION_SECONDS)

    @property
    def _ready(self) -> frozenset[str]:
        return frozenset({"RUNNING"}) if self.filled_by else BEGUN

    def _require_write_mode(self, current: TableflowTopic) -> None:
        """Refuse a table in which Tableflow appends instead of replacing rows, or the other way round."""
        if current.write_mode not in ("", self.write_mode):
            policy = "compact" if self.write_mode == "UPSERT" else "delete"
            raise LakehouseError(
                f"{self.label} has write mode {current.write_mode}, but lakehouse.yaml declares {self.write_mode}. The "
                f"table was left unchanged. Turn Tableflow off for the topic, set its cleanup.policy to {policy} (in a "
                f"Flink statement: 'changelog.mode' and 'kafka.cleanup-policy'), and run `lakehouse "
                f"deploy create`"
            )

    def _fixed(self, outputs: Outputs, current: TableflowTopic) -> dict[str, tuple[Any, Any]]:
        """Return the differences that cannot be changed, by setting: its value, and the declared one."""
        right = {**self._storage(outputs), NAMING: self.config[NAMING]}
        now = {setting: current.storage.get(setting) for setting in right}
        now[NAMING] = current.config.get(NAMING, "DEFAULT")
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

    def _storage(self, outputs: Outputs) -> Mapping[str, str]:
        if self.storage is None:
            return MANAGED
        return own_bucket(outputs[self.storage.bucket].name, outputs[self.storage.provider_integration].id)

    def _tables(self, outputs: Outputs) -> TableflowTopics:
        return self.cloud.tableflow_topics(outputs[self.cluster], outputs[self.tableflow_key])


def _comprises(value: Any, declared: Any) -> bool:
    if isinstance(declared, Mapping):
        return isinstance(value, Mapping) and all(value.get(name) == setting for name, setting in declared.items())
    return bool(value == declared)
