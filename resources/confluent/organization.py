"""Environments, service accounts and role bindings of an organization."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

from resources.confluent.api_client import ApiClient, single_match

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


@dataclass(frozen=True)
class Environments:
    """The environments of an organization."""

    client: ApiClient

    def list(self) -> list[Environment]:
        """Return the environments that are visible to the key."""
        return list(self.client.items("/org/v2/environments", Environment.of))

    def find(self, name: str) -> Environment | None:
        """Return the environment with a display name, or None.

        Raises:
            UnclearState: Several environments have the name.
        """
        return single_match(
            f"environment '{name}'", [environment for environment in self.list() if environment.name == name]
        )

    def create(self, name: str) -> Environment:
        """Create an environment. Confluent creates its Schema Registry with its first cluster."""
        body = {"display_name": name, "stream_governance_config": {"package": "ESSENTIALS"}}
        return self.client.send("POST", "/org/v2/environments", Environment.of, body=body)

    def delete(self, environment_id: str) -> None:
        """Delete an environment **with all its clusters, connectors and topics**."""
        self.client.delete(f"/org/v2/environments/{environment_id}")


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


@dataclass(frozen=True)
class ServiceAccounts:
    """The service accounts of an organization."""

    client: ApiClient

    def find(self, name: str) -> ServiceAccount | None:
        """Return the service account with a display name, or None."""
        accounts = self.client.items("/iam/v2/service-accounts", ServiceAccount.of, {"display_name": name})
        return single_match(f"service account '{name}'", [account for account in accounts if account.name == name])

    def create(self, name: str, description: str) -> ServiceAccount:
        """Create a service account.

        Raises:
            Conflict: A service account of that name exists.
        """
        body = {"display_name": name, "description": description}
        return self.client.send("POST", "/iam/v2/service-accounts", ServiceAccount.of, body=body)

    def delete(self, account_id: str) -> None:
        """Delete a service account with its API keys and role bindings."""
        path = "/iam/v2/service-accounts"
        self.client.delete(
            f"{path}/{account_id}",
            may_exist=lambda: any(account.id == account_id for account in self.client.items(path, ServiceAccount.of)),
        )


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

    def on(self, crn_pattern: str, principal: str | None = None, role: str | None = None) -> list[RoleBinding]:
        """Return the role bindings on exactly this pattern. The API also lists those on parts of it."""
        query = {"crn_pattern": crn_pattern, "principal": principal, "role_name": role}
        bindings = self.client.items("/iam/v2/role-bindings", RoleBinding.of, query)
        return [binding for binding in bindings if binding.crn_pattern == crn_pattern]

    def below(self, crn: str, principal: str) -> list[RoleBinding]:
        """Return a principal's role bindings on a resource and on all parts of it."""
        query = {"crn_pattern": crn, "principal": principal}
        return list(self.client.items("/iam/v2/role-bindings", RoleBinding.of, query))

    def find(self, principal: str, role: str, crn_pattern: str) -> RoleBinding | None:
        """Return the role binding with exactly these attributes, or None."""
        return next(iter(self.on(crn_pattern, principal, role)), None)

    def create(self, principal: str, role: str, crn_pattern: str) -> RoleBinding:
        """Grant the role. It takes effect on all APIs within minutes."""
        body = {"principal": principal, "role_name": role, "crn_pattern": crn_pattern}
        return self.client.send("POST", "/iam/v2/role-bindings", RoleBinding.of, body=body)

    def delete(self, binding: RoleBinding) -> None:
        """Revoke the role."""
        self.client.delete(
            f"/iam/v2/role-bindings/{binding.id}",
            may_exist=lambda: binding in self.on(binding.crn_pattern, binding.principal, binding.role),
        )
