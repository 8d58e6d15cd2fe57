"""API keys of accounts for APIs. Confluent returns the secret of a key only when the key is created."""

from __future__ import annotations

import datetime as dt
from dataclasses import dataclass, field
from typing import Any

from resources.confluent.api_client import ApiClient, Key
from resources.confluent.organization import ServiceAccount


@dataclass(frozen=True)
class Scope:
    """The resource of a key, as an object reference of the API."""

    id: str
    kind: str
    api_version: str | None = None
    environment: str | None = None

    @staticmethod
    def cluster(cluster_id: str) -> Scope:
        """Return the scope of a Kafka cluster (`lkc-…`) or a Schema Registry (`lsrc-…`)."""
        return Scope(cluster_id, "Cluster")

    @staticmethod
    def flink(region_id: str, environment_id: str) -> Scope:
        """Return the scope of Flink in one region (`aws.us-east-1`) of an environment."""
        return Scope(region_id, "Region", "fcpm/v2", environment_id)

    @staticmethod
    def tableflow() -> Scope:
        """Return the scope of Tableflow."""
        return Scope("tableflow", "Tableflow", "tableflow/v1")

    @staticmethod
    def cloud() -> Scope:
        """Return the scope of the API that manages the organization. Requests name it by the absence of a resource."""
        return Scope("cloud", "Cloud")


@dataclass(frozen=True)
class ApiKey:
    """An API key. `secret` is None except in the response that created the key."""

    id: str
    name: str
    description: str
    owner_id: str
    scope_id: str
    environment_id: str | None
    created_at: dt.datetime
    secret: str | None = field(default=None, repr=False)

    @property
    def key(self) -> Key:
        """The key for an API.

        Raises:
            ValueError: The secret is unknown, because the key was read and not created.
        """
        if self.secret is None:
            raise ValueError(f"the secret of API key {self.id} is unknown: it is shown only when a key is created")
        return Key(self.id, self.secret)

    def is_for(self, scope: Scope) -> bool:
        """Return whether the key is for a resource."""
        return self.scope_id == scope.id and scope.environment in (None, self.environment_id)

    @staticmethod
    def of(response: dict[str, Any]) -> ApiKey:
        """Parse a response."""
        spec = response["spec"]
        resource = spec.get("resource") or {"id": Scope.cloud().id}
        return ApiKey(
            id=response["id"],
            name=spec.get("display_name") or "",
            description=spec.get("description") or "",
            owner_id=spec["owner"]["id"],
            scope_id=resource["id"],
            environment_id=resource.get("environment"),
            created_at=dt.datetime.fromisoformat(response["metadata"]["created_at"]),
            secret=spec.get("secret") or None,
        )


@dataclass(frozen=True)
class ApiKeys:
    """The API keys of an organization."""

    client: ApiClient

    def list(self, owner_id: str, scope: Scope | None = None) -> list[ApiKey]:
        """Return the keys of one account for one resource or for all, oldest first."""
        query = {"spec.owner": owner_id, "spec.resource": scope and scope.id}
        keys = self.client.items("/iam/v2/api-keys", ApiKey.of, query)
        matching = [key for key in keys if scope is None or key.is_for(scope)]
        return sorted(matching, key=lambda key: key.created_at)

    def find(self, key_id: str) -> ApiKey | None:
        """Return the key with an id, without its secret; None if it does not exist."""
        return self.client.find(f"/iam/v2/api-keys/{key_id}", ApiKey.of)

    def create(self, name: str, description: str, owner_id: str, scope: Scope) -> ApiKey:
        """Create a key. Only this result contains its secret. APIs accept the key within minutes."""
        resource = {
            "id": scope.id,
            "kind": scope.kind,
            "api_version": scope.api_version,
            "environment": scope.environment,
        }
        spec: dict[str, Any] = {
            "display_name": name,
            "description": description,
            "owner": {"id": owner_id, "kind": "ServiceAccount"},
        }
        if scope != Scope.cloud():
            spec["resource"] = {part: value for part, value in resource.items() if value is not None}
        return self.client.send("POST", "/iam/v2/api-keys", ApiKey.of, body={"spec": spec})

    def delete(self, key_id: str, owner_id: str) -> None:
        """Delete a key of an account. APIs refuse it from now on.

        Raises:
            Forbidden: The caller may not delete it, or may no longer see the account and its keys.
        """

        def may_exist() -> bool:
            # The list of keys is empty, too, for a caller who may not see the account.
            accounts = {account.id for account in self.client.items("/iam/v2/service-accounts", ServiceAccount.of)}
            return owner_id not in accounts or any(key.id == key_id for key in self.list(owner_id))

        self.client.delete(f"/iam/v2/api-keys/{key_id}", may_exist=may_exist)
