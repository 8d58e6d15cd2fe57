"""API keys of accounts: each is one resource with the secret that holds it, in the kickstarter's layout.

The account that replaces keys is ResourceOwner of the deployment's service accounts and has no other role. It may list,
create and delete the API keys of these accounts, and may not see the environment, its clusters or Flink. The secret of
its key therefore also holds what an administrator read of them, which `lakehouse deploy create` keeps up to date.
"""

import json
from abc import abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, ClassVar

from lakehouse.core.errors import UnclearState
from lakehouse.deploy.confluent.access import ServiceAccountResource
from lakehouse.deploy.confluent.account_key import AccountKey, JoinedLayout, Layout
from lakehouse.deploy.confluent.confluent_resource import ConfluentResource
from lakehouse.deploy.confluent.foundation import FlinkCompute
from lakehouse.deploy.resource import Outputs, Resource, Updatable
from resources.aws.secrets_manager import CURRENT
from resources.confluent import confluent_cloud
from resources.confluent.api_client import Key
from resources.confluent.clusters import Cluster, SchemaRegistryCluster
from resources.confluent.organization import ApiKeys, Environment, KeyScope, RoleBinding
from resources.iceberg import tableflow_catalog

REGISTRY = "schema.registry"


@dataclass(frozen=True, kw_only=True, repr=False)
class ApiKeyResource(ConfluentResource[Key], Updatable[Key]):
    """An account's key for one API."""

    api: ClassVar[str]
    account: ServiceAccountResource
    secret: str
    """Name of the secret."""
    roles: Resource[list[RoleBinding]] | None
    """The account's roles, without which the API refuses the key."""

    @property
    def address(self) -> str:
        return f"confluent/key/{self.account.purpose}/{self.api}"

    @property
    def label(self) -> str:
        return f"API key of '{self.account.purpose}' for {self.api}, in the secret '{self.secret}'"

    @property
    def read_depends_on(self) -> tuple[Resource[Any], ...]:
        # A key exists without its roles, and the account that replaces keys may not read them.
        return tuple(dependency for dependency in self.depends_on if dependency is not self.roles)

    @abstractmethod
    def account_key(self, outputs: Outputs) -> AccountKey:
        """Return where the key is, and how it is created."""

    def read(self, outputs: Outputs) -> Key | None:
        return self.account_key(outputs).find()

    def absence(self, outputs: Outputs) -> str:
        return "; ".join(["does not exist", *self._deletions(outputs)])

    def create(self, outputs: Outputs) -> Key:
        key_store = self.account_key(outputs)
        key_store.delete_strays()
        return key_store.create()

    def wait_until_ready(self, outputs: Outputs, current: Key) -> Key:
        self.account_key(outputs).wait_until_accepted(current, self.clock)
        return current

    def diff(self, outputs: Outputs, current: Key) -> list[str]:
        key_store = self.account_key(outputs)
        differences = self._deletions(outputs)
        version = key_store.version(CURRENT)
        if version and version.value != key_store.layout.write(key_store.key(version)):
            differences.append("the settings beside the key in the secret are out of date")
        return differences

    def update(self, outputs: Outputs, current: Key) -> Key:
        key_store = self.account_key(outputs)
        key_store.delete_strays()
        # A rotation may have replaced the key since it was read.
        return key_store.rewrite()

    def delete(self, outputs: Outputs, current: Key) -> None:
        key_store = self.account_key(outputs)
        # The secret first: a key without one is still found by its account, with which it is deleted.
        self.account.secrets.delete(self.secret)
        for key in key_store.existing():
            key_store.api_keys.delete(key.id, key_store.owner_id)

    def _deletions(self, outputs: Outputs) -> list[str]:
        strays = self.account_key(outputs).strays()
        return [f"API key {stray.id} is in no secret and will be deleted" for stray in strays]

    def _account_key(
        self, outputs: Outputs, scope: KeyScope, layout: Layout, use: Callable[[Key], object]
    ) -> AccountKey:
        return AccountKey(
            api_keys=ApiKeys(self.cloud.client()),
            secrets=self.account.secrets,
            name=f"{self.names.service_account(self.account.purpose)}-{self.api.replace('_', '-')}",
            description=f"Kept in the secret {self.names.secret_arn(self.secret)}",
            secret=self.secret,
            owner_id=outputs[self.account].id,
            scope=scope,
            layout=layout,
            use=use,
        )


@dataclass(frozen=True, kw_only=True, repr=False)
class KafkaKeyResource(ApiKeyResource):
    """A key for the Kafka cluster."""

    api: ClassVar[str] = "kafka"
    cluster: Resource[Cluster]

    def account_key(self, outputs: Outputs) -> AccountKey:
        cluster = outputs[self.cluster]
        servers = cluster.bootstrap_endpoint.removeprefix("SASL_SSL://")
        layout = Layout("sasl.username", "sasl.password", {"bootstrap.servers": servers})
        return self._account_key(
            outputs, KeyScope.cluster(cluster.id), layout, lambda key: self.cloud.topics(cluster, key).list()
        )


@dataclass(frozen=True, kw_only=True, repr=False)
class ManagerKeyResource(KafkaKeyResource):
    """The Kafka key with which topics and access control lists are created."""

    def account_key(self, outputs: Outputs) -> AccountKey:
        kafka_key, cluster = super().account_key(outputs), outputs[self.cluster]

        def use(key: Key) -> None:
            self.cloud.topics(cluster, key).list()
            self.cloud.acls(cluster, key).list(f"User:{kafka_key.owner_id}")

        return self._account_key(outputs, kafka_key.scope, kafka_key.layout, use)


