"""A session in a Snowflake account that is opened when the first statement is run."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any

from lakehouse.core.errors import LakehouseError
from resources.snowflake.snowflake_connection import connect

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.rsa import RSAPrivateKey
    from snowflake.connector import SnowflakeConnection
    from snowflake.connector.cursor import SnowflakeCursor
    from snowflake.connector.errors import Error


@dataclass(frozen=True)
class Login:
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

    login: Callable[[], Login]

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
