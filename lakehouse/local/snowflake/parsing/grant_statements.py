"""Strict parsers of the statements about grants."""

from dataclasses import dataclass

from lakehouse.local.snowflake.parsing.options import OPTIONS
from lakehouse.local.snowflake.parsing.tokens import Name, TokenReader

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
"""Privileges by kind of object: the subset of Snowflake's access control privileges that this server emulates."""


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


GrantStatement = Grant | GrantRole | GrantOnTables | GrantOwnership | ShowGrants


def read_grant(tokens: TokenReader) -> GrantStatement:
    """Parse the tokens after GRANT."""
    if tokens.accept("OWNERSHIP", "ON"):
        kind = tokens.expect_one_of("kind of object", *OPTIONS)
        name = tokens.name()
        tokens.expect("TO", "ROLE")
        role = tokens.identifier()
        tokens.accept("COPY", "CURRENT", "GRANTS")
        return GrantOwnership(kind, name, role)
    if which := tokens.accept_one_of("SELECT ON ALL", "SELECT ON FUTURE"):
        tokens.expect("ICEBERG", "TABLES", "IN", "SCHEMA")
        schema = tokens.name()
        tokens.expect("TO", "ROLE")
        return GrantOnTables(which.endswith("FUTURE"), schema, tokens.identifier())
    return _read_privileges_or_role(tokens, "TO")


def _read_privileges_or_role(tokens: TokenReader, direction: str) -> Grant | GrantRole:
    revoke = direction == "FROM"
    if tokens.accept("ROLE"):
        role = tokens.identifier()
        tokens.expect(direction)
        grantee_kind = tokens.expect_one_of("USER or ROLE", "USER", "ROLE")
        return GrantRole(role, grantee_kind, tokens.identifier(), revoke)
    unique = {privilege for privileges in PRIVILEGES.values() for privilege in privileges}
    # The longest first, in case one privilege is the beginning of another.
    words = sorted(unique, key=len, reverse=True)
    privileges = [tokens.expect_one_of("privilege", *words)]
    while tokens.accept(","):
        privileges.append(tokens.expect_one_of("privilege", *words))
    tokens.expect("ON")
    kind = tokens.expect_one_of("kind of object", "TABLE", *PRIVILEGES)
    kind = "ICEBERG TABLE" if kind == "TABLE" else kind
    for privilege in privileges:
        if privilege not in PRIVILEGES[kind]:
            raise tokens.error(f"a privilege on {kind}, not {privilege}")
    name = () if kind == "ACCOUNT" else tokens.name()
    tokens.expect(direction, "ROLE")
    return Grant(tuple(privileges), kind, name, tokens.identifier(), revoke)


def read_revoke(tokens: TokenReader) -> GrantStatement:
    """Parse the tokens after REVOKE."""
    return _read_privileges_or_role(tokens, "FROM")


def read_show(tokens: TokenReader) -> ShowGrants | None:
    """Parse the tokens after SHOW; return None if it is not about grants."""
    which = tokens.accept_one_of("FUTURE GRANTS TO", "GRANTS TO", "GRANTS OF")
    if which is None:
        return None
    tokens.expect("ROLE")
    return ShowGrants(which, tokens.identifier())
