"""A client of Snowflake that manages Iceberg tables over AWS Glue, or a database that is linked to a REST catalog."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import dagster as dg
from pydantic import Field, PrivateAttr

from lakehouse.core.errors import LakehouseError, translate
from lakehouse.core.tables import naming
from resources.aws.secret_reader import read_secret_fields
from resources.snowflake import sql
from resources.snowflake.session import (
    FailedStatement,
    Parse,
    R,
    Row,
    StatementRunner,
    by_column,
    connect,
    dagster_application,
    json_object,
    location,
    parsed,
    private_key,
    single_value,
    text_of,
    unreachable,
    value_of,
)

if TYPE_CHECKING:
    from snowflake.connector import SnowflakeConnection
    from snowflake.connector.errors import Error

REFRESH_TIMEOUT_SECONDS = 300
"""Limit for one request, which may be a long refresh."""

ATTEMPTS = 3
"""Number of counts of a table's rows until one is not interrupted by a refresh."""

DOES_NOT_EXIST = (2003, 2043)
"""Snowflake's error numbers for an object that does not exist, or that the role may not access."""


GLUE_SETTINGS = ("aws_role_arn", "glue_catalog_id", "region")
"""Settings that tables over Glue need."""
LINKED = "linked_catalog"
"""The setting in place of those."""


def link_faults(settings: Mapping[str, object]) -> Iterator[tuple[str | tuple[()], str]]:
    """Yield the settings that are missing for tables over Glue, or that a linked database does not have."""
    if not settings.get(LINKED):
        if missing := [name for name in GLUE_SETTINGS if name not in settings]:
            yield (), f"{', '.join(missing)} missing. Add it, or {{env: NAME}}; or `{LINKED}` over a REST catalog"
        return
    for name in (*GLUE_SETTINGS, "external_volume", "tableflow_external_volume", "catalog_integration"):
        if settings.get(name):
            yield name, f"it has no effect with `{LINKED}`, whose REST catalog issues the credentials. Remove it"


class DoesNotExist(LakehouseError):
    """The object does not exist, or the role may not access it."""


@dataclass(frozen=True)
class TableState:
    """The Iceberg metadata file that a table in Snowflake shows, and the number of its rows."""

    metadata_location: str
    row_count: int


@dataclass(frozen=True)
class SnowflakeLogin:
    """The credentials of a user."""

    account: str
    """Account identifier."""
    user: str
    """Login name."""
    role: str
    """Role of the session."""
    key: Mapping[str, str] = field(repr=False)
    """Setting with the private key or its path."""
    key_source: str
    """Location of the key, for messages."""

    def pem(self) -> bytes:
        """Return the private key in its stored format."""
        path = self.key.get("private_key_path")
        return Path(path).read_bytes() if path else self.key["private_key"].encode()


