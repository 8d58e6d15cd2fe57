"""Sessions of Snowflake's connector: logins, statements with the errors of their caller, and responses whose form is
verified.

A function that parses rows reads them with `text_of`, `value_of`, `single_value` and `json_object`, which raise
`UnknownForm`. `parsed` reports it as an error that names the statement.
"""

from __future__ import annotations

import base64
import json
import logging
import runpy
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from functools import cache, lru_cache, partial
from importlib.metadata import distribution
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from lakehouse.core import extras
from lakehouse.core.errors import LakehouseError, Unreachable, translate
from resources.snowflake.sql import redact

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.rsa import RSAPrivateKey
    from snowflake.connector import SnowflakeConnection
    from snowflake.connector.cursor import SnowflakeCursor
    from snowflake.connector.errors import Error


LOGIN_TIMEOUT_SECONDS = 10
NETWORK_TIMEOUT_SECONDS = 60
"""Limit for one request. Without these two limits the connector repeats a request for minutes."""

LOGGERS = ("connection", "cursor", "errors", "network")
"""Loggers of the connector that quote statements; `network` at level ERROR when there is no response."""

Row = dict[str, Any]
"""The values of a row, by column."""
R = TypeVar("R")
Parse = Callable[[list[Row]], R]
"""Derives a value from the rows of a response."""


class SnowflakeSession(Protocol):
    """A session of the connector, or one that connects when it is first used."""

    @property
    def account(self) -> str:
        """The account identifier."""

    def cursor(self) -> SnowflakeCursor:
        """Open a cursor, as PEP 249 defines it."""


@dataclass(frozen=True)
class FailedStatement:
    """A statement that failed, without the secrets in it, and the connector's error."""

    text: str
    msg: str
    """Without the secrets in it."""
    errno: int | None


@dataclass(frozen=True)
class StatementRunner:
    """Statements in one session, whose errors have the words of their caller."""

    session: SnowflakeSession = field(repr=False)
    where: str
    """Address of the server."""
    refused: Callable[[FailedStatement], LakehouseError]
    """Returns the error for a statement that Snowflake refuses."""
    lost: Callable[[FailedStatement], LakehouseError]
    """Returns the error for a change whose response was lost."""

    def read(self, statement: str, parse: Parse[R]) -> R:
        """Run a statement that changes nothing, and parse its rows."""
        columns, rows = self._run(statement, (), partial(unreachable, self.where))
        return parsed(self.where, statement, by_column(columns, rows), parse)

    def change(self, statement: str, params: Sequence[Any] = ()) -> tuple[list[str], list[tuple[Any, ...]]]:
        """Run a statement that may have side effects, and return its columns and rows.

        Args:
            statement: The statement, with `?` for each value of `params`.
            params: Values that the server binds.
        """
        return self._run(statement, params, self.lost)

    def _run(
        self, statement: str, params: Sequence[Any], lost: Callable[[FailedStatement], LakehouseError]
    ) -> tuple[list[str], list[tuple[Any, ...]]]:
        from snowflake.connector.errors import Error, OperationalError

        for name in LOGGERS:
            logging.getLogger(f"snowflake.connector.{name}").addFilter(_without_secrets)
        try:
            with self.session.cursor() as cursor:
                cursor.execute(statement, *([tuple(params)] if params else ()))
                return [column.name for column in cursor.description], cursor.fetchall()
        except Error as error:
            failure = error
        # Raised here, where it has no context: the connector's error quotes the statement, which may hold a secret.
        failed = FailedStatement(redact(statement), redact(failure.msg or ""), failure.errno)
        translated = lost(failed) if isinstance(failure, OperationalError) else self.refused(failed)
        raise translated from (failure if failed.text == statement else None)


def _without_secrets(record: logging.LogRecord) -> bool:
    """Let a record pass, without a client's secret."""
    message = record.getMessage()
    if (shown := redact(message)) != message:
        record.msg, record.args = shown, ()
    return True


@cache
def dagster_application() -> str:
    """Return the application name with which dagster-snowflake identifies Dagster to Snowflake.

    Only the module of constants is executed: an import of the package takes seconds, because it includes Snowpark and
    the 800 modules of Snowflake's REST API.
    """
    with extras.explained():
        constants = distribution("dagster-snowflake").locate_file("dagster_snowflake/constants.py")
    name: str = runpy.run_path(str(constants))["SNOWFLAKE_PARTNER_CONNECTION_IDENTIFIER"]
    return name


def connect(
    *,
    account: str,
    user: str,
    address: Mapping[str, Any],
    refused: Callable[[Error], LakehouseError],
    lost: Callable[[Error], LakehouseError] | None = None,
    login_timeout: int = LOGIN_TIMEOUT_SECONDS,
    network_timeout: int = NETWORK_TIMEOUT_SECONDS,
    **arguments: Any,
) -> SnowflakeConnection:
    """Open a session.

    Args:
        account: Account identifier.
        user: Login name.
        address: Host, port and protocol, where they differ from the account's own.
        refused: Returns the error for a rejected login.
        lost: Returns the error for a login without a response; None if nothing was changed before.
        login_timeout: Seconds for the login.
        network_timeout: Seconds for one request.
        arguments: Further arguments of the connector, such as the credential and the role.
    """
    # The import takes seconds.
    with extras.explained():
        import snowflake.connector

    with session_errors(location(account, address), refused, lost):
        return snowflake.connector.connect(
            account=account,
            user=user,
            login_timeout=login_timeout,
            network_timeout=network_timeout,
            # Otherwise the connector queries the metadata services of three clouds for its location.
            platform_detection_timeout_seconds=0,
            **{name: value for name, value in address.items() if value},
            **arguments,
        )


