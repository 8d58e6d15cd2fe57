"""A Snowflake account in memory: roles, users with two key slots, and logins, by the connector's interface.

Sources: Snowflake, Key-pair authentication; ALTER USER; DESC USER.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

from cryptography.hazmat.primitives.asymmetric.rsa import RSAPrivateKey
from snowflake.connector.errors import DatabaseError, OperationalError, ProgrammingError

from tests.simulation.deployment.key_pairs import fingerprint_of_private, fingerprint_of_public
from tests.simulation.world import World

Row = tuple[Any, ...]
SLOTS = ("RSA_PUBLIC_KEY", "RSA_PUBLIC_KEY_2")


@dataclass
class MemorySnowflake:
    """Comments of roles and users by name, and the fingerprints of the users' keys by slot."""

    roles: dict[str, str] = field(default_factory=dict)
    users: dict[str, str] = field(default_factory=dict)
    slots: dict[str, dict[str, str]] = field(default_factory=dict)

    def execute(self, statement: str) -> tuple[tuple[str, ...], list[Row]]:
        """Return the columns and rows of a statement.

        Raises:
            ProgrammingError: The object does not exist.
        """
        for pattern, act in self._statements():
            if match := re.fullmatch(pattern, statement):
                return act(*match.groups())
        raise AssertionError(f"the simulated Snowflake does not know: {statement}")

    def _statements(self) -> list[tuple[str, Callable[..., tuple[tuple[str, ...], list[Row]]]]]:
        return [
            (r'DESC USER "(\w+)"', self._describe),
            (r'ALTER USER "(\w+)" SET (\w+) = \'(.+)\'', self._set),
            (r'ALTER USER "(\w+)" UNSET (\w+)', self._unset),
            (r"SHOW (USER|ROLE)S LIKE '(.+)'", self._show),
            (r'CREATE (USER|ROLE) IF NOT EXISTS "(\w+)".* COMMENT = \'(.+)\'', self._create),
            (r'DROP (USER|ROLE) IF EXISTS "(\w+)"', self._drop),
        ]

    def _describe(self, user: str) -> tuple[tuple[str, ...], list[Row]]:
        slots = self._slots(user)
        rows = [(f"{slot}_FP", slots.get(slot, "null"), "null", "") for slot in SLOTS]
        return ("property", "value", "default", "description"), rows

    def _set(self, user: str, slot: str, public_key: str) -> tuple[tuple[str, ...], list[Row]]:
        self._slots(user)[slot] = fingerprint_of_public(public_key)
        return ("status",), [("Statement executed successfully.",)]

    def _unset(self, user: str, slot: str) -> tuple[tuple[str, ...], list[Row]]:
        self._slots(user).pop(slot, None)
        return ("status",), [("Statement executed successfully.",)]

    def _show(self, kind: str, name: str) -> tuple[tuple[str, ...], list[Row]]:
        shown = self._objects(kind)
        rows = [
            (shown_name, comment)
            for shown_name, comment in shown.items()
            if re.fullmatch(name.replace("_", "."), shown_name)
        ]
        return ("name", "comment"), rows

    def _create(self, kind: str, name: str, comment: str) -> tuple[tuple[str, ...], list[Row]]:
        self._objects(kind).setdefault(name, comment)
        if kind == "USER":
            self.slots.setdefault(name, {})
        return ("status",), [("created, or exists",)]

    def _drop(self, kind: str, name: str) -> tuple[tuple[str, ...], list[Row]]:
        self._objects(kind).pop(name, None)
        if kind == "USER":
            self.slots.pop(name, None)
        return ("status",), [("dropped, or does not exist",)]

    def _objects(self, kind: str) -> dict[str, str]:
        return self.users if kind == "USER" else self.roles

    def _slots(self, user: str) -> dict[str, str]:
        if user not in self.slots:
            raise ProgrammingError(msg=f"User '{user}' does not exist or not authorized.", errno=2003)
        return self.slots[user]


class MemorySession:
    """A session of the administrator, or of a user who logged in."""

    account = "LOCAL"

    def __init__(self, world: World, store: MemorySnowflake):
        self._world, self._store = world, store

    def cursor(self) -> MemoryCursor:
        """Open a cursor."""
        return MemoryCursor(self._world, self._store)

    def close(self) -> None:
        """Close the session."""


class MemoryCursor:
    """A cursor, as PEP 249 has it."""

    def __init__(self, world: World, store: MemorySnowflake):
        self._world, self._store = world, store
        self.description: list[Any] = []
        self._rows: list[Row] = []

    def __enter__(self) -> MemoryCursor:
        return self

    def __exit__(self, *error: object) -> None:
        pass

    def execute(self, statement: str) -> None:
        """Run a statement."""
        operation = "snowflake " + " ".join(re.findall(r"^[A-Z]+ [A-Z]+|UNSET|SET", statement))
        columns, self._rows = self._world.call(operation, lambda: self._store.execute(statement), lost)
        self.description = [SimpleNamespace(name=column) for column in columns]

    def fetchall(self) -> list[Row]:
        """Return the rows."""
        return self._rows


def lost(reason: str) -> Exception:
    """Return the connector's error for a request that got no response."""
    return OperationalError(msg=f"Failed to execute request: {reason}", errno=250003)


def log_in(world: World, store: MemorySnowflake, user: str, private_key: RSAPrivateKey) -> MemorySession:
    """Open a session with a private key.

    Raises:
        DatabaseError: No slot of the user has its public key.
    """

    def effect() -> None:
        if fingerprint_of_private(private_key) not in store.slots.get(user, {}).values():
            raise DatabaseError(msg="JWT token is invalid.", errno=390144)

    world.call("snowflake login", effect, lost)
    return MemorySession(world, store)
