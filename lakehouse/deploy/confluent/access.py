"""Who may do what in Confluent Cloud: service accounts, their roles, and access control lists on topics."""

from __future__ import annotations

from dataclasses import dataclass

from lakehouse.core.errors import OutcomeUnknownError
from lakehouse.core.polling import REAL, Clock
from lakehouse.deploy.confluent.foundation import LISTED_SECONDS
from lakehouse.deploy.names import Names
from lakehouse.deploy.step import Found, Step
from resources.confluent.errors import Conflict
from resources.confluent.kafka import Acl, Acls
from resources.confluent.organization import RoleBinding, ServiceAccount
from resources.confluent.waiting import wait_there, when_allowed
from resources.confluent_cloud import ConfluentCloud
from resources.secrets_manager import Secrets

GRANTED_SECONDS = 180
"""Until a role is known to the plane that asks for it; Confluent's own provider just sleeps for 90 seconds."""
MANAGER_KEY = "confluent/key/app_manager/kafka"


@dataclass(frozen=True)
class AccountStep(Step):
    """A service account. With it go its API keys and roles, and the secrets that its keys were in."""

    cloud: ConfluentCloud
    secrets: Secrets
    names: Names
    purpose: str
    holds: tuple[str, ...] = ()
    """Names of those secrets."""
    clock: Clock = REAL

    @property
    def name(self) -> str:
        return f"confluent/account/{self.purpose}"

    @property
    def what(self) -> str:
        return f"service account '{self.names.service_account(self.purpose)}'"

    def find(self, found: Found) -> ServiceAccount | None:
        return self.cloud.service_accounts().find(self.names.service_account(self.purpose))

    def create(self, found: Found) -> ServiceAccount:
        description = f"{self.purpose} of lakehouse deployment {self.names.deployment}"
        return self.cloud.service_accounts().create(self.names.service_account(self.purpose), description)

    def settle(self, found: Found, it: ServiceAccount) -> ServiceAccount:
        return wait_there(self.what, lambda: self.find(found), deadline_seconds=LISTED_SECONDS, clock=self.clock)

    def delete(self, found: Found, it: ServiceAccount) -> None:
        # A key's own step does not see its secret once the cluster, or the key, was deleted by somebody else.
        for secret in self.holds:
            self.secrets.delete(secret)
        self.cloud.service_accounts().delete(it.id)


@dataclass(frozen=True)
class Role:
    """A role on a CRN pattern with `{environment}`, `{cluster}`, `{kafka}`, … for what is there."""

    role: str
    pattern: str

    def crn(self, found: Found, account: ServiceAccount) -> str:
        """The pattern with the CRNs of what was found, and of the account itself."""
        environment = found["confluent/environment"]
        crns = {
            "environment": environment.crn,
            "account": f"{environment.organization_crn}/service-account={account.id}",
        }
        if cluster := found.get("confluent/cluster"):
            crns |= {"cluster": cluster.crn, "kafka": cluster.kafka_crn}
        if registry := found.get("confluent/schema_registry"):
            crns["registry"] = registry.crn
        if integration := found.get("confluent/provider_integration"):
            crns["integration"] = f"{environment.crn}/provider-integration={integration.id}"
        return self.pattern.format_map(crns)


