"""What the service accounts may do beyond what the deployment gave them: reported and left alone."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from lakehouse.deploy.confluent.access import MANAGER_KEY, Role
from lakehouse.deploy.step import Found, Step, beyond
from resources.confluent.kafka import Acl
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

    def find(self, found: Found) -> tuple[()]:
        """Nothing, and never None: there is nothing to make. Rotation of keys thus asks for no permissions."""
        return ()

    def create(self, found: Found) -> tuple[()]:
        """Nothing: the steps of roles and ACLs give permissions."""
        return ()

    def remark(self, found: Found, it: tuple[()]) -> str:
        """Name the permissions that nobody declared, and where they are removed."""
        extra = [phrase for purpose in self.purposes for phrase in self._undeclared(found, purpose)]
        return f"{beyond(extra)} (remove them in Confluent Cloud under Accounts & access)" if extra else ""

    def _undeclared(self, found: Found, purpose: str) -> Iterator[str]:
        account = found[f"confluent/account/{purpose}"]
        roles = {(each.role, each.crn(found, account)) for each in self.roles.get(purpose, ())}
        allowed = [Acl(account.principal, *each) for each in self.allowed.get(purpose, ())]
        organization = found["confluent/environment"].organization_crn
        for binding in self.cloud.role_bindings().below(organization, account.principal):
            if (binding.role, binding.crn_pattern) not in roles:
                yield f"'{purpose}': role {binding.role} on {binding.crn_pattern} ({binding.id})"
        for acl in self.cloud.acls(found["confluent/cluster"], found[MANAGER_KEY]).list(account.principal):
            if acl not in allowed:
                yield (
                    f"'{purpose}': ACL {acl.permission} {acl.operation} on {acl.resource_type} "
                    f"'{acl.resource_name}' ({acl.pattern_type}, host {acl.host})"
                )

    def delete(self, found: Found, it: tuple[()]) -> None:
        """Nothing: `kept` says why."""

    def kept(self, found: Found, it: tuple[()]) -> str:
        """Always."""
        return "go with the accounts"
