"""Permissions in Confluent Cloud: service accounts, their roles, and access control lists.

A report names permissions that the deployment did not give, which are left alone.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple, TypeVar

from lakehouse.core.errors import OutcomeUnknownError, UnclearState
from lakehouse.deploy.confluent.confluent_resource import LISTED_SECONDS, ConfluentResource
from lakehouse.deploy.resource import Outputs, Resource, Undeletable, Updatable, undeclared_permissions
from lakehouse.deploy.waiting import wait_until_visible
from resources.aws.secrets_manager import Secrets
from resources.confluent.api_client import Conflict, Key
from resources.confluent.clusters import Acl, Acls, Cluster, SchemaRegistryCluster
from resources.confluent.organization import Environment, RoleBinding, RoleBindings, ServiceAccount, ServiceAccounts
from resources.confluent.tableflow import ProviderIntegration

Permission = TypeVar("Permission")


@dataclass(frozen=True, kw_only=True, repr=False)
class ServiceAccountResource(ConfluentResource[ServiceAccount]):
    """A service account. Its API keys and roles, and the secrets that hold the keys, are deleted with it."""

    secrets: Secrets
    purpose: str
    secret_names: tuple[str, ...] = ()
    """The secrets that hold its keys."""

    @property
    def address(self) -> str:
        return f"confluent/account/{self.purpose}"

    @property
    def label(self) -> str:
        return f"service account '{self.names.service_account(self.purpose)}'"

    def read(self, outputs: Outputs) -> ServiceAccount | None:
        account = ServiceAccounts(self.cloud.client()).find(self.names.service_account(self.purpose))
        if account and account.description != self._description:
            raise UnclearState(
                f"Confluent Cloud has a {self.label} ({account.id}) of another deployment: its description is "
                f"'{account.description}', not '{self._description}'. It was left unchanged. Choose another name of "
                f"the deployment in lakehouse.yaml; only if the account is this deployment's, correct its description"
            )
        return account

    def create(self, outputs: Outputs) -> ServiceAccount:
        return ServiceAccounts(self.cloud.client()).create(self.names.service_account(self.purpose), self._description)

    def wait_until_ready(self, outputs: Outputs, current: ServiceAccount) -> ServiceAccount:
        return self.wait_until_listed(outputs)

    def delete(self, outputs: Outputs, current: ServiceAccount) -> None:
        # The resource of a key does not find the secret after an external deletion of the key or the cluster.
        for secret in self.secret_names:
            self.secrets.delete(secret)
        ServiceAccounts(self.cloud.client()).delete(current.id)

    @property
    def _description(self) -> str:
        return f"{self.purpose} of lakehouse deployment {self.names.owner}"


@dataclass(frozen=True)
class Role:
    """A role on a CRN pattern. `{environment}`, `{cluster}`, `{kafka}`, … are the CRNs of `crns`."""

    role: str
    pattern: str


class RoleScopes(NamedTuple):
    """References to what roles are granted on."""

    environment: Resource[Environment]
    cluster: Resource[Cluster] | None = None
    registry: Resource[SchemaRegistryCluster] | None = None
    integration: Resource[ProviderIntegration] | None = None

    def crns(
        self, outputs: Outputs, account: ServiceAccountResource, accounts: Sequence[ServiceAccountResource]
    ) -> dict[str, str]:
        """Return the CRNs by their names in the pattern of a `Role`.

        Args:
            outputs: The outputs of the referenced resources.
            account: The account that has the roles, by the name `account`.
            accounts: All accounts on which there may be a role, each by the name `account_<purpose>`.
        """
        environment = outputs[self.environment]
        crn = f"{environment.organization_crn}/service-account="
        crns = {"environment": environment.crn, "account": f"{crn}{outputs[account].id}"}
        crns |= {f"account_{resource.purpose}": f"{crn}{outputs[resource].id}" for resource in accounts}
        if self.cluster:
            cluster = outputs[self.cluster]
            crns |= {"cluster": cluster.crn, "kafka": cluster.kafka_crn}
        if self.registry:
            crns["registry"] = outputs[self.registry].crn
        if self.integration:
            crns["integration"] = f"{environment.crn}/provider-integration={outputs[self.integration].id}"
        return crns


@dataclass(frozen=True, kw_only=True, repr=False)
class PermissionsResource(ConfluentResource[list[Permission]], Updatable[list[Permission]]):
    """The permissions of one account, of one kind. Manually added ones are not changed."""

    account: ServiceAccountResource

    def create(self, outputs: Outputs) -> list[Permission]:
        return self.update(outputs, [])

    def wait_until_ready(self, outputs: Outputs, current: list[Permission]) -> list[Permission]:
        def all_listed() -> list[Permission] | None:
            listed = self.read(outputs) or []
            return None if self.diff(outputs, listed) else listed

        return wait_until_visible(self.label, all_listed, deadline_seconds=LISTED_SECONDS, clock=self.clock)


@dataclass(frozen=True, kw_only=True, repr=False)
class RoleBindingsResource(PermissionsResource[RoleBinding]):
    """The role bindings of one account."""

    roles: tuple[Role, ...]
    scopes: RoleScopes
    owned: tuple[ServiceAccountResource, ...] = ()
    """Accounts on which there are roles."""
    part: str = ""
    """Distinguishes the resources of one account."""

    @property
    def address(self) -> str:
        return "/".join(part for part in ("confluent/roles", self.account.purpose, self.part) if part)

    @property
    def label(self) -> str:
        return f"roles of '{self.account.purpose}': {', '.join(dict.fromkeys(role.role for role in self.roles))}"

    def read(self, outputs: Outputs) -> list[RoleBinding] | None:
        declared = self._declared(outputs)
        organization = outputs[self.scopes.environment].organization_crn
        bindings = RoleBindings(self.cloud.client()).below(organization, outputs[self.account].principal)
        return [binding for binding in bindings if (binding.role, binding.crn_pattern) in declared] or None

    def diff(self, outputs: Outputs, current: list[RoleBinding]) -> list[str]:
        return [f"{role} on {crn.rpartition('/')[2]} is missing" for role, crn in self._missing(outputs, current)]

    def update(self, outputs: Outputs, current: list[RoleBinding]) -> list[RoleBinding]:
        bindings = RoleBindings(self.cloud.client())
        for role, crn in self._missing(outputs, current):
            # It exists, or may exist, which `wait_until_ready` checks. The others are still created.
            with suppress(Conflict, OutcomeUnknownError):
                bindings.create(outputs[self.account].principal, role, crn)
        return current

    def delete(self, outputs: Outputs, current: list[RoleBinding]) -> None:
        for binding in current:
            RoleBindings(self.cloud.client()).delete(binding)

    def _declared(self, outputs: Outputs) -> list[tuple[str, str]]:
        crns = self.scopes.crns(outputs, self.account, self.owned)
        return [(role.role, role.pattern.format_map(crns)) for role in self.roles]

    def _missing(self, outputs: Outputs, current: list[RoleBinding]) -> list[tuple[str, str]]:
        existing = {(binding.role, binding.crn_pattern) for binding in current}
        return [binding for binding in self._declared(outputs) if binding not in existing]


@dataclass(frozen=True, kw_only=True, repr=False)
class AclsResource(PermissionsResource[Acl]):
    """The access control lists of one account."""

    allowed: tuple[tuple[str, str, str], ...]
    """Operation, resource type and name or prefix: `("WRITE", "TOPIC", "stock_trades")`, `("READ", "GROUP", "x*")`."""
    cluster: Resource[Cluster]
    manager_key: Resource[Key]

    @property
    def address(self) -> str:
        return f"confluent/acls/{self.account.purpose}"

    @property
    def label(self) -> str:
        return f"ACLs of '{self.account.purpose}'"

    def read(self, outputs: Outputs) -> list[Acl] | None:
        declared = self._declared(outputs)
        principal = outputs[self.account].principal
        return [acl for acl in self._acls(outputs).list(principal) if acl in declared] or None

    def diff(self, outputs: Outputs, current: list[Acl]) -> list[str]:
        missing = [acl for acl in self._declared(outputs) if acl not in current]
        return [f"{acl.operation} on {acl.resource_type} '{acl.resource_name}' is missing" for acl in missing]

    def update(self, outputs: Outputs, current: list[Acl]) -> list[Acl]:
        acls, declared = self._acls(outputs), self._declared(outputs)
        for acl in declared:
            if acl not in current:
                # It may exist, which `wait_until_ready` checks. The others are still created.
                with suppress(OutcomeUnknownError):
                    self.when_granted(partial(acls.create, acl))
        return declared

    def delete(self, outputs: Outputs, current: list[Acl]) -> None:
        for acl in current:
            self._acls(outputs).delete(acl)

    def _acls(self, outputs: Outputs) -> Acls:
        return self.cloud.acls(outputs[self.cluster], outputs[self.manager_key])

    def _declared(self, outputs: Outputs) -> list[Acl]:
        principal = outputs[self.account].principal
        return [acl_of(principal, *acl) for acl in self.allowed]


def acl_of(principal: str, operation: str, resource_type: str, name: str) -> Acl:
    """Return the access control list of a declared right; a name that ends in `*` is a prefix, `*` alone is all."""
    if name != "*" and name.endswith("*"):
        return Acl(principal, operation, resource_type, name.removesuffix("*"), "PREFIXED")
    return Acl(principal, operation, resource_type, name)


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
        # Never None: there is nothing to create. Rotating keys requires no permissions.
        return ()

    def create(self, outputs: Outputs) -> tuple[()]:
        return ()

    def warning(self, outputs: Outputs, current: tuple[()]) -> str:
        undeclared = [phrase for account in self.accounts for phrase in self._undeclared(outputs, account)]
        where = "(remove them in Confluent Cloud under Accounts & access)"
        return f"{undeclared_permissions(undeclared)} {where}" if undeclared else ""

    def _undeclared(self, outputs: Outputs, resource: ServiceAccountResource) -> Iterator[str]:
        purpose, account = resource.purpose, outputs[resource]
        crns = self.scopes.crns(outputs, resource, self.accounts)
        roles = {(role.role, role.pattern.format_map(crns)) for role in self.roles.get(purpose, ())}
        allowed = [acl_of(account.principal, *acl) for acl in self.allowed.get(purpose, ())]
        organization = outputs[self.scopes.environment].organization_crn
        for binding in RoleBindings(self.cloud.client()).below(organization, account.principal):
            if (binding.role, binding.crn_pattern) not in roles:
                yield f"'{purpose}': role {binding.role} on {binding.crn_pattern} ({binding.id})"
        for acl in self.cloud.acls(outputs[self.cluster], outputs[self.manager_key]).list(account.principal):
            if acl not in allowed:
                yield (
                    f"'{purpose}': ACL {acl.permission} {acl.operation} on {acl.resource_type} "
                    f"'{acl.resource_name}' ({acl.pattern_type}, host {acl.host})"
                )