class Snowflake(dg.ConfigurableResource):
    """An account with one user, who logs in by key pair. Nothing connects before a method is called."""

    ONE_OF: ClassVar = ("private_key_path", "secret")
    """Settings of which one is required."""

    FAULTS: ClassVar = staticmethod(link_faults)
    """Yields the faults of settings that depend on each other."""

    account: str = Field("", description="Account identifier, as `organization-account`.")
    user: str = Field("", description="Login name of a user with TYPE = SERVICE.")
    private_key_path: str = Field("", description="PEM file with the user's private key (PKCS #8, unencrypted).")
    role: str = Field("", description="Role of the user's sessions.")
    secret: str = Field(
        "",
        description="A secret in AWS Secrets Manager with account, user, private_key and role, in place of these four.",
    )
    role_arn: str = Field(default="", description="IAM role to assume to read secrets of AWS Secrets Manager.")
    warehouse: str = Field(description="Warehouse that runs the queries of the checks.")
    database: str = Field(description="Database of the Iceberg tables.")
    linked_catalog: str = Field(
        "",
        description="Catalog integration of the REST catalog to which the database is linked, in place of the settings "
        "for tables over Glue.",
    )
    aws_role_arn: str = Field("", description="IAM role that Snowflake assumes to read the tables' files and Glue.")
    glue_catalog_id: str = Field("", description="AWS account that owns the Glue catalog.")
    region: str = Field("", description="AWS region of the Glue catalog.")
    external_volume: str = Field("LAKEHOUSE_VOLUME", description="Name of the external volume.")
    tableflow_external_volume: str = Field(
        "", description="Name of the external volume over the bucket of Tableflow's tables, if it is another one."
    )
    catalog_integration: str = Field("LAKEHOUSE_GLUE", description="Name of the catalog integration.")
    host: str | None = Field(None, description="Address, if it is not the account's own.")
    port: int | None = Field(None, description="Port, if it is not 443.")
    protocol: str | None = Field(None, description="`http` for the local server only.")

    _session: Any = PrivateAttr(None)

    @property
    def account_identifier(self) -> str:
        """Account identifier."""
        if not self.secret:
            return self.account
        return read_secret_fields(self.secret, "account", role_arn=self.role_arn)["account"]

    def login(self) -> SnowflakeLogin:
        """Return the credentials of the user."""
        if self.secret:
            names = "account", "user", "role", "private_key"
            fields = read_secret_fields(self.secret, *names, role_arn=self.role_arn)
            key = {"private_key": fields["private_key"]}
            return SnowflakeLogin(fields["account"], fields["user"], fields["role"], key, f"the secret '{self.secret}'")
        if not Path(self.private_key_path).is_file():
            raise LakehouseError(
                f"The private key of Snowflake user {self.user} is not at {self.private_key_path}. No login was "
                "attempted. Correct private_key_path (SNOWFLAKE_PRIVATE_KEY_PATH)"
            )
        return SnowflakeLogin(
            self.account, self.user, self.role, {"private_key_path": self.private_key_path}, self.private_key_path
        )

    @contextlib.contextmanager
    def connect(self) -> Iterator[SnowflakeConnection]:
        """Provide a session with autocommit, which is closed at the end unless `keep_session` is active."""
        if self._session is not None:
            yield self._session
            return
        with contextlib.closing(self._open()) as connection:
            yield connection

    @contextlib.contextmanager
    def keep_session(self) -> Iterator[None]:
        """Use one session for all calls in the body, by one thread: a login takes longer than most statements."""
        with self.connect() as self._session:
            try:
                yield
            finally:
                self._session = None

    def query(self, statement: str, params: Sequence[Any] = ()) -> tuple[list[str], list[tuple[Any, ...]]]:
        """Run one statement and fetch all its rows.

        Args:
            statement: The statement, with `?` for each value of `params`.
            params: Values that the server binds.

        Returns:
            The column names, and the rows.
        """
        with self.connect() as connection:
            return self._run(connection, statement, params)

    def ensure_account_objects(self, warehouse_location: str) -> None:
        """Create the external volume and the catalog integration, if they do not exist.

        Args:
            warehouse_location: The s3:// URI of all tables.
        """
        volume = sql.create_external_volume(
            self.external_volume, location=warehouse_location, role_arn=self.aws_role_arn
        )
        integration = sql.create_catalog_integration(
            self.catalog_integration, role_arn=self.aws_role_arn, catalog_id=self.glue_catalog_id, region=self.region
        )
        with self.connect() as connection:
            self._ensure(connection, volume, "EXTERNAL VOLUME", self.external_volume)
            self._ensure(connection, integration, "CATALOG INTEGRATION", self.catalog_integration)

    def ensure_linked_database(self, namespace: str) -> None:
        """Create the database over the REST catalog, read-only, if it does not exist.

        Args:
            namespace: Namespace of the catalog whose tables the database has.
        """
        creation = sql.create_linked_database(self.database, integration=self.linked_catalog, namespace=namespace)
        with self.connect() as connection:
            self._ensure(connection, creation, "DATABASE", self.database)

    def link_failures(self, namespace: str, table: str) -> list[str]:
        """Return why Snowflake could not read the catalog of the linked database, or this table; empty if it could.

        The query needs no warehouse.
        """
        name = f"{namespace}.{table}"

        def failures(rows: list[Row]) -> list[str]:
            state = json_object(single_value(rows, str))
            is_failed = text_of(state, "executionState") == "FAILED"
            reasons = [str(state.get("failedExecutionStateReason"))] if is_failed else []
            details = state.get("failureDetails") or []
            return reasons + [str(one["errorMessage"]) for one in details if one["qualifiedEntityName"] == name]

        with self.connect() as connection:
            return self._read(connection, sql.link_status(self.database), failures)

    def ensure_iceberg_table(
        self, schema: str, table: str, glue_database: str, glue_table: str, *, volume: str = "", comment: str = ""
    ) -> None:
        """Create the schema and the table over its Glue registration, if they do not exist.

        A new table shows Glue's current snapshot; an existing one is unchanged until `refresh`.

        Args:
            schema: Schema in Snowflake.
            table: Table in Snowflake.
            glue_database: Database in Glue.
            glue_table: Table in Glue.
            volume: External volume over its files; if empty, that of Spark's tables.
            comment: Comment on a new table.
        """
        qualified_schema = self.database, self.stored_name(schema)
        with self.connect() as connection:
            self._ensure(connection, sql.create_schema(*qualified_schema), "SCHEMA", *qualified_schema)
            self._run(
                connection,
                sql.create_iceberg_table(
                    *self._name(schema, table),
                    volume=volume or self.external_volume,
                    integration=self.catalog_integration,
                    namespace=glue_database,
                    catalog_table=glue_table,
                    comment=comment,
                ),
            )

    def disable_auto_refresh(self, schema: str, table: str) -> None:
        """Stop Snowflake's own refreshes of the table, so that only `refresh` moves it."""
        self.query(sql.disable_auto_refresh(*self._name(schema, table)))

    def refresh(self, schema: str, table: str) -> None:
        """Move a table without automatic refreshes to Glue's current snapshot and schema."""
        self.query(sql.refresh_iceberg_table(*self._name(schema, table)))

    def metadata_location(self, schema: str, table: str) -> str | None:
        """Return the metadata file that the table shows, or None if the table does not exist or is not accessible.

        The query needs no warehouse, so a call every minute costs no compute.
        """
        with self.connect() as connection, contextlib.suppress(DoesNotExist):
            return self._metadata_location(connection, self._name(schema, table))
        return None

    def table_state(self, schema: str, table: str) -> TableState | None:
        """Return the state of the table, or None if the table does not exist or is not accessible.

        The metadata file contains the snapshot's id.
        """
        name = self._name(schema, table)
        with self.connect() as connection, contextlib.suppress(DoesNotExist):
            before = self._metadata_location(connection, name)
            for _ in range(ATTEMPTS):
                rows = self._read(connection, sql.count_rows(*name), lambda rows: single_value(rows, int))
                after = self._metadata_location(connection, name)
                if after == before:
                    return TableState(after, rows)
                before = after
            raise LakehouseError(
                f"Snowflake's table {'.'.join(name)} was refreshed during each of {ATTEMPTS} counts of its rows. "
                f"Nothing was compared. Run the check again"
            )
        return None

    def table_comment(self, schema: str, table: str) -> str | None:
        """Return the comment of the Iceberg table, or None if the table does not exist or is not accessible."""
        database, *names = self._name(schema, table)

        def comments(rows: list[Row]) -> list[str]:
            # LIKE ignores case, and `_` matches any character.
            tables = [row for row in rows if [text_of(row, "schema_name"), text_of(row, "name")] == names]
            return [value_of(row, "comment") or "" for row in tables]

        with self.connect() as connection, contextlib.suppress(DoesNotExist):
            return next(iter(self._read(connection, sql.show("ICEBERG TABLE", database, names[-1]), comments)), None)
        return None

    def stored_name(self, name: str) -> str:
        """Return the name of a schema, table or column in Snowflake. A linked database has those of the catalog."""
        return name if self.linked_catalog else naming.snowflake_name(name)

    def drop_iceberg_table(self, schema: str, table: str) -> None:
        """Drop the table in Snowflake; Glue and the files are unchanged."""
        self.query(sql.drop("ICEBERG TABLE", *self._name(schema, table)))

    def _open(self) -> SnowflakeConnection:
        login = self.login()

        def unreadable(error: ValueError) -> LakehouseError:
            return LakehouseError(
                f"{login.key_source} is not a readable PEM private key ({error}). No login was attempted."
                " Correct private_key_path (SNOWFLAKE_PRIVATE_KEY_PATH)"
            )

        def refused(error: Error) -> LakehouseError:
            return LakehouseError(
                f"Snowflake at {self._where} refused user {login.user} with role {login.role}: {error.msg}. The login"
                f" changed nothing. Check that the public key of {login.key_source} is the user's (DESC USER:"
                " RSA_PUBLIC_KEY_FP), that the role is granted to the user, and this machine's clock"
            )

        with translate({ValueError: unreadable}):
            key = private_key(login.pem())
        return connect(
            account=login.account,
            user=login.user,
            address=self._address,
            refused=refused,
            network_timeout=REFRESH_TIMEOUT_SECONDS,
            private_key=key,
            role=login.role,
            warehouse=self.warehouse,
            database=self.database,
            autocommit=True,
            paramstyle="qmark",
            application=dagster_application(),
        )

    def _ensure(self, connection: SnowflakeConnection, creation: str, kind: str, *name: str) -> None:
        """Create an object that SHOW does not list.

        A role that only has USAGE on objects of a deployment may not execute CREATE ... IF NOT EXISTS.
        """
        names = self._read(connection, sql.show(kind, *name), lambda rows: [text_of(row, "name") for row in rows])
        if name[-1] not in names:
            self._run(connection, creation)

    def _metadata_location(self, connection: SnowflakeConnection, name: tuple[str, str, str]) -> str:
        return self._read(
            connection,
            sql.iceberg_table_information(*name),
            lambda rows: text_of(json_object(single_value(rows, str)), "metadataLocation"),
        )

    def _name(self, schema: str, table: str) -> tuple[str, str, str]:
        return self.database, self.stored_name(schema), self.stored_name(table)

    def _run(
        self, connection: SnowflakeConnection, statement: str, params: Sequence[Any] = ()
    ) -> tuple[list[str], list[tuple[Any, ...]]]:
        where = self._where

        def refused(failed: FailedStatement) -> LakehouseError:
            login = self.login()
            kind = DoesNotExist if failed.errno in DOES_NOT_EXIST else LakehouseError
            return kind(
                f"Snowflake at {where} refused a statement of user {login.user}, role {login.role}: {failed.msg} The "
                f"statement changed nothing: {failed.text}"
            )

        def lost(failed: FailedStatement) -> LakehouseError:
            return unreachable(where, failed, "The statement may have been executed or not")

        return StatementRunner(connection, where, refused, lost).change(statement, params)

    def _read(self, connection: SnowflakeConnection, statement: str, parse: Parse[R]) -> R:
        return parsed(self._where, statement, by_column(*self._run(connection, statement)), parse)

    @property
    def _address(self) -> dict[str, Any]:
        return {"host": self.host, "port": self.port, "protocol": self.protocol}

    @property
    def _where(self) -> str:
        # An account in a secret is not looked up for a message about an address.
        return location("" if self.host else self.account_identifier, self._address)
