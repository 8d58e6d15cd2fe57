"""What the service accounts may do beyond what the deployment gave them: told, and left alone."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from lakehouse.cloud.confluent.access import MANAGER_KEY, Role
from lakehouse.cloud.step import Found, Step, beyond
from resources.confluent.kafka import Acl
from resources.confluent.organization import RoleBinding
from resources.confluent_cloud import ConfluentCloud


@dataclass(frozen=True)
class PermissionsStep(Step):
    """Looks at all roles and ACLs of all accounts, and changes none: the steps of roles and ACLs see only their own."""

    cloud: ConfluentCloud
    purposes: tuple[str, ...]
    roles: Mapping[str, tuple[Role, ...]]
    """By purpose of the account."""
    allowed: Mapping[str, tuple[tuple[str, str, str], ...]]
    """By purpose of the account: operation, kind and name, as in `AclsStep`."""
    on: tuple[str, ...]
    """The steps of what the roles are on, besides the environment."""
    name = "confluent/permissions"
    what = "permissions of Confluent's service accounts"

    @property
    def needs(self) -> tuple[str, ...]:
        accounts = (f"confluent/account/{purpose}" for purpose in self.purposes)
        return ("confluent/environment", *self.on, *accounts, MANAGER_KEY)

    def find(self, found: Found) -> list[str]:
        """Phrases for those that nobody declared. Never None: there is nothing to make."""
        organization = found["confluent/environment"].organization_crn
        bindings, acls = self.cloud.role_bindings(), self.cloud.acls(found["confluent/cluster"], found[MANAGER_KEY])
        extra: list[str] = []
        for purpose in self.purposes:
            account = found[f"confluent/account/{purpose}"]
            roles = {(each.role, each.crn(found, account)) for each in self.roles.get(purpose, ())}
            allowed = [Acl(account.principal, *each) for each in self.allowed.get(purpose, ())]
            extra += [
                f"'{purpose}': {_role(binding)}"
                for binding in bindings.below(organization, account.principal)
                if (binding.role, binding.crn_pattern) not in roles
            ]
            extra += [f"'{purpose}': {_acl(acl)}" for acl in acls.list(account.principal) if acl not in allowed]
        return extra

    def create(self, found: Found) -> list[str]:
        """Nothing: the steps of roles and ACLs give permissions."""
        return self.find(found)

    def remark(self, found: Found, it: list[str]) -> str:
        """Name them, and where they are removed."""
        return f"{beyond(it)} (remove them in Confluent Cloud under Accounts & access)" if it else ""

    def delete(self, found: Found, it: list[str]) -> None:
        """Nothing: `kept` says why."""

    def kept(self, found: Found, it: list[str]) -> str:
        """Always."""
        return "go with the accounts"


def _role(binding: RoleBinding) -> str:
    return f"role {binding.role} on {binding.crn_pattern} ({binding.id})"


def _acl(acl: Acl) -> str:
    return (
        f"ACL {acl.permission} {acl.operation} on {acl.resource_type} '{acl.resource_name}' ({acl.pattern_type}, "
        f"host {acl.host})"
    )
