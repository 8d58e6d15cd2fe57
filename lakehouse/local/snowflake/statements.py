"""Strict parsers of the statements that fakesnow lacks: account objects, grants, and Iceberg tables."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from sqlglot.errors import TokenError

from lakehouse.local.snowflake.options import (
    OPTIONS,
    GrantStatement,
    ShowGrants,
    read_grant,
    read_keys,
    read_options,
    read_revoke,
    read_show,
)
from lakehouse.local.snowflake.snowflake_errors import not_emulated
from lakehouse.local.snowflake.tokens import Name, TokenReader

KINDS = tuple(OPTIONS)
NOT_EMULATED = (
    *("STAGE", "FILE FORMAT", "SEQUENCE", "PIPE", "STREAM", "TASK", "ALERT"),
    *("USER FUNCTION", "USER PROCEDURE"),
)
"""Kinds of which the account has no object, so that SHOW lists none."""
PLURALS = {kind + "S": kind for kind in (*KINDS, *NOT_EMULATED)}


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
    """ALTER kind [IF EXISTS] name SET options, or UNSET keys, which are options with value None."""

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
class Use:
    """USE ROLE | WAREHOUSE name."""

    kind: str
    name: str


Statement = Create | Alter | Refresh | Drop | Describe | Show | Use | GrantStatement


def parse(sql: str) -> Statement | None:
    """Parse a statement; return None for one that fakesnow runs.

    Raises:
        ProgrammingError: The statement is of one of these kinds and invalid.
    """
    try:
        tokens = TokenReader(sql)
    except TokenError:
        return None
    for verb, read in _READERS.items():
        if tokens.accept(verb):
            statement = read(tokens)
            if statement is not None:
                tokens.expect_end()
            return statement
    return None


def _create(tokens: TokenReader) -> Create | None:
    or_replace = tokens.accept("OR", "REPLACE")
    kind = tokens.accept_one_of(*KINDS)
    if kind is None:
        return None
    if_not_exists = tokens.accept("IF", "NOT", "EXISTS")
    name = tokens.name()
    if kind == "ICEBERG TABLE" and tokens.at("("):
        raise not_emulated("An Iceberg table that Snowflake manages (with a column list)")
    options = read_options(tokens, OPTIONS[kind], complete=True)
    return Create(kind, name, options, or_replace, if_not_exists)


def _alter(tokens: TokenReader) -> Alter | Refresh | None:
    kind = tokens.accept_one_of(*KINDS)
    if kind is None:
        return None
    if_exists = tokens.accept("IF", "EXISTS")
    name = tokens.name()
    if kind == "ICEBERG TABLE" and tokens.accept("REFRESH"):
        return Refresh(name, if_exists)
    if tokens.accept("UNSET"):
        return Alter(kind, name, read_keys(tokens, OPTIONS[kind]), if_exists)
    tokens.expect("SET")
    return Alter(kind, name, read_options(tokens, OPTIONS[kind], complete=False), if_exists)


def _drop(tokens: TokenReader) -> Drop | None:
    kind = tokens.accept_one_of(*KINDS)
    return Drop(kind, if_exists=tokens.accept("IF", "EXISTS"), name=tokens.name()) if kind else None


def _describe(tokens: TokenReader) -> Describe | None:
    kind = tokens.accept_one_of("USER", "EXTERNAL VOLUME", "CATALOG INTEGRATION")
    return Describe(kind, tokens.name()) if kind else None


def _show(tokens: TokenReader) -> Show | ShowGrants | None:
    if grants := read_show(tokens):
        return grants
    plural = tokens.accept_one_of(*PLURALS)
    if plural is None:
        return None
    like = tokens.string() if tokens.accept("LIKE") else "%"
    within: Name = ()
    if tokens.accept("IN") and not tokens.accept("ACCOUNT"):
        tokens.accept_one_of("DATABASE", "SCHEMA")
        within = tokens.name()
    return Show(PLURALS[plural], like, within)


def _use(tokens: TokenReader) -> Use | None:
    kind = tokens.accept_one_of("ROLE", "WAREHOUSE")
    return Use(kind, tokens.identifier()) if kind else None


_READERS: dict[str, Callable[[TokenReader], Statement | None]] = {
    "CREATE": _create,
    "ALTER": _alter,
    "DROP": _drop,
    "DESC": _describe,
    "DESCRIBE": _describe,
    "SHOW": _show,
    "GRANT": read_grant,
    "REVOKE": read_revoke,
    "USE": _use,
}
