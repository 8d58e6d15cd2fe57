"""The API keys of a deployment in Confluent Cloud, and the secrets that they are kept in."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

from lakehouse.deploy.confluent.keys.stored_api_keys import (
    ApiKeyResource,
    CatalogKeyResource,
    FlinkKeyResource,
    KafkaKeyResource,
    ManagerKeyResource,
    RegistryKeyResource,
    TableflowKeyResource,
)
from lakehouse.deploy.confluent.rotation_key import RotationKeyResource
from lakehouse.deploy.confluent.topics.declared_topics import DeclaredTopics
from lakehouse.deploy.names import CONFLUENT_SECRETS

if TYPE_CHECKING:
    from lakehouse.deploy.confluent.confluent_resources import ConfluentResources


@dataclass(frozen=True)
class KeyResources:
    """The keys of the service accounts by purpose and API."""

    confluent: ConfluentResources
    topics: DeclaredTopics

    @cached_property
    def secrets(self) -> dict[tuple[str, str], str]:
        """The secret of each key that is needed, by purpose of the account and API."""
        needless = set()
        if not self.topics.tables:
            needless.add(("app_manager", "tableflow"))
        if not self.topics.stored_by_confluent:
            needless.add(("spark", "tableflow"))
        if not self.confluent.deployment.flink:
            needless.add(("flink", "flink"))
        return {key: self.confluent.names.confluent_secret(*key) for key in CONFLUENT_SECRETS if key not in needless}

    @property
    def all(self) -> list[ApiKeyResource]:
        """All keys, dependencies first."""
        return list(self._keys.values())

    @property
    def manager(self) -> ApiKeyResource:
        """The key with which topics and access control lists are created."""
        return self._keys["app_manager", "kafka"]

    @property
    def registry(self) -> ApiKeyResource:
        """The key with which subjects are listed."""
        return self._keys["schema_registry", "schema_registry"]

    @property
    def tableflow(self) -> ApiKeyResource:
        """The key for Tableflow, created only if Tableflow creates any table."""
        return self._keys["app_manager", "tableflow"]

    @property
    def flink(self) -> ApiKeyResource:
        """The key for Flink, created only for statements."""
        return self._keys["flink", "flink"]

    @cached_property
    def _keys(self) -> dict[tuple[str, str], ApiKeyResource]:
        return {(purpose, api): self._key(purpose, api) for purpose, api in self.secrets}

    def _key(self, purpose: str, api: str) -> ApiKeyResource:
        """Return the key of an account for an API."""
        confluent = self.confluent
        fields: dict[str, Any] = {
            "account": confluent.accounts[purpose],
            "secret": self.secrets[purpose, api],
            "roles": confluent.role_bindings.get(purpose),
        }
        match api, purpose:
            case "kafka", _:
                kind = ManagerKeyResource if purpose == "app_manager" else KafkaKeyResource
                return kind(*confluent.common, **fields, cluster=confluent.cluster)
            case "schema_registry", _:
                return RegistryKeyResource(*confluent.common, **fields, registry=confluent.registry)
            case "tableflow", "spark":
                return CatalogKeyResource(*confluent.common, **fields, environment=confluent.environment)
            case "tableflow", _:
                return TableflowKeyResource(*confluent.common, **fields, cluster=confluent.cluster)
            case "flink", _:
                fields |= {"environment": confluent.environment, "compute_pool": confluent.compute_pool}
                return FlinkKeyResource(*confluent.common, **fields)
            case _:
                recorded = (confluent.environment, confluent.cluster, confluent.registry, *confluent.compute)
                return RotationKeyResource(*confluent.common, **fields, recorded=recorded)
