"""The interface of sessions for commands, and the results of commands."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Protocol

from duckdb import DuckDBPyConnection

from lakehouse.local.snowflake.account import Account
from lakehouse.local.snowflake.iceberg import Lake
from lakehouse.local.snowflake.tokens import Name

Value = str | int | bool | datetime | None


@dataclass(frozen=True)
class Result:
    """The result rows of a statement."""

    columns: Sequence[str]
    rows: Sequence[tuple[Value, ...]] = ()


def status(message: str = "Statement executed successfully.") -> Result:
    """Return the one-row result of a statement without data."""
    return Result(["status"], [(message,)])


def text(value: object) -> str:
    """Return the value of an option as SHOW and DESC print it."""
    return str(value).lower() if isinstance(value, bool) else str(value)


def like(pattern: str) -> re.Pattern[str]:
    """Compile the pattern of SHOW ... LIKE: `%` is any text, `_` any character; case is ignored."""
    return re.compile(re.escape(pattern).replace("%", ".*").replace("_", "."), re.IGNORECASE | re.DOTALL)


class Session(Protocol):
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

        Raises:
            ProgrammingError: The session has no database or schema, or the name has more parts.
        """

    def run(self, sql: str) -> None:
        """Run a statement that fakesnow supports."""
