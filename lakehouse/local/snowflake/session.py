"""What a command needs to know of the session it runs in, and what it gives back."""

from __future__ import annotations

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
    """The rows a statement answers with."""

    columns: Sequence[str]
    rows: Sequence[tuple[Value, ...]] = ()


def status(message: str) -> Result:
    """The one-row answer of a statement that returns no data."""
    return Result(["status"], [(message,)])


def like(pattern: str) -> re.Pattern[str]:
    """SHOW ... LIKE: `%` any text, `_` any character, in any case."""
    return re.compile(re.escape(pattern).replace("%", ".*").replace("_", "."), re.IGNORECASE | re.DOTALL)


class Session(Protocol):
    """A logged-in client: `engine.Connection`. `role` and `warehouse` are what it works as and with now."""

    account: Account
    lake: Lake
    user: str
    role: str
    warehouse: str | None

    @property
    def duckdb(self) -> DuckDBPyConnection:
        """A new cursor of the database that holds the data, with a transaction of its own. The caller closes it."""

    def resolve(self, name: Name, parts: int) -> Name:
        """The name with the session's database and schema in front, as far as it lacks them.

        Raises: ProgrammingError when the session has none, or the name has more parts than the kind of object has.
        """

    def run(self, sql: str) -> None:
        """Run a statement that fakesnow knows."""
