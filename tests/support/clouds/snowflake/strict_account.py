"""Snowflake's access control for the local server: owners, roles, privileges, and the statements that change them.

The rules are Snowflake's (Overview of Access Control): the role that creates an object owns it; ownership implies all
privileges; a role has the privileges of the roles granted to it.
"""

from __future__ import annotations

from lakehouse.local.snowflake import ADMIN_USER, snowflake_errors
from lakehouse.local.snowflake.account import (
    PARTS,
    Account,
    ClientSession,
    Entity,
    StatementResult,
    entity_kind,
    status,
)
from lakehouse.local.snowflake.statements import GrantStatement, Name
from tests.support.clouds.snowflake.strict_statements import (
    GrantOnTables,
    GrantOwnership,
    GrantPrivileges,
    GrantRole,
    ShowGrants,
)

_SYSTEM_PRIVILEGES = {
    "ACCOUNTADMIN": ("CREATE INTEGRATION", "CREATE EXTERNAL VOLUME"),
    "SYSADMIN": ("CREATE DATABASE", "CREATE WAREHOUSE"),
    "SECURITYADMIN": ("MANAGE GRANTS",),
    "USERADMIN": ("CREATE USER", "CREATE ROLE"),
    "PUBLIC": (),
}
_SYSTEM_HIERARCHY = {"ACCOUNTADMIN": ("SYSADMIN", "SECURITYADMIN"), "SECURITYADMIN": ("USERADMIN",)}


class StrictAccount(Account):
    """An account whose roles have only the privileges that they were granted, and those of ownership."""

    def __init__(self, name: str):
        self._privileges: set[tuple[str, str, Name, str]] = set()
        self._granted_roles: dict[tuple[str, str], set[str]] = {}
        self._future: set[tuple[Name, str]] = set()
        super().__init__(name)
        for role, privileges in _SYSTEM_PRIVILEGES.items():
            for privilege in privileges:
                self.grant(privilege, "ACCOUNT", (), role)
        for role, members in _SYSTEM_HIERARCHY.items():
            for member in members:
                self.grant_role(member, "ROLE", role)
        self.grant_role("ACCOUNTADMIN", "USER", ADMIN_USER)

    def add(self, entity: Entity) -> None:
        super().add(entity)
        if entity.kind == "ICEBERG TABLE":
            for schema, role in self._future:
                if schema == entity.name[:2]:
                    self.grant("SELECT", entity.kind, entity.name, role)

    def remove(self, entity: Entity) -> list[tuple[str, Name]]:
        removed = super().remove(entity)
        kinds = {(_grant_kind(kind), name) for kind, name in removed}
        self._privileges = {grant for grant in self._privileges if (grant[1], grant[2]) not in kinds}
        self._future = {grant for grant in self._future if ("SCHEMA", grant[0]) not in removed}
        if entity.kind in ("USER", "ROLE"):
            self._granted_roles.pop((entity.kind, entity.name[0]), None)
        if entity.kind == "ROLE":
            for roles in self._granted_roles.values():
                roles.discard(entity.name[0])
            self._privileges = {grant for grant in self._privileges if grant[3] != entity.name[0]}
            self._future = {grant for grant in self._future if grant[1] != entity.name[0]}
        return removed

    def has_role(self, user: str, role: str) -> bool:
        granted = self._granted_roles.get(("USER", user), set()) | {"PUBLIC"}
        return any(role in self.roles_of(grantee) for grantee in granted)

    def allowed(self, privilege: str, kind: str, name: Name, role: str) -> bool:
        entity = self.find(entity_kind(kind), name)
        grants = {(privilege, _grant_kind(kind), name, member) for member in self.roles_of(role)}
        return (entity is not None and self.owns(entity, role)) or bool(grants & self._privileges)

    def visible(self, entity: Entity, role: str) -> bool:
        if entity.kind in ("USER", "ROLE"):
            return True
        roles, kind = self.roles_of(role), _grant_kind(entity.kind)
        granted = any(grant[1:3] == (kind, entity.name) and grant[3] in roles for grant in self._privileges)
        keys = ("DATABASE", entity.name[:1]), ("SCHEMA", entity.name[:2])
        containers = [self.find(*key) for key in keys]
        inside = entity.kind in ("SCHEMA", "ICEBERG TABLE")
        reachable = not inside or all(
            self.allowed("USAGE", container.kind, container.name, role)
            for container in containers
            if container and container is not entity
        )
        return reachable and (granted or self.owns(entity, role))

    def require_ownership(self, entity: Entity, role: str) -> None:
        if not self.owns(entity, role):
            raise snowflake_errors.forbidden(entity.kind, entity.label, "OWNERSHIP")

    def run_grant(self, session: ClientSession, statement: GrantStatement) -> StatementResult:
        match statement:
            case GrantPrivileges():
                return _grant(self, session, statement)
            case GrantRole():
                return _grant_role(self, session, statement)
            case GrantOnTables():
                return _grant_on_tables(self, session, statement)
            case GrantOwnership():
                return _grant_ownership(self, session, statement)
            case ShowGrants():
                return _show(self, session, statement)
        raise AssertionError(statement)

    def grant(self, privilege: str, kind: str, name: Name, role: str, *, revoke: bool = False) -> None:
        """Grant a privilege to a role, or revoke it."""
        change = self._privileges.discard if revoke else self._privileges.add
        change((privilege, kind, name, role))

    def grant_future(self, schema: Name, role: str) -> None:
        """Grant a role SELECT on each future Iceberg table of the schema."""
        self._future.add((schema, role))

    def granted_to(self, role: str) -> list[tuple[str, str, Name]]:
        """Return privilege, kind and name of the grants to the role itself, and of the objects that it owns."""
        owned = {("OWNERSHIP", entity.kind, entity.name) for entity in self._entities.values() if entity.owner == role}
        return sorted(owned | {grant[:3] for grant in self._privileges if grant[3] == role})

    def future_of(self, role: str) -> list[Name]:
        """Return the schemas whose future tables the role may read."""
        return sorted(schema for schema, grantee in self._future if grantee == role)

    def grantees_of(self, role: str) -> list[tuple[str, str]]:
        """Return kind (ROLE or USER) and name of the direct grantees of a role."""
        return sorted(grantee for grantee, roles in self._granted_roles.items() if role in roles)

    def grant_role(self, role: str, grantee_kind: str, grantee: str, *, revoke: bool = False) -> None:
        """Grant a role to a user or to another role, or revoke it."""
        roles = self._granted_roles.setdefault((grantee_kind, grantee), set())
        change = roles.discard if revoke else roles.add
        change(role)

    def roles_of(self, role: str) -> set[str]:
        """Return the role, PUBLIC, and all roles granted to them, directly or not."""
        roles: set[str] = set()
        pending = {role, "PUBLIC"}
        while pending:
            roles |= pending
            pending = {r for parent in pending for r in self._granted_roles.get(("ROLE", parent), ())} - roles
        return roles

    def owns(self, entity: Entity, role: str) -> bool:
        """Return whether the role, or one granted to it, owns the object."""
        return entity.owner in self.roles_of(role)


