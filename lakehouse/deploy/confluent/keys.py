"""API keys by plane: each is one step with the secret it is kept in, in the kickstarter's layout."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar

from lakehouse.core.errors import LakehouseError
from lakehouse.core.polling import REAL, Clock
from lakehouse.deploy.confluent.account_key import AccountKey, JoinedLayout, Layout
from lakehouse.deploy.names import Names
from lakehouse.deploy.step import Found, Step
from resources.confluent.api_keys import Scope
from resources.confluent.flink import Region
from resources.confluent.plane import Key
from resources.confluent_cloud import ConfluentCloud
from resources.secrets_manager import CURRENT, PENDING, Secrets

REGISTRY = "schema.registry"


@dataclass(frozen=True)
class KeyStep(Step):
    """An account's key for one plane. `find` gives the key."""

    cloud: ConfluentCloud
    secrets: Secrets
    names: Names
    purpose: str
    path: str
    """Of the secret, below the deployment's own."""
    after: tuple[str, ...] = ()
    """Steps without which the plane refuses the key: the account's roles."""
    clock: Clock = REAL
    plane: ClassVar[str]
    stands_on: ClassVar[tuple[str, ...]]

    @property
    def name(self) -> str:
        return f"confluent/key/{self.purpose}/{self.plane}"

    @property
    def what(self) -> str:
        return f"API key of '{self.purpose}' for {self.plane}, in the secret '{self.secret}'"

    @property
    def secret(self) -> str:
        """Name of the secret."""
        return f"{self.names.confluent_secrets}/{self.path}"

    @property
    def needs(self) -> tuple[str, ...]:
        return (f"confluent/account/{self.purpose}", *self.stands_on, *self.after)

    @abstractmethod
    def account_key(self, found: Found) -> AccountKey:
        """Where the key is, and how it is made."""

    def find(self, found: Found) -> Key | None:
        return self.account_key(found).find()

    def create(self, found: Found) -> Key:
        kept = self.account_key(found)
        kept.delete_strays()
        # A restored secret has a current version already, over which an earlier attempt may have put its key.
        pending = kept.version(PENDING)
        key = (kept.usable(pending) if pending else None) or kept.make()
        kept.store(key)
        return key

    def settle(self, found: Found, it: Key) -> Key:
        self.account_key(found).prove(it, self.clock)
        return it

    def differences(self, found: Found, it: Key) -> list[str]:
        kept = self.account_key(found)
        differences = [f"API key {stray.id} is in no secret" for stray in kept.strays()]
        current = kept.version(CURRENT)
        if current is None or current.value != kept.layout.write(it):
            differences.append("what the secret says beside the key is out of date")
        return differences

    def change(self, found: Found, it: Key) -> Key:
        kept = self.account_key(found)
        kept.delete_strays()
        kept.store(it)
        return it

    def delete(self, found: Found, it: Key) -> None:
        kept = self.account_key(found)
        # The secret first: a key without one is still found by its account, which takes it along.
        self.secrets.delete(self.secret)
        for key in kept.ours():
            kept.api_keys.delete(key.id)

    def _account_key(self, found: Found, scope: Scope, layout: Layout, ask: Callable[[Key], Any]) -> AccountKey:
        return AccountKey(
            api_keys=self.cloud.api_keys(),
            secrets=self.secrets,
            name=f"{self.names.service_account(self.purpose)}-{self.plane.replace('_', '-')}",
            secret=self.secret,
            owner_id=found[f"confluent/account/{self.purpose}"].id,
            scope=scope,
            layout=layout,
            ask=ask,
        )


@dataclass(frozen=True)
class KafkaKeyStep(KeyStep):
    """A key for the Kafka cluster."""

    plane: ClassVar[str] = "kafka"
    stands_on: ClassVar[tuple[str, ...]] = ("confluent/cluster",)

    def account_key(self, found: Found) -> AccountKey:
        cluster = found["confluent/cluster"]
        servers = cluster.bootstrap_endpoint.removeprefix("SASL_SSL://")
        layout = Layout("sasl.username", "sasl.password", {"bootstrap.servers": servers})
        return self._account_key(
            found, Scope.cluster(cluster.id), layout, lambda key: self.cloud.topics(cluster, key).list()
        )


@dataclass(frozen=True)
class ManagerKeyStep(KafkaKeyStep):
    """The Kafka key that topics and access control lists are made with."""

    def account_key(self, found: Found) -> AccountKey:
        kept, cluster = super().account_key(found), found["confluent/cluster"]

        def ask(key: Key) -> None:
            self.cloud.topics(cluster, key).list()
            self.cloud.acls(cluster, key).list(f"User:{kept.owner_id}")

        return self._account_key(found, kept.scope, kept.layout, ask)


@dataclass(frozen=True)
class RegistryKeyStep(KeyStep):
    """A key for the Schema Registry."""

    plane: ClassVar[str] = "schema_registry"
    stands_on: ClassVar[tuple[str, ...]] = ("confluent/schema_registry",)

    def account_key(self, found: Found) -> AccountKey:
        registry = found["confluent/schema_registry"]
        user_info = f"{REGISTRY}.basic.auth.user.info"
        beside = {
            f"{REGISTRY}.basic.auth.credentials.source": "USER_INFO",
            f"{REGISTRY}.url": registry.http_endpoint,
        }
        layout = JoinedLayout(user_info, user_info, beside)
        return self._account_key(
            found, Scope.cluster(registry.id), layout, lambda key: self.cloud.subjects(registry, key).list()
        )


@dataclass(frozen=True)
class TableflowKeyStep(KeyStep):
    """A key for Tableflow."""

    plane: ClassVar[str] = "tableflow"
    stands_on: ClassVar[tuple[str, ...]] = ("confluent/cluster",)

    def account_key(self, found: Found) -> AccountKey:
        cluster = found["confluent/cluster"]
        beside = {"environment.id": cluster.environment_id, "kafka.cluster.id": cluster.id}
        layout = Layout("api.key", "api.key.secret", beside)
        return self._account_key(
            found, Scope.tableflow(), layout, lambda key: self.cloud.tableflow_topics(cluster, key).list()
        )


@dataclass(frozen=True)
class FlinkKeyStep(KeyStep):
    """A key for Flink in the deployment's region."""

    plane: ClassVar[str] = "flink"
    stands_on: ClassVar[tuple[str, ...]] = ("confluent/environment", "confluent/compute_pool")

    def account_key(self, found: Found) -> AccountKey:
        environment, pool = found["confluent/environment"], found["confluent/compute_pool"]
        region = flink_region(self.cloud, self.names)
        account = found[f"confluent/account/{self.purpose}"]
        layout = Layout("api.key", "api.key.secret", {"compute.pool.id": pool.id, "principal.id": account.id})
        scope = Scope.flink(region.id, environment.id)
        return self._account_key(
            found, scope, layout, lambda key: self.cloud.statements(region, environment, key).list()
        )


def flink_region(cloud: ConfluentCloud, names: Names) -> Region:
    """Where Flink runs.

    Raises: LakehouseError when Confluent does not offer it there.
    """
    region = cloud.regions().find(names.region)
    if region is None:
        raise LakehouseError(
            f"Confluent Cloud offers no Flink in AWS region {names.region}. Nothing was changed. Choose another region "
            f"for deployment '{names.deployment}', or remove its 'flink' statements"
        )
    return region
