"""Parser of the statements that fakesnow lacks: account objects, grants, and Iceberg tables.

Options are read by their form. Their names and types, and the content of grants, are not checked: statements that
Snowflake accepts are run, and tests/support/clouds/snowflake/strict_statements.py refuses those that it rejects.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import sqlglot
from sqlglot.errors import TokenError
from sqlglot.tokens import Token, TokenType

from lakehouse.local.snowflake.snowflake_errors import not_emulated, syntax_error

KINDS = (
    *("USER", "ROLE", "WAREHOUSE", "DATABASE", "SCHEMA"),
    *("EXTERNAL VOLUME", "CATALOG INTEGRATION", "ICEBERG TABLE"),
)
"""Kinds of objects that the account has."""
NOT_EMULATED = (
    *("STAGE", "FILE FORMAT", "SEQUENCE", "PIPE", "STREAM", "TASK", "ALERT"),
    *("USER FUNCTION", "USER PROCEDURE"),
)
"""Kinds of which the account has no object, so that SHOW lists none."""
PLURALS = {kind + "S": kind for kind in (*KINDS, *NOT_EMULATED)}

Name = tuple[str, ...]
"""An object's name, one part or more, as Snowflake stores it: unquoted parts in upper case."""

_QUOTED = {TokenType.STRING, TokenType.RAW_STRING, TokenType.IDENTIFIER}
_STRINGS = {TokenType.STRING, TokenType.RAW_STRING}


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


@dataclass(frozen=True)
class GrantStatement:
    """GRANT or REVOKE."""


Statement = Create | Alter | Refresh | Drop | Describe | Show | Use | GrantStatement


class Parser:
    """A parser of statements. A subclass may check options and grants."""

    def parse(self, sql: str) -> Statement | None:
        """Parse a statement; return None for one that fakesnow runs."""
        try:
            tokens = TokenReader(sql)
        except TokenError:
            return None
        readers: dict[str, Callable[[TokenReader], Statement | None]] = {
            "CREATE": self._create,
            "ALTER": self._alter,
            "DROP": self._drop,
            "DESC": self._describe,
            "DESCRIBE": self._describe,
            "SHOW": self.show,
            "GRANT": self.grant,
            "REVOKE": self.revoke,
            "USE": self._use,
        }
        for verb, read in readers.items():
            if tokens.accept(verb):
                statement = read(tokens)
                if statement is not None:
                    tokens.expect_end()
                return statement
        return None

    def options(self, tokens: TokenReader, kind: str, *, complete: bool) -> dict[str, Any]:
        """Read `KEY = value` pairs, separated by spaces, up to the end of the statement.

        Args:
            tokens: The statement.
            kind: Kind of the object.
            complete: Whether required options must be present (CREATE) or not (ALTER ... SET).
        """
        return _read_options(tokens)

    def keys(self, tokens: TokenReader, kind: str) -> dict[str, None]:
        """Read option names up to the end of the statement, separated by commas (ALTER ... UNSET)."""
        keys = {tokens.identifier(): None}
        while tokens.accept(","):
            keys[tokens.identifier()] = None
        return keys

    def grant(self, tokens: TokenReader) -> GrantStatement:
        """Read the tokens after GRANT."""
        tokens.skip()
        return GrantStatement()

    def revoke(self, tokens: TokenReader) -> GrantStatement:
        """Read the tokens after REVOKE."""
        return self.grant(tokens)

    def show(self, tokens: TokenReader) -> Show | GrantStatement | None:
        """Read the tokens after SHOW; return None for what fakesnow shows."""
        plural = tokens.accept_one_of(*PLURALS)
        if plural is None:
            return None
        like = tokens.string() if tokens.accept("LIKE") else "%"
        within: Name = ()
        if tokens.accept("IN") and not tokens.accept("ACCOUNT"):
            tokens.accept_one_of("DATABASE", "SCHEMA")
            within = tokens.name()
        return Show(PLURALS[plural], like, within)

    def _create(self, tokens: TokenReader) -> Create | None:
        or_replace = tokens.accept("OR", "REPLACE")
        kind = tokens.accept_one_of(*KINDS)
        if kind is None:
            return None
        if_not_exists = tokens.accept("IF", "NOT", "EXISTS")
        name = tokens.name()
        if kind == "ICEBERG TABLE" and tokens.at("("):
            raise not_emulated("An Iceberg table that Snowflake manages (with a column list)")
        return Create(kind, name, self.options(tokens, kind, complete=True), or_replace, if_not_exists)

    def _alter(self, tokens: TokenReader) -> Alter | Refresh | None:
        kind = tokens.accept_one_of(*KINDS)
        if kind is None:
            return None
        if_exists = tokens.accept("IF", "EXISTS")
        name = tokens.name()
        if kind == "ICEBERG TABLE" and tokens.accept("REFRESH"):
            return Refresh(name, if_exists)
        if tokens.accept("UNSET"):
            return Alter(kind, name, self.keys(tokens, kind), if_exists)
        tokens.expect("SET")
        return Alter(kind, name, self.options(tokens, kind, complete=False), if_exists)

    def _drop(self, tokens: TokenReader) -> Drop | None:
        kind = tokens.accept_one_of(*KINDS)
        return Drop(kind, if_exists=tokens.accept("IF", "EXISTS"), name=tokens.name()) if kind else None

    def _describe(self, tokens: TokenReader) -> Describe | None:
        kind = tokens.accept_one_of("USER", "EXTERNAL VOLUME", "CATALOG INTEGRATION")
        return Describe(kind, tokens.name()) if kind else None

    def _use(self, tokens: TokenReader) -> Use | None:
        kind = tokens.accept_one_of("ROLE", "WAREHOUSE")
        return Use(kind, tokens.identifier()) if kind else None


