"""Snowflake's errors, by the numbers its clients know.

606, 1003, 2002, 2003, 3001 and 90105 are meant to be Snowflake's own. Where its number is not known, `UNKNOWN` is used,
so that nobody comes to depend on an invented one.
"""

from __future__ import annotations

from snowflake.connector.errors import ProgrammingError

UNKNOWN = 9999


def syntax_error(found: str, expected: str = "") -> ProgrammingError:
    """The statement does not follow Snowflake's grammar."""
    hint = f" (expected {expected})" if expected else ""
    return ProgrammingError(f"SQL compilation error:\nsyntax error unexpected '{found}'{hint}.", 1003, "42000")


def invalid_option(message: str) -> ProgrammingError:
    """An option is unknown, missing, repeated, or has a value of the wrong type."""
    return ProgrammingError(f"SQL compilation error:\n{message}", UNKNOWN, "22023")


def missing(kind: str, name: str) -> ProgrammingError:
    """An object is not there, or the role may not see it: Snowflake does not tell one from the other."""
    return ProgrammingError(
        f"SQL compilation error:\n{kind.capitalize()} '{name}' does not exist or not authorized.", 2003, "02000"
    )


def exists(name: str) -> ProgrammingError:
    """An object of that name is already there."""
    return ProgrammingError(f"SQL compilation error:\nObject '{name}' already exists.", 2002, "42710")


def forbidden(kind: str, name: str, privilege: str) -> ProgrammingError:
    """The role sees the object and may not do this with it."""
    return ProgrammingError(
        f"SQL access control error:\nInsufficient privileges to operate on {kind.lower()} '{name}' ({privilege}).",
        3001,
        "42501",
    )


def no_warehouse() -> ProgrammingError:
    """A query needs a warehouse that exists and that the role may use."""
    return ProgrammingError(
        "No active warehouse selected in the current session.  "
        "Select an active warehouse with the 'use warehouse' command.",
        606,
        "57P03",
    )


def no_schema() -> ProgrammingError:
    """A name without database or schema, in a session that has none."""
    return ProgrammingError(
        "Cannot perform operation. This session does not have a current database or schema. "
        "Call 'USE SCHEMA', or use a qualified name.",
        90105,
        "22000",
    )


def failed(message: str) -> ProgrammingError:
    """The statement is right and could not be carried out."""
    return ProgrammingError(f"SQL execution error:\n{message}", UNKNOWN, "58000")


def not_emulated(what: str) -> ProgrammingError:
    """Valid in Snowflake perhaps, but this server does not know it."""
    return ProgrammingError(f"{what} is not emulated by the local Snowflake server", UNKNOWN, "0A000")
