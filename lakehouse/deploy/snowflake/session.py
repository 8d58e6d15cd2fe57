"""An administrator's session in a Snowflake account, and the comment that says which deployment an object is of."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

from lakehouse.core.errors import LakehouseError, OutcomeUnknownError, UnclearState, Unreachable
from resources import snowflake_sql as sql
from resources.secrets_manager import TAG
from resources.snowflake_integrations import redacted

if TYPE_CHECKING:
    from snowflake.connector.cursor import SnowflakeCursor
    from snowflake.connector.errors import Error

Row = dict[str, Any]

LOGGERS = ("connection", "cursor", "errors", "network")
"""Of the connector: those that quote statements, `network` at level ERROR when nothing answers."""


class Session(Protocol):
    """A session of the connector, or one that connects when it is first used."""

    @property
    def account(self) -> str:
        """The account identifier."""

    def cursor(self) -> SnowflakeCursor:
        """Open a cursor, as PEP 249 has it."""


@dataclass(frozen=True)
class Administrator:
    """An open session whose role may make what a deployment needs: ACCOUNTADMIN, or one that was granted as much."""

    session: Session = field(repr=False)
    deployment: str

    @property
    def comment(self) -> str:
        """What every object of the deployment carries."""
        return f"{TAG}={self.deployment}"

    @property
    def account(self) -> str:
        """The account identifier that the session was opened with."""
        return self.session.account

    def rows(self, statement: str) -> list[Row]:
        """The rows of a statement that changes nothing, by their columns' names.

        Raises: LakehouseError when Snowflake refuses; Unreachable.
        """
        from snowflake.connector.errors import OperationalError

        found, error = self._tried(statement)
        if isinstance(error, OperationalError):
            raise Unreachable("Snowflake", self.account, "host, port and network", error.msg) from error
        if error:
            raise self._refusal(statement, error) from error
        return found

    def change(self, statement: str) -> None:
        """Run a statement that changes something.

        Raises: LakehouseError when Snowflake refuses; OutcomeUnknownError when the answer was lost.
        """
        from snowflake.connector.errors import OperationalError

        _, error = self._tried(statement)
        shown = redacted(statement)
        # The connector's error has the statement: where that holds a secret, it is no cause to be told.
        cause = error if shown == statement else None
        if isinstance(error, OperationalError):
            raise OutcomeUnknownError(
                f"Snowflake at {self.account} gave no answer ({redacted(error.msg or '')}), so it may have carried "
                f"this out or not: {shown} Run it again, which looks first"
            ) from cause
        if error:
            raise self._refusal(statement, error) from cause

    def find(self, kind: str, *name: str) -> Row | None:
        """What SHOW says of the deployment's object of this name; None when there is none.

        Raises: UnclearState when it is not the deployment's; otherwise as `rows`.
        """
        found = [row for row in self.rows(sql.show(kind, *name)) if row["name"] == name[-1]]
        if found and found[0]["comment"] != self.comment:
            raise UnclearState(
                f"The Snowflake account {self.account} has a {kind.lower()} {'.'.join(name)} that is not of the "
                f"deployment '{self.deployment}': its comment is '{found[0]['comment']}', not '{self.comment}'. It was "
                f"left untouched. Rename or drop it, or choose another name of the deployment in lakehouse.yaml"
            )
        return found[0] if found else None

    @contextlib.contextmanager
    def acting_as(self, role: str, warehouse: str) -> Iterator[None]:
        """Within, what is made is owned by the role. The administrator's role must have inherited it.

        Parameters: the warehouse, because Snowflake makes Iceberg tables only in a session that has one.
        """
        [before] = self.rows("SELECT CURRENT_ROLE() AS ROLE")
        self.rows(sql.use_role(role))
        try:
            self.rows(sql.use_warehouse(warehouse))
            yield
        finally:
            self.rows(sql.use_role(before["ROLE"]))

    def _refusal(self, statement: str, error: Error) -> LakehouseError:
        return LakehouseError(
            f"Snowflake at {self.account} refused a statement of the administrator's session: "
            f"{redacted(error.msg or '')} The statement changed nothing. Check that the session's role is "
            f"ACCOUNTADMIN, or was granted as much: {redacted(statement)}"
        )

    def _tried(self, statement: str) -> tuple[list[Row], Error | None]:
        """The rows, or the connector's error. Returned: what is raised while an error is handled has it as context."""
        from snowflake.connector.errors import Error

        for name in LOGGERS:
            logging.getLogger(f"snowflake.connector.{name}").addFilter(_without_secrets)
        try:
            with self.session.cursor() as cursor:
                cursor.execute(statement)
                columns = [column.name for column in cursor.description]
                return [dict(zip(columns, row, strict=True)) for row in cursor.fetchall()], None
        except Error as error:
            return [], error


def _without_secrets(record: logging.LogRecord) -> bool:
    """A filter that lets all records pass, with a client's secret taken out."""
    said = record.getMessage()
    if (shown := redacted(said)) != said:
        record.msg, record.args = shown, ()
    return True
