"""The API keys of a deployment in Confluent Cloud, and the secrets that they are kept in."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from lakehouse.deploy.confluent.base_resources import BaseResources
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


@dataclass(frozen=True)
class KeyResources:
    """The keys of the service accounts by purpose and API."""

    base: BaseResources
    secrets: Mapping[tuple[str, str], str]
    """The secret of each key, by purpose of the account and API."""

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
        base = self.base
        fields: dict[str, Any] = {
            "account": base.accounts[purpose],
            "secret": self.secrets[purpose, api],
            "roles": base.role_bindings.get(purpose),
        }
        match api, purpose:
            case "kafka", _:
                kind = ManagerKeyResource if purpose == "app_manager" else KafkaKeyResource
                return kind(*base.common, **fields, cluster=base.cluster)
            case "schema_registry", _:
                return RegistryKeyResource(*base.common, **fields, registry=base.registry)
            case "tableflow", "spark":
                return CatalogKeyResource(*base.common, **fields, environment=base.environment)
            case "tableflow", _:
                return TableflowKeyResource(*base.common, **fields, cluster=base.cluster)
            case "flink", _:
                fields |= {"environment": base.environment, "compute_pool": base.compute_pool}
                return FlinkKeyResource(*base.common, **fields)
            case _:
                recorded = (base.environment, base.cluster, base.registry, *base.compute)
                return RotationKeyResource(*base.common, **fields, recorded=recorded)
