"""What belongs to the organization: environments, service accounts and what they may do."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

from resources.confluent.plane import Plane, the_one


@dataclass(frozen=True)
class Environment:
    """A place for clusters. `crn` is its Confluent Resource Name, in which roles are given."""

    id: str
    name: str
    crn: str

    @property
    def organization_id(self) -> str:
        """The UUID of the organization it is in."""
        organization = re.search(r"organization=([^/]+)", self.crn)
        assert organization is not None, f"an environment is in an organization: {self.crn}"
        return organization[1]

    @property
    def organization_crn(self) -> str:
        """The Confluent Resource Name of the organization."""
        return self.crn.rpartition("/environment=")[0]

    @staticmethod
    def of(answer: dict[str, Any]) -> Environment:
        """Read an answer."""
        return Environment(answer["id"], answer["display_name"], answer["metadata"]["resource_name"])


@dataclass(frozen=True)
class Environments:
    """The environments of an organization."""

    plane: Plane

    def list(self) -> list[Environment]:
        """All that the key may see."""
        return [Environment.of(answer) for answer in self.plane.items("/org/v2/environments")]

    def find(self, name: str) -> Environment | None:
        """By display name.

        Raises: UnclearState when several have it.
        """
        return the_one(f"environment '{name}'", [each for each in self.list() if each.name == name])

    def create(self, name: str) -> Environment:
        """Make one, with a Schema Registry that comes with its first cluster."""
        body = {"display_name": name, "stream_governance_config": {"package": "ESSENTIALS"}}
        return Environment.of(self.plane.call("POST", "/org/v2/environments", body=body))

    def delete(self, environment_id: str) -> None:
        """Delete it **and every cluster, connector and topic in it**."""
        self.plane.delete(f"/org/v2/environments/{environment_id}")


@dataclass(frozen=True)
class ServiceAccount:
    """An account for a program. Its name is unique in the organization."""

    id: str
    name: str

    @property
    def principal(self) -> str:
        """As role bindings and ACLs name it."""
        return f"User:{self.id}"

    @staticmethod
    def of(answer: dict[str, Any]) -> ServiceAccount:
        """Read an answer."""
        return ServiceAccount(answer["id"], answer["display_name"])


@dataclass(frozen=True)
class ServiceAccounts:
    """The service accounts of an organization."""

    plane: Plane

    def find(self, name: str) -> ServiceAccount | None:
        """By display name."""
        answers = self.plane.items("/iam/v2/service-accounts", {"display_name": name})
        accounts = [ServiceAccount.of(answer) for answer in answers]
        return the_one(f"service account '{name}'", [each for each in accounts if each.name == name])

    def create(self, name: str, description: str) -> ServiceAccount:
        """Make one.

        Raises: Conflict when there is one of that name.
        """
        body = {"display_name": name, "description": description}
        return ServiceAccount.of(self.plane.call("POST", "/iam/v2/service-accounts", body=body))

    def delete(self, account_id: str) -> None:
        """Delete it, with its API keys and role bindings."""
        self.plane.delete(f"/iam/v2/service-accounts/{account_id}")


@dataclass(frozen=True)
class RoleBinding:
    """That `principal` (`User:sa-…`) has a role on whatever matches a CRN pattern."""

    id: str
    principal: str
    role: str
    crn_pattern: str

    @staticmethod
    def of(answer: dict[str, Any]) -> RoleBinding:
        """Read an answer."""
        return RoleBinding(answer["id"], answer["principal"], answer["role_name"], answer["crn_pattern"])


@dataclass(frozen=True)
class RoleBindings:
    """The role bindings of an organization."""

    plane: Plane

    def on(self, crn_pattern: str, principal: str | None = None, role: str | None = None) -> list[RoleBinding]:
        """Those on exactly this pattern: the plane itself also gives those on parts of it."""
        query = {"crn_pattern": crn_pattern, "principal": principal, "role_name": role}
        bindings = [RoleBinding.of(answer) for answer in self.plane.items("/iam/v2/role-bindings", query)]
        return [each for each in bindings if each.crn_pattern == crn_pattern]

    def below(self, crn: str, principal: str) -> list[RoleBinding]:
        """A principal's on a thing and on all parts of it."""
        query = {"crn_pattern": crn, "principal": principal}
        return [RoleBinding.of(answer) for answer in self.plane.items("/iam/v2/role-bindings", query)]

    def find(self, principal: str, role: str, crn_pattern: str) -> RoleBinding | None:
        """By all that it says."""
        return next(iter(self.on(crn_pattern, principal, role)), None)

    def create(self, principal: str, role: str, crn_pattern: str) -> RoleBinding:
        """Give the role. It takes up to minutes until every plane knows of it."""
        body = {"principal": principal, "role_name": role, "crn_pattern": crn_pattern}
        return RoleBinding.of(self.plane.call("POST", "/iam/v2/role-bindings", body=body))

    def delete(self, binding_id: str) -> None:
        """Take the role away."""
        self.plane.delete(f"/iam/v2/role-bindings/{binding_id}")
