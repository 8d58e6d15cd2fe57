"""The objects of a Snowflake account, and the sessions of its users, with the results of their statements."""

from __future__ import annotations

import re
import threading
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, Protocol

from duckdb import DuckDBPyConnection

from lakehouse.local.snowflake import ADMIN_USER, snowflake_errors
from lakehouse.local.snowflake.iceberg import Copied, Lake
from lakehouse.local.snowflake.statements import GrantStatement, Name

SYSTEM_ROLES = ("ACCOUNTADMIN", "SYSADMIN", "SECURITYADMIN", "USERADMIN", "PUBLIC")
PARTS = {"SCHEMA": 2, "ICEBERG TABLE": 3}
"""Number of parts in the full name of an object; one for the other kinds."""


LINK = "LINKED_CATALOG"
"""The option of a database whose schemas and Iceberg tables are those of a REST catalog."""


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

    Every role has every privilege on the objects that exist, and grants change nothing. A subclass may restrict roles:
    tests/support/clouds/snowflake/strict_account.py does it as Snowflake.

    `lock` protects the account; `loading`, which is acquired before `lock`, lets one table at a time be loaded.
    """

    def __init__(self, name: str):
        self.name = name.upper()
        self.lock = threading.RLock()
        self.loading = threading.Lock()
        self._entities: dict[tuple[str, Name], Entity] = {}
        for role in SYSTEM_ROLES:
            self.add(Entity("ROLE", (role,), owner="ACCOUNTADMIN"))
        self.add(Entity("USER", (ADMIN_USER,), owner="ACCOUNTADMIN", options={"DEFAULT_ROLE": "ACCOUNTADMIN"}))

    def find(self, kind: str, name: Name) -> Entity | None:
        """Return the object if it exists, regardless of privileges."""
        return self._entities.get((kind, name))

    def get(self, kind: str, name: Name, role: str) -> Entity:
        """Return an object that the role may see."""
        entity = self.find(kind, name)
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
        """Add an object, which replaces one of the same name."""
        self._entities[entity.kind, entity.name] = entity

    def remove(self, entity: Entity) -> list[tuple[str, Name]]:
        """Remove an object and the objects in it, and return their kinds and names."""
        removed = [
            (other.kind, other.name)
            for other in self._entities.values()
            if other is entity
            or (entity.kind in ("DATABASE", "SCHEMA") and other.name[: len(entity.name)] == entity.name != other.name)
        ]
        for key in removed:
            del self._entities[key]
        return removed

    def has_role(self, user: str, role: str) -> bool:
        """Return whether the user may use a role that exists."""
        return True

    def allowed(self, privilege: str, kind: str, name: Name, role: str) -> bool:
        """Return whether the object exists, or is the account, and the role has the privilege on it."""
        return kind == "ACCOUNT" or self.find(entity_kind(kind), name) is not None

    def visible(self, entity: Entity, role: str) -> bool:
        """Return whether the role may see the object."""
        return True

    def require(self, privilege: str, kind: str, name: Name, role: str) -> None:
        """Check that the role has a privilege."""
        if self.allowed(privilege, kind, name, role):
            return
        if kind != "ACCOUNT":
            self.get(entity_kind(kind), name, role)
        raise snowflake_errors.forbidden(kind, ".".join(name) or self.name, privilege)

    def require_ownership(self, entity: Entity, role: str) -> None:
        """Check that the role owns an object that it may see."""

    def require_unlinked(self, name: Name) -> None:
        """Check that an object is in no linked database. These are read-only here."""
        database = self.find("DATABASE", name[:1])
        if database and LINK in database.options:
            message = f"Database {name[0]} is linked to a catalog with ALLOWED_WRITE_OPERATIONS = NONE"
            raise snowflake_errors.failed(message)

    def run_grant(self, session: ClientSession, statement: GrantStatement) -> StatementResult:
        """Run GRANT, REVOKE or SHOW GRANTS, with the privileges of the session's role."""
        return status()


def entity_kind(kind: str) -> str:
    """Return the kind of an object by its name in GRANT, which is INTEGRATION for a CATALOG INTEGRATION."""
    return "CATALOG INTEGRATION" if kind == "INTEGRATION" else kind


Value = str | int | bool | datetime | None


@dataclass(frozen=True)
class StatementResult:
    """The result rows of a statement."""

    columns: Sequence[str]
    rows: Sequence[tuple[Value, ...]] = ()


def status(message: str = "Statement executed successfully.") -> StatementResult:
    """Return the one-row result of a statement without data."""
    return StatementResult(["status"], [(message,)])


def text(value: object) -> str:
    """Return the value of an option as SHOW and DESC print it."""
    return str(value).lower() if isinstance(value, bool) else str(value)


def like(pattern: str) -> re.Pattern[str]:
    """Compile the pattern of SHOW ... LIKE: `%` is any text, `_` any character; case is ignored."""
    return re.compile(re.escape(pattern).replace("%", ".*").replace("_", "."), re.IGNORECASE | re.DOTALL)


class ClientSession(Protocol):
    """A logged-in client, implemented by `engine.Connection`.

    Role, warehouse, database and schema are the current ones.
    """

    account: Account
    lake: Lake
    user: str
    role: str
    warehouse: str | None
    database: str | None

    @property
    def schema(self) -> str | None:
        """The current schema."""

    @property
    def duckdb(self) -> DuckDBPyConnection:
        """A new cursor of the database with the data, in a separate transaction. The caller closes it."""

    def resolve(self, name: Name, parts: int) -> Name:
        """Return the full name: missing parts are those of the session's database and schema.

        Args:
            name: A name, qualified or not.
            parts: Number of parts of the full name.
        """

    def run(self, sql: str) -> None:
        """Run a statement that fakesnow supports."""
