"""The objects of an organization: environments, service accounts, role bindings and API keys."""

from __future__ import annotations

import datetime as dt
import re
from dataclasses import dataclass, field
from typing import Any, ClassVar

from resources.confluent.api_client import ApiClient, Key
from resources.confluent.collection import Collection, single_match

_ORGANIZATION = re.compile(r"organization=([^/]+)")


@dataclass(frozen=True)
class Environment:
    """An environment, which contains clusters. `crn` is its Confluent Resource Name, to which roles are bound."""

    id: str
    name: str
    crn: str

    @property
    def organization_id(self) -> str:
        """The UUID of its organization."""
        organization = _ORGANIZATION.search(self.crn)
        assert organization is not None, "`of` verifies it"
        return organization[1]

    @property
    def organization_crn(self) -> str:
        """The Confluent Resource Name of the organization."""
        return self.crn.rpartition("/environment=")[0]

    @staticmethod
    def of(response: dict[str, Any]) -> Environment:
        """Parse a response."""
        crn = response["metadata"]["resource_name"]
        if not _ORGANIZATION.search(crn):
            raise ValueError(f"the name of an environment contains its organization: {crn}")
        return Environment(response["id"], response["display_name"], crn)


class Environments(Collection[Environment]):
    """The environments of an organization. Deleting one deletes **all its clusters, connectors and topics**."""

    label, kind, path = "environment", Environment, "/org/v2/environments"

    def create(self, name: str) -> Environment:
        """Create an environment. Confluent creates its Schema Registry with its first cluster."""
        return self._create({"display_name": name, "stream_governance_config": {"package": "ESSENTIALS"}})


@dataclass(frozen=True)
class ServiceAccount:
    """A service account. Its name is unique in the organization."""

    id: str
    name: str
    description: str

    @property
    def principal(self) -> str:
        """Its name in role bindings and ACLs."""
        return f"User:{self.id}"

    @staticmethod
    def of(response: dict[str, Any]) -> ServiceAccount:
        """Parse a response."""
        return ServiceAccount(response["id"], response["display_name"], response.get("description") or "")


class ServiceAccounts(Collection[ServiceAccount]):
    """The service accounts of an organization. Deleting one deletes its API keys and role bindings."""

    label, kind, path = "service account", ServiceAccount, "/iam/v2/service-accounts"
    is_forbidden_if_missing = True

    def find(self, name: str) -> ServiceAccount | None:
        accounts = self.client.items(self.path, self.kind.of, {"display_name": name})
        return single_match(f"{self.label} '{name}'", [account for account in accounts if account.name == name])

    def create(self, name: str, description: str) -> ServiceAccount:
        """Create a service account.

        Raises:
            Conflict: A service account of that name exists.
        """
        return self._create({"display_name": name, "description": description})


@dataclass(frozen=True)
class RoleBinding:
    """A role of `principal` (`User:sa-…`) on all resources that match a CRN pattern."""

    id: str
    principal: str
    role: str
    crn_pattern: str

    @staticmethod
    def of(response: dict[str, Any]) -> RoleBinding:
        """Parse a response."""
        return RoleBinding(response["id"], response["principal"], response["role_name"], response["crn_pattern"])


