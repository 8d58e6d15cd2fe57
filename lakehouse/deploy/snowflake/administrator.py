"""An administrator's session in a Snowflake account, and the comment that names the deployment of an object.

The session is opened when the first statement is run.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any

from lakehouse.config.deployment import DEPLOYMENT_TAG
from lakehouse.core.errors import LakehouseError, OutcomeUnknownError, UnclearState
from resources.snowflake import sql
from resources.snowflake.session import (
    FailedStatement,
    Parse,
    R,
    Row,
    SnowflakeSession,
    StatementRunner,
    connect,
    single_value,
    text_of,
    value_of,
)

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.rsa import RSAPrivateKey
    from snowflake.connector import SnowflakeConnection
    from snowflake.connector.cursor import SnowflakeCursor
    from snowflake.connector.errors import Error


@dataclass(frozen=True)
class UserLogin:
    """The credentials of a user, and the role of the session."""

    account: str
    user: str
    role: str
    private_key: RSAPrivateKey | bytes = field(repr=False)
    """As `private_key` returns it."""
    remedy: str
    """What to do about a refusal: a sentence without a full stop."""


@dataclass(frozen=True)
class LazySession:
    """A session of the connector, with credentials that are looked up when it is opened."""

    login: Callable[[], UserLogin]

    def cursor(self) -> SnowflakeCursor:
        """Open a cursor, as PEP 249 has it."""
        return self._connection.cursor()

    @property
    def account(self) -> str:
        """The account identifier with which the session was opened."""
        return str(self._connection.account)

    def __getattr__(self, name: str) -> Any:
        """Return an attribute of the connection, such as its host."""
        return getattr(self._connection, name)

    def close(self) -> None:
        """Close the session, if it was opened."""
        if "_connection" in self.__dict__:
            self._connection.close()

    @cached_property
    def _connection(self) -> SnowflakeConnection:
        login = self.login()

        def refused(error: Error) -> LakehouseError:
            return LakehouseError(
                f"Snowflake refused user {login.user} of account {login.account} with role {login.role}: {error.msg} "
                f"The login changed nothing. {login.remedy}"
            )

        return connect(
            account=login.account,
            user=login.user,
            address={name: os.environ.get(f"SNOWFLAKE_{name.upper()}") for name in ("host", "port", "protocol")},
            refused=refused,
            private_key=login.private_key,
            role=login.role,
        )


@dataclass(frozen=True)
class Administrator:
    """A session whose role may create what a deployment needs: ACCOUNTADMIN, or one that was granted as much."""

    session: SnowflakeSession = field(repr=False)
    owner: str
    """The mark of ownership: the deployment, and its AWS account and region."""

    @property
    def comment(self) -> str:
        """The comment of every object of the deployment."""
        return f"{DEPLOYMENT_TAG}={self.owner}"

    @property
    def account(self) -> str:
        """The account identifier with which the session was opened."""
        return self.session.account

    def read(self, statement: str, parse: Parse[R]) -> R:
        """Run a statement that changes nothing, and parse its rows."""
        return self._statements.read(statement, parse)

    def change(self, statement: str) -> None:
        """Run a statement with side effects.

        Raises:
            OutcomeUnknownError: The response was lost.
        """
        self._statements.change(statement)

    def find(self, kind: str, *name: str) -> Row | None:
        """Return the row of SHOW for the deployment's object of this name; None if it does not exist.

        Raises:
            UnclearState: It does not belong to the deployment.
        """
        shown = self.read(sql.show(kind, *name), lambda rows: _commented(rows, name[-1]))
        if shown is None:
            return None
        row, actual = shown
        if actual != self.comment:
            raise UnclearState(
                f"The Snowflake account {self.account} has a {kind.lower()} {'.'.join(name)} that does not belong to "
                f"this deployment: its comment is '{actual}', not '{self.comment}'. It was "
                f"left unchanged. Rename or drop it, or choose another name of the deployment in lakehouse.yaml"
            )
        return row

    @contextlib.contextmanager
    def acting_as(self, role: str, warehouse: str) -> Iterator[None]:
        """Let the role own what is created within. The administrator's role must have inherited it.

        Args:
            role: The owner.
            warehouse: Of the session: Snowflake creates Iceberg tables only in a session that has one.
        """
        before = self.read("SELECT CURRENT_ROLE()", lambda rows: single_value(rows, str))
        self.read(sql.use_role(role), list)
        try:
            self.read(sql.use_warehouse(warehouse), list)
            yield
        finally:
            self.read(sql.use_role(before), list)

    @property
    def _statements(self) -> StatementRunner:
        account = self.account

        def refused(failed: FailedStatement) -> LakehouseError:
            return LakehouseError(
                f"Snowflake at {account} refused a statement of the administrator's session: {failed.msg} The "
                f"statement changed nothing. Check that the session's role is ACCOUNTADMIN, or was granted as much: "
                f"{failed.text}"
            )

        def lost(failed: FailedStatement) -> LakehouseError:
            return OutcomeUnknownError(
                f"Snowflake at {account} did not answer ({failed.msg}), so the statement may have been executed or "
                f"not: {failed.text} Run the command again: it reads the current state first"
            )

        return StatementRunner(self.session, account, refused, lost)


def _commented(rows: list[Row], name: str) -> tuple[Row, str | None] | None:
    """Return the row of SHOW with a name, and its comment, which may be NULL; None if there is no such row."""
    row = next((row for row in rows if text_of(row, "name") == name), None)
    return None if row is None else (row, value_of(row, "comment"))