@dataclass(frozen=True, kw_only=True, repr=False)
class RegistryKeyResource(ApiKeyResource):
    """A key for the Schema Registry."""

    api: ClassVar[str] = "schema_registry"
    registry: Resource[SchemaRegistryCluster]

    def account_key(self, outputs: Outputs) -> AccountKey:
        registry = outputs[self.registry]
        user_info = f"{REGISTRY}.basic.auth.user.info"
        beside = {
            f"{REGISTRY}.basic.auth.credentials.source": "USER_INFO",
            f"{REGISTRY}.url": registry.http_endpoint,
        }
        layout = JoinedLayout(user_info, user_info, beside)
        return self._account_key(
            outputs, KeyScope.cluster(registry.id), layout, lambda key: self.cloud.subjects(registry, key).list()
        )


@dataclass(frozen=True, kw_only=True, repr=False)
class TableflowKeyResource(ApiKeyResource):
    """A key for Tableflow."""

    api: ClassVar[str] = "tableflow"
    cluster: Resource[Cluster]

    def account_key(self, outputs: Outputs) -> AccountKey:
        cluster = outputs[self.cluster]
        beside = {"environment.id": cluster.environment_id, "kafka.cluster.id": cluster.id}
        layout = Layout("api.key", "api.key.secret", beside)
        return self._account_key(
            outputs, KeyScope.tableflow(), layout, lambda key: self.cloud.tableflow_topics(cluster, key).list()
        )


@dataclass(frozen=True, kw_only=True, repr=False)
class CatalogKeyResource(ApiKeyResource):
    """A key for Tableflow's own REST catalog, which vends credentials for the files in Confluent's storage."""

    api: ClassVar[str] = "tableflow"
    environment: Resource[Environment]

    def account_key(self, outputs: Outputs) -> AccountKey:
        # Tried by a list of regions: for tables, the key only has the right to read them.
        environment = outputs[self.environment]
        host = f"https://tableflow.{self.names.region}.aws.confluent.cloud"
        place = f"organizations/{environment.organization_id}/environments/{environment.id}"
        beside = {tableflow_catalog.URI: f"{host}/iceberg/catalog/{place}"}
        layout = Layout(tableflow_catalog.KEY, tableflow_catalog.KEY_SECRET, beside)
        return self._account_key(outputs, KeyScope.tableflow(), layout, self.cloud.list_tableflow_regions)


@dataclass(frozen=True, kw_only=True, repr=False)
class FlinkKeyResource(ApiKeyResource):
    """A key for Flink in the deployment's region."""

    api: ClassVar[str] = "flink"
    environment: Resource[Environment]
    compute_pool: Resource[FlinkCompute]

    def account_key(self, outputs: Outputs) -> AccountKey:
        environment, compute = outputs[self.environment], outputs[self.compute_pool]
        beside = {"compute.pool.id": compute.pool_id, "principal.id": outputs[self.account].id}
        layout = Layout("api.key", "api.key.secret", beside)
        scope = KeyScope.flink(compute.region_id, environment.id)
        return self._account_key(
            outputs, scope, layout, lambda key: self.cloud.statements(compute.region, environment, key).list()
        )


STATES = "lakehouse.states"
"""The field with the recorded states: a JSON object, by address of the resource."""
STATE_TYPES: dict[str, type[Any]] = {
    "confluent/environment": Environment,
    "confluent/cluster": Cluster,
    "confluent/schema_registry": SchemaRegistryCluster,
    "confluent/compute_pool": FlinkCompute,
}
"""The type of each recorded state, by address."""


@dataclass(frozen=True, kw_only=True, repr=False)
class RotationKeyResource(ApiKeyResource):
    """The account's key for the API that manages the organization."""

    api: ClassVar[str] = "cloud"
    recorded: tuple[Resource[Any], ...]
    """The resources whose states the secret holds."""

    def account_key(self, outputs: Outputs) -> AccountKey:
        states = {resource.address: asdict(outputs[resource]) for resource in self.recorded}
        layout = Layout(confluent_cloud.KEY, confluent_cloud.KEY_SECRET, {STATES: json.dumps(states, sort_keys=True)})
        owner_id = outputs[self.account].id

        def use(key: Key) -> None:
            ApiKeys(replace(self.cloud.client(), key=key)).list(owner_id)

        return self._account_key(outputs, KeyScope.cloud(), layout, use)

    def recorded_outputs(self) -> Outputs:
        """Read the recorded states."""
        version = self.account.secrets.read(self.secret, CURRENT)
        outputs = Outputs()
        try:
            states = json.loads(version.value.reveal()[STATES]) if version else {}
            for resource in self.recorded:
                outputs[resource] = STATE_TYPES[resource.address](**states[resource.address])
        except (KeyError, TypeError, ValueError) as error:
            raise UnclearState(
                f"The secret '{self.secret}' does not have the state of all of {_addresses(self.recorded)} "
                f"({type(error).__name__}). Nothing was rotated. Run `lakehouse deploy create`, which writes it"
            ) from None
        return outputs


def _addresses(resources: Sequence[Resource[Any]]) -> str:
    return ", ".join(resource.address for resource in resources)
