"""A report on the permissions of service accounts that the deployment did not give. They are left alone."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from lakehouse.deploy.confluent.access.service_accounts import Role, RoleScopes, ServiceAccountResource, acl_of
from lakehouse.deploy.confluent.confluent_resource import ConfluentResource
from lakehouse.deploy.resource import Outputs, Resource, Undeletable, undeclared_permissions
from resources.confluent.api_client import Key
from resources.confluent.clusters import Cluster


@dataclass(frozen=True, kw_only=True, repr=False)
class PermissionsReport(ConfluentResource[tuple[()]], Undeletable[tuple[()]]):
    """All roles and ACLs of all accounts. It changes none: `RoleBindingsResource` and `AclsResource` see their own."""

    address = "confluent/permissions"
    label = "permissions of Confluent's service accounts"
    retained_because = "go with the accounts"
    roles: Mapping[str, tuple[Role, ...]]
    """By purpose of the account."""
    allowed: Mapping[str, tuple[tuple[str, str, str], ...]]
    """By purpose of the account, as in `AclsResource`."""
    scopes: RoleScopes
    cluster: Resource[Cluster]
    accounts: tuple[ServiceAccountResource, ...]
    manager_key: Resource[Key]

    def read(self, outputs: Outputs) -> tuple[()]:
        """Return nothing, and never None: there is nothing to create. Rotating keys requires no permissions."""
        return ()

    def create(self, outputs: Outputs) -> tuple[()]:
        """Do nothing: the resources of roles and ACLs give permissions."""
        return ()

    def warning(self, outputs: Outputs, current: tuple[()]) -> str:
        """List the undeclared permissions, and the page on which they can be removed."""
        undeclared = [phrase for account in self.accounts for phrase in self._undeclared(outputs, account)]
        where = "(remove them in Confluent Cloud under Accounts & access)"
        return f"{undeclared_permissions(undeclared)} {where}" if undeclared else ""

    def _undeclared(self, outputs: Outputs, resource: ServiceAccountResource) -> Iterator[str]:
        purpose, account = resource.purpose, outputs[resource]
        crns = self.scopes.crns(outputs, resource, self.accounts)
        roles = {(role.role, role.pattern.format_map(crns)) for role in self.roles.get(purpose, ())}
        allowed = [acl_of(account.principal, *acl) for acl in self.allowed.get(purpose, ())]
        organization = outputs[self.scopes.environment].organization_crn
        for binding in self.cloud.role_bindings().below(organization, account.principal):
            if (binding.role, binding.crn_pattern) not in roles:
                yield f"'{purpose}': role {binding.role} on {binding.crn_pattern} ({binding.id})"
        for acl in self.cloud.acls(outputs[self.cluster], outputs[self.manager_key]).list(account.principal):
            if acl not in allowed:
                yield (
                    f"'{purpose}': ACL {acl.permission} {acl.operation} on {acl.resource_type} "
                    f"'{acl.resource_name}' ({acl.pattern_type}, host {acl.host})"
                )
