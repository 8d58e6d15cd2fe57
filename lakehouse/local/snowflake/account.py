"""The objects of a Snowflake account, with their owners, roles and privileges.

The rules are Snowflake's (Overview of Access Control): the role that creates an object owns it; ownership implies all
privileges; a role has the privileges of the roles granted to it.
"""

import threading
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from lakehouse.local.snowflake import ADMIN_USER, snowflake_errors
from lakehouse.local.snowflake.iceberg import Copied
from lakehouse.local.snowflake.tokens import Name

_SYSTEM_ROLES = {
    "ACCOUNTADMIN": ("CREATE INTEGRATION", "CREATE EXTERNAL VOLUME"),
    "SYSADMIN": ("CREATE DATABASE", "CREATE WAREHOUSE"),
    "SECURITYADMIN": ("MANAGE GRANTS",),
    "USERADMIN": ("CREATE USER", "CREATE ROLE"),
    "PUBLIC": (),
}
_SYSTEM_HIERARCHY = {"ACCOUNTADMIN": ("SYSADMIN", "SECURITYADMIN"), "SECURITYADMIN": ("USERADMIN",)}


@dataclass
class Entity:
    """An object of the account. `options` are those of its CREATE and ALTER statements."""

    kind: str
    name: Name
    owner: str
    options: dict[str, Any] = field(default_factory=dict)
    created: datetime = field(default_factory=lambda: datetime.now(UTC))

    @property
    def label(self) -> str:
        """Full name for messages."""
        return ".".join(self.name)


@dataclass
class IcebergTable(Entity):
    """A table over an external catalog, pinned to the snapshot of its last refresh."""

    namespace: str = ""
    """Namespace in the external catalog."""
    metadata_location: str = ""
    checked_at: float = 0.0
    """Time of the last check for a newer snapshot, by time.monotonic."""
    copied: Copied | None = None


class Account:
    """All state except the data, in memory: each process starts with a new account.

    `lock` protects the account; `loading`, which is acquired before `lock`, lets one table at a time be loaded.
    """

    def __init__(self, name: str):
        self.name = name.upper()
        self.lock = threading.RLock()
        self.loading = threading.Lock()
        self._entities: dict[tuple[str, Name], Entity] = {}
        self._privileges: set[tuple[str, str, Name, str]] = set()
        self._granted_roles: dict[tuple[str, str], set[str]] = {}
        self._future: set[tuple[Name, str]] = set()
        for role, privileges in _SYSTEM_ROLES.items():
            self.add(Entity("ROLE", (role,), owner="ACCOUNTADMIN"))
            for privilege in privileges:
                self.grant(privilege, "ACCOUNT", (), role)
        for role, members in _SYSTEM_HIERARCHY.items():
            for member in members:
                self.grant_role(member, "ROLE", role)
        self.add(Entity("USER", (ADMIN_USER,), owner="ACCOUNTADMIN", options={"DEFAULT_ROLE": "ACCOUNTADMIN"}))
        self.grant_role("ACCOUNTADMIN", "USER", ADMIN_USER)

    def find(self, kind: str, name: Name) -> Entity | None:
        """Return the object if it exists, regardless of privileges."""
        return self._entities.get((kind, name))

    def get(self, kind: str, name: Name, role: str) -> Entity:
        """Return an object that the role may see.

        Raises:
            ProgrammingError: It does not exist or the role may not see it (2003).
        """
        entity = self._entities.get((kind, name))
        if entity is None or not self.visible(entity, role):
            raise snowflake_errors.missing(kind, ".".join(name))
        return entity

    def all(self, kind: str) -> list[Entity]:
        """Return the objects of a kind in the order of their names, regardless of privileges."""
        return [self._entities[key] for key in sorted(self._entities) if key[0] == kind]

    def all_visible(self, kind: str, role: str) -> list[Entity]:
        """Return the objects of a kind that the role may see, in the order of their names."""
        return [entity for entity in self.all(kind) if self.visible(entity, role)]

    def add(self, entity: Entity) -> None:
        """Add an object, which replaces one of the same name. An Iceberg table gets the schema's future grants."""
        self._entities[entity.kind, entity.name] = entity
        if entity.kind == "ICEBERG TABLE":
            for schema, role in self._future:
                if schema == entity.name[:2]:
                    self.grant("SELECT", entity.kind, entity.name, role)

    def remove(self, entity: Entity) -> None:
        """Remove an object, the objects in it, and the privileges on all of them."""
        removed = [
            (other.kind, other.name)
            for other in self._entities.values()
            if other is entity
            or (entity.kind in ("DATABASE", "SCHEMA") and other.name[: len(entity.name)] == entity.name != other.name)
        ]
        for key in removed:
            del self._entities[key]
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

    def has_role(self, user: str, role: str) -> bool:
        """Return whether the user may use the role: it is granted directly, inherited, or PUBLIC."""
        granted = self._granted_roles.get(("USER", user), set()) | {"PUBLIC"}
        return any(role in self.roles_of(grantee) for grantee in granted)

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

    def allowed(self, privilege: str, kind: str, name: Name, role: str) -> bool:
        """Return whether the role has the privilege, by a grant or by ownership."""
        entity = self._entities.get((_entity_kind(kind), name))
        grants = {(privilege, _grant_kind(kind), name, member) for member in self.roles_of(role)}
        return (entity is not None and self.owns(entity, role)) or bool(grants & self._privileges)

    def visible(self, entity: Entity, role: str) -> bool:
        """Return whether the role has any privilege on the object, and may use its database and schema."""
        if entity.kind in ("USER", "ROLE"):
            return True
        roles, kind = self.roles_of(role), _grant_kind(entity.kind)
        granted = any(grant[1:3] == (kind, entity.name) and grant[3] in roles for grant in self._privileges)
        keys = ("DATABASE", entity.name[:1]), ("SCHEMA", entity.name[:2])
        containers = [self._entities.get(key) for key in keys]
        inside = entity.kind in ("SCHEMA", "ICEBERG TABLE")
        reachable = not inside or all(
            self.allowed("USAGE", container.kind, container.name, role)
            for container in containers
            if container and container is not entity
        )
        return reachable and (granted or self.owns(entity, role))

    def require(self, privilege: str, kind: str, name: Name, role: str) -> None:
        """Check that the role has a privilege.

        Raises:
            ProgrammingError: The role lacks the privilege (3001), or may not even see the object (2003).
        """
        if self.allowed(privilege, kind, name, role):
            return
        if kind != "ACCOUNT":
            self.get(_entity_kind(kind), name, role)
        raise snowflake_errors.forbidden(kind, ".".join(name) or self.name, privilege)

    def require_ownership(self, entity: Entity, role: str) -> None:
        """Check that the role owns an object that it may see.

        Raises:
            ProgrammingError: The role does not own the object (3001).
        """
        if not self.owns(entity, role):
            raise snowflake_errors.forbidden(entity.kind, entity.label, "OWNERSHIP")


def _grant_kind(kind: str) -> str:
    """Return the kind's name in GRANT, which is INTEGRATION for a CATALOG INTEGRATION."""
    return "INTEGRATION" if kind == "CATALOG INTEGRATION" else kind


def _entity_kind(kind: str) -> str:
    return "CATALOG INTEGRATION" if kind == "INTEGRATION" else kind