@dataclass(frozen=True)
class RoleBindings:
    """The role bindings of an organization."""

    client: ApiClient

    path: ClassVar = "/iam/v2/role-bindings"

    def on(self, crn_pattern: str, principal: str | None = None, role: str | None = None) -> list[RoleBinding]:
        """Return the role bindings on exactly this pattern. The API also lists those on parts of it."""
        query = {"crn_pattern": crn_pattern, "principal": principal, "role_name": role}
        bindings = self.client.items(self.path, RoleBinding.of, query)
        return [binding for binding in bindings if binding.crn_pattern == crn_pattern]

    def below(self, crn: str, principal: str) -> list[RoleBinding]:
        """Return a principal's role bindings on a resource and on all parts of it."""
        return list(self.client.items(self.path, RoleBinding.of, {"crn_pattern": crn, "principal": principal}))

    def find(self, principal: str, role: str, crn_pattern: str) -> RoleBinding | None:
        """Return the role binding with exactly these attributes, or None."""
        return next(iter(self.on(crn_pattern, principal, role)), None)

    def create(self, principal: str, role: str, crn_pattern: str) -> RoleBinding:
        """Grant the role. It takes effect on all APIs within minutes."""
        body = {"principal": principal, "role_name": role, "crn_pattern": crn_pattern}
        return self.client.send("POST", self.path, RoleBinding.of, body=body)

    def delete(self, binding: RoleBinding) -> None:
        """Revoke the role."""
        self.client.delete(
            f"{self.path}/{binding.id}",
            may_exist=lambda: binding in self.on(binding.crn_pattern, binding.principal, binding.role),
        )


@dataclass(frozen=True)
class KeyScope:
    """The resource of a key, as an object reference of the API."""

    id: str
    kind: str
    api_version: str | None = None
    environment: str | None = None

    @staticmethod
    def cluster(cluster_id: str) -> KeyScope:
        """Return the scope of a Kafka cluster (`lkc-…`) or a Schema Registry (`lsrc-…`)."""
        return KeyScope(cluster_id, "Cluster")

    @staticmethod
    def flink(region_id: str, environment_id: str) -> KeyScope:
        """Return the scope of Flink in one region (`aws.us-east-1`) of an environment."""
        return KeyScope(region_id, "Region", "fcpm/v2", environment_id)

    @staticmethod
    def tableflow() -> KeyScope:
        """Return the scope of Tableflow."""
        return KeyScope("tableflow", "Tableflow", "tableflow/v1")

    @staticmethod
    def cloud() -> KeyScope:
        """Return the scope of the API that manages the organization. Requests name it by the absence of a resource."""
        return KeyScope("cloud", "Cloud")


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

    def is_for(self, scope: KeyScope) -> bool:
        """Return whether the key is for a resource."""
        return self.scope_id == scope.id and scope.environment in (None, self.environment_id)

    @staticmethod
    def of(response: dict[str, Any]) -> ApiKey:
        """Parse a response."""
        spec = response["spec"]
        resource = spec.get("resource") or {"id": KeyScope.cloud().id}
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

    def list(self, owner_id: str, scope: KeyScope | None = None) -> list[ApiKey]:
        """Return the keys of one account for one resource or for all, oldest first."""
        query = {"spec.owner": owner_id, "spec.resource": scope and scope.id}
        keys = self.client.items("/iam/v2/api-keys", ApiKey.of, query)
        matching = [key for key in keys if scope is None or key.is_for(scope)]
        return sorted(matching, key=lambda key: key.created_at)

    def find(self, key_id: str) -> ApiKey | None:
        """Return the key with an id, without its secret; None if it does not exist."""
        return self.client.find(f"/iam/v2/api-keys/{key_id}", ApiKey.of)

    def create(self, name: str, description: str, owner_id: str, scope: KeyScope) -> ApiKey:
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
        if scope != KeyScope.cloud():
            spec["resource"] = {part: value for part, value in resource.items() if value is not None}
        return self.client.send("POST", "/iam/v2/api-keys", ApiKey.of, body={"spec": spec})

    def delete(self, key_id: str, owner_id: str) -> None:
        """Delete a key of an account. APIs refuse it from now on.

        Raises:
            Forbidden: The caller may not delete it, or may no longer see the account and its keys.
        """

        def may_exist() -> bool:
            # The list of keys is empty, too, for a caller who may not see the account.
            accounts = {account.id for account in ServiceAccounts(self.client).list()}
            return owner_id not in accounts or any(key.id == key_id for key in self.list(owner_id))

        self.client.delete(f"/iam/v2/api-keys/{key_id}", may_exist=may_exist)