def _grant_kind(kind: str) -> str:
    """Return the kind's name in GRANT, which is INTEGRATION for a CATALOG INTEGRATION."""
    return "INTEGRATION" if kind == "CATALOG INTEGRATION" else kind


def _grant(account: StrictAccount, session: ClientSession, statement: GrantPrivileges) -> StatementResult:
    name: Name = ()
    account.get("ROLE", (statement.role,), session.role)
    entity = None
    if statement.kind != "ACCOUNT":
        name = session.resolve(statement.name, PARTS.get(statement.kind, 1))
        entity = account.find(entity_kind(statement.kind), name)
        if entity is None:
            raise snowflake_errors.missing(statement.kind, ".".join(name))
    _require_grantor(account, session, entity)
    for privilege in statement.privileges:
        account.grant(privilege, statement.kind, name, statement.role, revoke=statement.revoke)
    return status()


def _grant_role(account: StrictAccount, session: ClientSession, statement: GrantRole) -> StatementResult:
    role = account.get("ROLE", (statement.role,), session.role)
    account.get(statement.grantee_kind, (statement.grantee,), session.role)
    _require_grantor(account, session, role)
    account.grant_role(statement.role, statement.grantee_kind, statement.grantee, revoke=statement.revoke)
    return status()


def _grant_on_tables(account: StrictAccount, session: ClientSession, statement: GrantOnTables) -> StatementResult:
    name = session.resolve(statement.schema, 2)
    account.get("ROLE", (statement.role,), session.role)
    _require_grantor(account, session, account.get("SCHEMA", name, session.role))
    if statement.future:
        account.grant_future(name, statement.role)
    else:
        for table in account.all("ICEBERG TABLE"):
            if table.name[:2] == name:
                account.grant("SELECT", table.kind, table.name, statement.role)
    return status()


def _grant_ownership(account: StrictAccount, session: ClientSession, statement: GrantOwnership) -> StatementResult:
    account.get("ROLE", (statement.role,), session.role)
    entity = account.get(statement.kind, session.resolve(statement.name, PARTS.get(statement.kind, 1)), session.role)
    _require_grantor(account, session, entity)
    entity.owner = statement.role
    return status()


def _require_grantor(account: StrictAccount, session: ClientSession, entity: Entity | None) -> None:
    """Check that the session's role may grant privileges on an object, or on the account."""
    if entity is None or not account.owns(entity, session.role):
        account.require("MANAGE GRANTS", "ACCOUNT", (), session.role)


def _show(account: StrictAccount, session: ClientSession, statement: ShowGrants) -> StatementResult:
    role = statement.role
    account.get("ROLE", (role,), session.role)
    match statement.which:
        case "GRANTS OF":
            rows = [(role, kind, name) for kind, name in account.grantees_of(role)]
            return StatementResult(["role", "granted_to", "grantee_name"], rows)
        case "FUTURE GRANTS TO":
            future = [
                ("SELECT", "ICEBERG_TABLE", _dotted((*name, "<ICEBERG TABLE>"))) for name in account.future_of(role)
            ]
            return StatementResult(["privilege", "grant_on", "name"], future)
    granted = [
        (privilege, kind.replace(" ", "_"), _dotted(name) or account.name)
        for privilege, kind, name in account.granted_to(role)
    ]
    return StatementResult(["privilege", "granted_on", "name"], granted)


def _dotted(name: Name) -> str:
    return ".".join(name)
