"""The statements that fakesnow does not know, parsed strictly: account objects, grants, and Iceberg tables."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from sqlglot.errors import TokenError

from lakehouse.local.snowflake.errors import not_emulated
from lakehouse.local.snowflake.options import OPTIONS, read_keys, read_options
from lakehouse.local.snowflake.tokens import Name, TokenReader

KINDS = tuple(OPTIONS)
PLURALS = {kind + "S": kind for kind in KINDS}

PRIVILEGES: dict[str, tuple[str, ...]] = {
    "ACCOUNT": (
        "CREATE DATABASE",
        "CREATE WAREHOUSE",
        "CREATE ROLE",
        "CREATE USER",
        "CREATE INTEGRATION",
        "CREATE EXTERNAL VOLUME",
        "MANAGE GRANTS",
    ),
    "WAREHOUSE": ("USAGE", "OPERATE", "MONITOR", "MODIFY"),
    "DATABASE": ("USAGE", "CREATE SCHEMA"),
    "SCHEMA": ("USAGE", "CREATE ICEBERG TABLE", "CREATE TABLE", "CREATE VIEW"),
    "EXTERNAL VOLUME": ("USAGE",),
    "INTEGRATION": ("USAGE",),
    "ICEBERG TABLE": ("SELECT",),
}
"""What can be granted on which kind of object: the part of Snowflake's Access control privileges that matters here."""


@dataclass(frozen=True)
class Create:
    """CREATE [OR REPLACE] kind [IF NOT EXISTS] name options."""

    kind: str
    name: Name
    options: dict[str, Any] = field(default_factory=dict)
    or_replace: bool = False
    if_not_exists: bool = False


@dataclass(frozen=True)
class Alter:
    """ALTER kind [IF EXISTS] name SET options, or UNSET keys, which become options of value None."""

    kind: str
    name: Name
    options: dict[str, Any]
    if_exists: bool = False


@dataclass(frozen=True)
class Refresh:
    """ALTER ICEBERG TABLE [IF EXISTS] name REFRESH."""

    name: Name
    if_exists: bool = False


@dataclass(frozen=True)
class Drop:
    """DROP kind [IF EXISTS] name."""

    kind: str
    name: Name
    if_exists: bool = False


@dataclass(frozen=True)
class Describe:
    """DESC[RIBE] kind name."""

    kind: str
    name: Name


@dataclass(frozen=True)
class Show:
    """SHOW kinds [LIKE pattern] [IN ACCOUNT | [DATABASE | SCHEMA] name]."""

    kind: str
    like: str = "%"
    within: Name = ()


@dataclass(frozen=True)
class Grant:
    """GRANT privileges ON kind name TO ROLE role, or REVOKE ... FROM ROLE role."""

    privileges: tuple[str, ...]
    kind: str
    name: Name
    role: str
    revoke: bool = False


@dataclass(frozen=True)
class GrantRole:
    """GRANT ROLE role TO USER | ROLE grantee, or REVOKE ROLE role FROM ..."""

    role: str
    grantee_kind: str
    grantee: str
    revoke: bool = False


@dataclass(frozen=True)
class GrantOnTables:
    """GRANT SELECT ON ALL | FUTURE ICEBERG TABLES IN SCHEMA name TO ROLE role."""

    future: bool
    schema: Name
    role: str


@dataclass(frozen=True)
class GrantOwnership:
    """GRANT OWNERSHIP ON kind name TO ROLE role [COPY CURRENT GRANTS]."""

    kind: str
    name: Name
    role: str


@dataclass(frozen=True)
class ShowGrants:
    """SHOW GRANTS TO ROLE | OF ROLE role, or SHOW FUTURE GRANTS TO ROLE role."""

    which: str
    role: str


@dataclass(frozen=True)
class Use:
    """USE ROLE | WAREHOUSE name."""

    kind: str
    name: str


Statement = (
    Create
    | Alter
    | Refresh
    | Drop
    | Describe
    | Show
    | Grant
    | GrantRole
    | GrantOnTables
    | GrantOwnership
    | ShowGrants
    | Use
)


def parse(sql: str) -> Statement | None:
    """The statement, or None when it is fakesnow's to run.

    Raises: snowflake.connector ProgrammingError when it is one of these kinds and wrong.
    """
    try:
        tokens = TokenReader(sql)
    except TokenError:
        return None
    for verb, read in _READERS.items():
        if tokens.take(verb):
            statement = read(tokens)
            if statement is not None:
                tokens.expect_end()
            return statement
    return None


def _create(tokens: TokenReader) -> Create | None:
    or_replace = tokens.take("OR", "REPLACE")
    kind = tokens.take_one_of(*KINDS)
    if kind is None:
        return None
    if_not_exists = tokens.take("IF", "NOT", "EXISTS")
    name = tokens.name()
    if kind == "ICEBERG TABLE" and tokens.at("("):
        raise not_emulated("An Iceberg table that Snowflake manages (with a column list)")
    options = read_options(tokens, OPTIONS[kind], complete=True)
    return Create(kind, name, options, or_replace, if_not_exists)