def _read_options(tokens: TokenReader, until: str = "") -> dict[str, Any]:
    """Read `KEY = value` pairs, which may be separated by commas in a group."""
    options = {}
    while not tokens.at_end() and not (until and tokens.at(until)):
        key = tokens.identifier()
        tokens.expect("=")
        options[key] = _read_value(tokens)
        if until:
            tokens.accept(",")
    return options


def _read_value(tokens: TokenReader) -> Any:
    """Read a string, a number, a word, or in parentheses a list of strings, a list of groups of options, or a group."""
    if tokens.at_string():
        return tokens.string()
    if tokens.at_number():
        return tokens.number()
    if not tokens.accept("("):
        word = tokens.identifier()
        return {"TRUE": True, "FALSE": False}.get(word, word)
    if not (tokens.at("(") or tokens.at_string()):
        group = _read_options(tokens, until=")")
        tokens.expect(")")
        return group
    values = [_read_value(tokens)]
    while tokens.accept(","):
        values.append(_read_value(tokens))
    tokens.expect(")")
    return values


class TokenReader:
    """A reader of keywords, names and literals. Unexpected tokens raise Snowflake's syntax error."""

    def __init__(self, sql: str):
        """Tokenize a statement.

        Args:
            sql: One statement, with or without a closing semicolon.

        Raises:
            sqlglot.errors.TokenError: It cannot be split into tokens, for example because of an open quote.
        """
        self._tokens: list[Token] = list(sqlglot.tokenize(sql, read="snowflake"))
        while self._tokens and self._tokens[-1].token_type == TokenType.SEMICOLON:
            self._tokens.pop()
        self._at = 0

    def at_end(self) -> bool:
        """Return whether all tokens have been read."""
        return self._at >= len(self._tokens)

    def at(self, *words: str) -> bool:
        """Return whether the next tokens are these keywords or signs."""
        return all(self._word(offset) == word for offset, word in enumerate(words))

    def accept(self, *words: str) -> bool:
        """Read these keywords if they are next, and return whether they were."""
        matches = self.at(*words)
        if matches:
            self._at += len(words)
        return matches

    def accept_one_of(self, *choices: str) -> str | None:
        """Read and return the first choice (keywords separated by spaces) that is next; None if none is."""
        return next((choice for choice in choices if self.accept(*choice.split())), None)

    def expect_one_of(self, expected: str, *choices: str) -> str:
        """Read and return the first choice that is next."""
        choice = self.accept_one_of(*choices)
        if choice is None:
            raise self.error(expected)
        return choice

    def expect(self, *words: str) -> None:
        """Read these keywords, which must be next."""
        if not self.accept(*words):
            raise self.error(" ".join(words))

    def skip(self) -> None:
        """Read all remaining tokens."""
        self._at = len(self._tokens)

    def expect_end(self) -> None:
        """Check that all tokens have been read."""
        if not self.at_end():
            raise self.error("end of statement")

    def identifier(self) -> str:
        """Read an identifier; unquoted ones are converted to upper case (Snowflake, Identifier requirements)."""
        token = self._next("identifier")
        if token.token_type in _STRINGS or not (token.token_type in _QUOTED or _is_word(token.text)):
            self._at -= 1
            raise self.error("identifier")
        return token.text if token.token_type == TokenType.IDENTIFIER else token.text.upper()

    def name(self) -> Name:
        """Read a name, qualified or not."""
        parts = [self.identifier()]
        while self.accept("."):
            parts.append(self.identifier())
        return tuple(parts)

    def string(self) -> str:
        """Read a string literal, and return it without its quotes."""
        token = self._next("string")
        if token.token_type not in _STRINGS:
            self._at -= 1
            raise self.error("string")
        return token.text

    def at_string(self) -> bool:
        """Return whether a string literal is next."""
        return not self.at_end() and self._tokens[self._at].token_type in _STRINGS

    def at_number(self) -> bool:
        """Return whether a number is next."""
        return not self.at_end() and self._tokens[self._at].token_type == TokenType.NUMBER

    def number(self) -> int:
        """Read an integer literal."""
        token = self._next("number")
        if token.token_type != TokenType.NUMBER or not token.text.isdigit():
            self._at -= 1
            raise self.error("number")
        return int(token.text)

    def error(self, expected: str = ""):
        """Return the syntax error at the current token."""
        return syntax_error("<EOF>" if self.at_end() else self._tokens[self._at].text, expected)

    def _word(self, offset: int) -> str | None:
        index = self._at + offset
        if index >= len(self._tokens) or self._tokens[index].token_type in _QUOTED:
            return None
        return self._tokens[index].text.upper()

    def _next(self, expected: str) -> Token:
        if self.at_end():
            raise self.error(expected)
        self._at += 1
        return self._tokens[self._at - 1]


def _is_word(text: str) -> bool:
    return text.replace("$", "_").isidentifier()
