"""Snowflake's errors, with their numbers.

606, 1003, 2002, 2003, 3001 and 90105 are Snowflake's, as far as known. Errors whose number is not known have `UNKNOWN`,
so that no client depends on an invented number.
"""

from snowflake.connector.errors import ProgrammingError

UNKNOWN = 9999


def syntax_error(token: str, expected: str = "") -> ProgrammingError:
    """Return the error of a statement that violates Snowflake's grammar."""
    hint = f" (expected {expected})" if expected else ""
    return ProgrammingError(f"SQL compilation error:\nsyntax error unexpected '{token}'{hint}.", 1003, "42000")


def invalid_option(message: str) -> ProgrammingError:
    """Return the error of an option that is unknown, missing, repeated, or has a value of the wrong type."""
    return ProgrammingError(f"SQL compilation error:\n{message}", UNKNOWN, "22023")


def missing(kind: str, name: str) -> ProgrammingError:
    """Return the error of an object that does not exist or is hidden from the role: Snowflake does not distinguish
    these."""
    return ProgrammingError(
        f"SQL compilation error:\n{kind.capitalize()} '{name}' does not exist or not authorized.", 2003, "02000"
    )


def exists(name: str) -> ProgrammingError:
    """Return the error of a name that is in use."""
    return ProgrammingError(f"SQL compilation error:\nObject '{name}' already exists.", 2002, "42710")


def forbidden(kind: str, name: str, privilege: str) -> ProgrammingError:
    """Return the error of an object that the role can see, but on which it lacks the privilege."""
    return ProgrammingError(
        f"SQL access control error:\nInsufficient privileges to operate on {kind.lower()} '{name}' ({privilege}).",
        3001,
        "42501",
    )


def no_warehouse() -> ProgrammingError:
    """Return the error of a query without a warehouse that exists and that the role may use."""
    return ProgrammingError(
        "No active warehouse selected in the current session.  "
        "Select an active warehouse with the 'use warehouse' command.",
        606,
        "57P03",
    )


def no_schema() -> ProgrammingError:
    """Return the error of a name without database or schema in a session without them."""
    return ProgrammingError(
        "Cannot perform operation. This session does not have a current database or schema. "
        "Call 'USE SCHEMA', or use a qualified name.",
        90105,
        "22000",
    )


def failed(message: str) -> ProgrammingError:
    """Return the error of a valid statement whose execution failed."""
    return ProgrammingError(f"SQL execution error:\n{message}", UNKNOWN, "58000")


def not_emulated(feature: str) -> ProgrammingError:
    """Return the error of a feature that Snowflake may have, but this server does not."""
    return ProgrammingError(f"{feature} is not emulated by the local Snowflake server", UNKNOWN, "0A000")