@dataclass(frozen=True)
class RolesStep(Step):
    """Roles of one account. Others that somebody gave it by hand are left alone."""

    cloud: ConfluentCloud
    purpose: str
    roles: tuple[Role, ...]
    on: tuple[str, ...] = ("confluent/cluster", "confluent/schema_registry")
    """The steps of what they are on, besides the environment."""
    part: str = ""
    """Tells one account's steps apart."""
    clock: Clock = REAL

    @property
    def name(self) -> str:
        return "/".join(part for part in ("confluent/roles", self.purpose, self.part) if part)

    @property
    def what(self) -> str:
        return f"roles of '{self.purpose}': {', '.join(dict.fromkeys(each.role for each in self.roles))}"

    @property
    def needs(self) -> tuple[str, ...]:
        return (f"confluent/account/{self.purpose}", "confluent/environment", *self.on)

    def find(self, found: Found) -> list[RoleBinding] | None:
        account, wanted = self._wanted(found)
        organization = found["confluent/environment"].organization_crn
        bindings = self.cloud.role_bindings().below(organization, account.principal)
        return [each for each in bindings if (each.role, each.crn_pattern) in wanted] or None

    def create(self, found: Found) -> list[RoleBinding]:
        return self.change(found, [])

    def settle(self, found: Found, it: list[RoleBinding]) -> list[RoleBinding]:
        def all_listed() -> list[RoleBinding] | None:
            listed = self.find(found) or []
            return None if self._missing(found, listed) else listed

        return wait_there(self.what, all_listed, deadline_seconds=LISTED_SECONDS, clock=self.clock)

    def differences(self, found: Found, it: list[RoleBinding]) -> list[str]:
        return [f"{role} on {crn.rpartition('/')[2]} is missing" for role, crn in self._missing(found, it)]

    def change(self, found: Found, it: list[RoleBinding]) -> list[RoleBinding]:
        account, _ = self._wanted(found)
        bindings = self.cloud.role_bindings()
        for role, crn in self._missing(found, it):
            try:
                bindings.create(account.principal, role, crn)
            except (Conflict, OutcomeUnknownError):
                # It is there, or may be: `settle` looks. The others are to be made all the same.
                continue
        return it

    def delete(self, found: Found, it: list[RoleBinding]) -> None:
        for binding in it:
            self.cloud.role_bindings().delete(binding.id)

    def _wanted(self, found: Found) -> tuple[ServiceAccount, list[tuple[str, str]]]:
        account = found[f"confluent/account/{self.purpose}"]
        return account, [(each.role, each.crn(found, account)) for each in self.roles]

    def _missing(self, found: Found, it: list[RoleBinding]) -> list[tuple[str, str]]:
        there = {(each.role, each.crn_pattern) for each in it}
        return [each for each in self._wanted(found)[1] if each not in there]


@dataclass(frozen=True)
class AclsStep(Step):
    """Access control lists of one account. Others that somebody gave it by hand are left alone."""

    cloud: ConfluentCloud
    purpose: str
    allowed: tuple[tuple[str, str, str], ...]
    """Operation, kind and name of what it may be done with: `("WRITE", "TOPIC", "stock_trades")`."""
    clock: Clock = REAL

    @property
    def name(self) -> str:
        return f"confluent/acls/{self.purpose}"

    @property
    def what(self) -> str:
        return f"ACLs of '{self.purpose}'"

    @property
    def needs(self) -> tuple[str, ...]:
        return (f"confluent/account/{self.purpose}", "confluent/cluster", MANAGER_KEY)

    def find(self, found: Found) -> list[Acl] | None:
        wanted = self._wanted(found)
        principal = found[f"confluent/account/{self.purpose}"].principal
        return [each for each in self._acls(found).list(principal) if each in wanted] or None

    def create(self, found: Found) -> list[Acl]:
        return self.change(found, [])

    def settle(self, found: Found, it: list[Acl]) -> list[Acl]:
        def all_listed() -> list[Acl] | None:
            listed = self.find(found) or []
            return None if self.differences(found, listed) else listed

        return wait_there(self.what, all_listed, deadline_seconds=LISTED_SECONDS, clock=self.clock)

    def differences(self, found: Found, it: list[Acl]) -> list[str]:
        missing = [each for each in self._wanted(found) if each not in it]
        return [f"{each.operation} on {each.resource_type} '{each.resource_name}' is missing" for each in missing]

    def change(self, found: Found, it: list[Acl]) -> list[Acl]:
        acls, wanted = self._acls(found), self._wanted(found)
        for acl in wanted:
            if acl not in it:
                self._create(acls, acl)
        return wanted

    def delete(self, found: Found, it: list[Acl]) -> None:
        for acl in it:
            self._acls(found).delete(acl)

    def _create(self, acls: Acls, acl: Acl) -> None:
        try:
            when_allowed(self.what, lambda: acls.create(acl), deadline_seconds=GRANTED_SECONDS, clock=self.clock)
        except OutcomeUnknownError:
            # It may be there: `settle` looks. The others are to be made all the same.
            return

    def _acls(self, found: Found) -> Acls:
        return self.cloud.acls(found["confluent/cluster"], found[MANAGER_KEY])

    def _wanted(self, found: Found) -> list[Acl]:
        principal = found[f"confluent/account/{self.purpose}"].principal
        return [Acl(principal, operation, kind, name) for operation, kind, name in self.allowed]