def _alter(tokens: TokenReader) -> Alter | Refresh | None:
    kind = tokens.take_one_of(*KINDS)
    if kind is None:
        return None
    if_exists = tokens.take("IF", "EXISTS")
    name = tokens.name()
    if kind == "ICEBERG TABLE" and tokens.take("REFRESH"):
        return Refresh(name, if_exists)
    if tokens.take("UNSET"):
        return Alter(kind, name, read_keys(tokens, OPTIONS[kind]), if_exists)
    tokens.expect("SET")
    return Alter(kind, name, read_options(tokens, OPTIONS[kind], complete=False), if_exists)


def _drop(tokens: TokenReader) -> Drop | None:
    kind = tokens.take_one_of(*KINDS)
    return Drop(kind, if_exists=tokens.take("IF", "EXISTS"), name=tokens.name()) if kind else None


def _describe(tokens: TokenReader) -> Describe | None:
    kind = tokens.take_one_of("USER", "EXTERNAL VOLUME", "CATALOG INTEGRATION")
    return Describe(kind, tokens.name()) if kind else None


def _show(tokens: TokenReader) -> Show | ShowGrants | None:
    if grants := tokens.take_one_of("FUTURE GRANTS TO", "GRANTS TO", "GRANTS OF"):
        tokens.expect("ROLE")
        return ShowGrants(grants, tokens.identifier())
    plural = tokens.take_one_of(*PLURALS)
    if plural is None:
        return None
    like = tokens.string() if tokens.take("LIKE") else "%"
    within: Name = ()
    if tokens.take("IN") and not tokens.take("ACCOUNT"):
        tokens.take_one_of("DATABASE", "SCHEMA")
        within = tokens.name()
    return Show(PLURALS[plural], like, within)


def _grant(tokens: TokenReader) -> Statement:
    if tokens.take("OWNERSHIP", "ON"):
        kind = tokens.take_one_of(*KINDS)
        if not kind:
            raise tokens.error("kind of object")
        name = tokens.name()
        tokens.expect("TO", "ROLE")
        role = tokens.identifier()
        tokens.take("COPY", "CURRENT", "GRANTS")
        return GrantOwnership(kind, name, role)
    if which := tokens.take_one_of("SELECT ON ALL", "SELECT ON FUTURE"):
        tokens.expect("ICEBERG", "TABLES", "IN", "SCHEMA")
        schema = tokens.name()
        tokens.expect("TO", "ROLE")
        return GrantOnTables(which.endswith("FUTURE"), schema, tokens.identifier())
    return _given(tokens, "TO")


def _given(tokens: TokenReader, direction: str) -> Grant | GrantRole:
    revoke = direction == "FROM"
    if tokens.take("ROLE"):
        role = tokens.identifier()
        tokens.expect(direction)
        grantee_kind = tokens.take_one_of("USER", "ROLE")
        if not grantee_kind:
            raise tokens.error("USER or ROLE")
        return GrantRole(role, grantee_kind, tokens.identifier(), revoke)
    every = {privilege for privileges in PRIVILEGES.values() for privilege in privileges}
    # The longest first: CREATE ICEBERG TABLE before CREATE.
    words = sorted(every, key=len, reverse=True)
    privileges = []
    while True:
        privilege = tokens.take_one_of(*words)
        if not privilege:
            raise tokens.error("privilege")
        privileges.append(privilege)
        if not tokens.take(","):
            break
    tokens.expect("ON")
    kind = tokens.take_one_of("TABLE", *PRIVILEGES)
    if not kind:
        raise tokens.error("kind of object")
    kind = "ICEBERG TABLE" if kind == "TABLE" else kind
    for privilege in privileges:
        if privilege not in PRIVILEGES[kind]:
            raise tokens.error(f"a privilege on {kind}, not {privilege}")
    name = () if kind == "ACCOUNT" else tokens.name()
    tokens.expect(direction, "ROLE")
    return Grant(tuple(privileges), kind, name, tokens.identifier(), revoke)


def _revoke(tokens: TokenReader) -> Grant | GrantRole:
    return _given(tokens, "FROM")


def _use(tokens: TokenReader) -> Use | None:
    kind = tokens.take_one_of("ROLE", "WAREHOUSE")
    return Use(kind, tokens.identifier()) if kind else None


_READERS: dict[str, Callable[[TokenReader], Statement | None]] = {
    "CREATE": _create,
    "ALTER": _alter,
    "DROP": _drop,
    "DESC": _describe,
    "DESCRIBE": _describe,
    "SHOW": _show,
    "GRANT": _grant,
    "REVOKE": _revoke,
    "USE": _use,
}