def session_errors(
    where: str,
    refused: Callable[[Error], LakehouseError],
    lost: Callable[[Error], LakehouseError] | None = None,
) -> AbstractContextManager[None]:
    """Translate errors of the connector.

    Args:
        where: Address of the server.
        refused: Returns the error for a rejected statement or login.
        lost: Returns the error for a change without a response; None if nothing is changed.
    """
    from snowflake.connector.errors import Error, OperationalError

    return translate({OperationalError: lost or partial(unreachable, where), Error: refused}, awaited="Snowflake")


def unreachable(
    where: str, error: Error | FailedStatement, effect: str = "The call did not complete", then: str = ""
) -> Unreachable:
    """Return the error for a request without a response.

    Args:
        where: Address of the server.
        error: The error of the connector.
        effect: The effect of the request, and of the steps before it.
        then: What to do when the server answers, as a clause.
    """
    check = f"account, host, port and network{then and f', then {then}'}"
    return Unreachable("Snowflake", where, check, error.msg, effect)


def location(account: str, address: Mapping[str, Any]) -> str:
    """Return the address of an account's server, for messages."""
    host = address.get("host") or f"{account}.snowflakecomputing.com"
    return f"{host}:{address['port']}" if address.get("port") else host


@lru_cache(maxsize=16)
def private_key(pem: bytes) -> RSAPrivateKey | bytes:
    """Return a private key for the connector: an RSA key, or the DER of another kind of key.

    Reading an RSA key takes 30 ms of CPU time, because its factors are verified. Programs that open many sessions read
    their key once, and the connector does not read it again.

    Args:
        pem: An unencrypted PEM, or its base64.

    Raises:
        ValueError: It is neither.
    """
    from cryptography.hazmat.primitives import serialization
    from cryptography.hazmat.primitives.asymmetric.rsa import RSAPrivateKey

    text = pem if pem.lstrip().startswith(b"-----BEGIN") else base64.b64decode(pem)
    key = serialization.load_pem_private_key(text, password=None)
    if isinstance(key, RSAPrivateKey):
        return key
    return key.private_bytes(
        serialization.Encoding.DER, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )


class UnknownForm(ValueError):
    """A response does not have the documented form. The message has names of columns and properties, and no values."""


class UnknownResponse(LakehouseError):
    """A query succeeded with a response of an unknown form."""


def by_column(columns: Sequence[str], rows: Sequence[tuple[Any, ...]]) -> list[Row]:
    """Return rows with their values by column."""
    return [dict(zip(columns, row, strict=True)) for row in rows]


def parsed(where: str, statement: str, rows: list[Row], parse: Parse[R]) -> R:
    """Parse the rows of a query.

    Args:
        where: Address of the server.
        statement: The query.
        rows: Its rows.
        parse: Parses them.
    """
    try:
        return parse(rows)
    except UnknownForm as error:
        problem = str(error)
    raise UnknownResponse(
        f"Snowflake at {where} returned a response that {problem}, to: {statement}. The query changed nothing. Check "
        f"the address and the privileges of the session's role; if both are right, Snowflake has changed the response, "
        f"which needs a newer release of lakehouse"
    )


def value_of(values: Mapping[str, Any], name: str) -> Any:
    """Return a value of a row, of properties or of a JSON object.

    Raises:
        UnknownForm: It does not exist.
    """
    if name not in values:
        raise UnknownForm(f"has no {name}, but {', '.join(values) or 'nothing'}")
    return values[name]


def text_of(values: Mapping[str, Any], name: str) -> str:
    """Return a text of a row, of properties or of a JSON object.

    Raises:
        UnknownForm: It does not exist, or is no text.
    """
    value = value_of(values, name)
    if not isinstance(value, str):
        raise UnknownForm(f"has a {name} of type {type(value).__name__} instead of text")
    return value


def single_value(rows: list[Row], kind: type[R]) -> R:
    """Return the only value of the only row.

    Args:
        rows: The rows.
        kind: Type of the value.

    Raises:
        UnknownForm: There are other values.
    """
    values = [value for row in rows for value in row.values()]
    if len(values) != 1 or not isinstance(values[0], kind):
        shown = ", ".join(type(value).__name__ for value in values) or "nothing"
        raise UnknownForm(f"has {shown} instead of one {kind.__name__}")
    return values[0]


def json_object(text: str) -> dict[str, Any]:
    """Return a JSON object.

    Raises:
        UnknownForm: The text is something else.
    """
    try:
        document = json.loads(text)
    except ValueError:
        document = None
    if not isinstance(document, dict):
        raise UnknownForm("is no JSON object")
    return document


def properties(rows: list[Row], value: str = "property_value") -> dict[str, Any]:
    """Return the values of a DESC statement, by property.

    Args:
        rows: The rows.
        value: The column of the values.

    Raises:
        UnknownForm: A column is missing.
    """
    return {text_of(row, "property"): value_of(row, value) for row in rows}
