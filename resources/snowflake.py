"""Snowflake: Iceberg tables over AWS Glue, through dagster-snowflake's resource and the real connector."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import dagster as dg
from pydantic import Field, PrivateAttr

from lakehouse.core import naming
from lakehouse.core.errors import LakehouseError, Unreachable
from resources import snowflake_integrations as integrations
from resources import snowflake_sql as sql
from resources.secret import values

if TYPE_CHECKING:
    from snowflake.connector import SnowflakeConnection

LOGIN_TIMEOUT_SECONDS = 10
NETWORK_TIMEOUT_SECONDS = 300
"""Of one request, and a refresh can be long. Without these two the connector repeats itself for minutes."""


DOES_NOT_EXIST = (2003, 2043)
"""Snowflake's error numbers for an object that does not exist, or that the role may not see."""


class DoesNotExist(LakehouseError):
    """Snowflake knows no such object, or does not show it to this role."""


@dataclass(frozen=True)
class TableState:
    """What Snowflake's table shows: the Iceberg metadata it is pinned to, and how many rows that has."""

    metadata_location: str
    row_count: int


@dataclass(frozen=True)
class Login:
    """Who enters an account. `key` is the argument of dagster-snowflake that has the key, `key_from` where it is."""

    account: str
    user: str
    role: str
    key: Mapping[str, str] = field(repr=False)
    key_from: str


class Snowflake(dg.ConfigurableResource):
    """An account, entered as one user with a key pair. Nothing connects before a method is called."""

    EITHER: ClassVar = ("private_key_path", "secret")
    """Settings of which one has to be given."""

    account: str = Field("", description="Account identifier, as `organization-account`.")
    user: str = Field("", description="Login name of a user with TYPE = SERVICE.")
    private_key_path: str = Field("", description="PEM file with the user's private key (PKCS #8, unencrypted).")
    role: str = ""
    secret: str = Field(
        "",
        description="A secret in AWS Secrets Manager with account, user, private_key and role, in place of the four.",
    )
    warehouse: str
    database: str
    aws_role_arn: str = Field(description="IAM role that Snowflake assumes to read the tables' files and Glue.")
    glue_catalog_id: str = Field(description="AWS account that owns the Glue catalog.")
    region: str = Field(description="AWS region of the Glue catalog.")
    external_volume: str = Field("LAKEHOUSE_VOLUME", description="Name of the external volume.")
    catalog_integration: str = Field("LAKEHOUSE_GLUE", description="Name of the catalog integration.")
    host: str | None = Field(None, description="Address, if it is not the account's own.")
    port: int | None = Field(None, description="Port, if it is not 443.")
    protocol: str | None = Field(None, description="`http` for the local server only.")

    _session: Any = PrivateAttr(None)

    @property
    def account_identifier(self) -> str:
        """The account.

        Raises: ConfigError, Unreachable where a secret is to have it.
        """
        return values(self.secret, "account")["account"] if self.secret else self.account

    def login(self) -> Login:
        """Who enters, and with what.

        Raises: LakehouseError when there is no key; ConfigError, Unreachable where a secret is to have it.
        """
        if self.secret:
            found = values(self.secret, "account", "user", "role", "private_key")
            key = {"private_key": found["private_key"]}
            return Login(found["account"], found["user"], found["role"], key, f"the secret '{self.secret}'")
        if not Path(self.private_key_path).is_file():
            raise LakehouseError(
                f"The private key of Snowflake user {self.user} is not at {self.private_key_path}. Nothing was changed."
                " Correct private_key_path (SNOWFLAKE_PRIVATE_KEY_PATH)"
            )
        return Login(
            self.account, self.user, self.role, {"private_key_path": self.private_key_path}, self.private_key_path
        )

    @contextlib.contextmanager
    def connect(self) -> Iterator[SnowflakeConnection]:
        """A session, closed at the end whatever happens, or the one of `staying`. Each statement commits by itself.

        Raises: Unreachable when nothing answers; LakehouseError when the key or the role is refused, or a statement in
        the body fails.
        """
        if self._session is not None:
            yield self._session
            return
        # Importing it costs seconds (it brings Snowpark), so not before it is needed.
        from dagster_snowflake import SnowflakeResource
        from snowflake.connector.errors import DatabaseError, OperationalError

        login = self.login()
        key: dict[str, Any] = dict(login.key)
        try:
            resource = SnowflakeResource(
                account=login.account,
                user=login.user,
                role=login.role,
                **key,
                warehouse=self.warehouse,
                database=self.database,
                autocommit=True,
                login_timeout=LOGIN_TIMEOUT_SECONDS,
                network_timeout=NETWORK_TIMEOUT_SECONDS,
                paramstyle="qmark",
                additional_snowflake_connection_args=self._address(),
            )
            opened = contextlib.ExitStack()
            connection = opened.enter_context(resource.get_connection())
        except OperationalError as error:
            raise Unreachable("Snowflake", self._where, "account, host, port and network", error.msg) from error
        except ValueError as error:
            raise LakehouseError(
                f"{login.key_from} is not a PEM private key that can be read ({error}). Nothing was changed."
                " Correct private_key_path (SNOWFLAKE_PRIVATE_KEY_PATH)"
            ) from error
        except DatabaseError as error:
            raise LakehouseError(
                f"Snowflake at {self._where} refused user {login.user} with role {login.role}: {error.msg}. Nothing was"
                f" changed. Check that the public key of {login.key_from} is the user's (DESC USER:"
                " RSA_PUBLIC_KEY_FP), that the role is granted to the user, and this machine's clock"
            ) from error
        # dagster-snowflake leaves the session open when the body raises; closing it twice does no harm.
        with contextlib.closing(connection), opened:
            yield connection

    @contextlib.contextmanager
    def staying(self) -> Iterator[None]:
        """One session for all that is asked in the body, by one thread: a login takes longer than most statements.

        Raises: as `connect`.
        """
        with self.connect() as self._session:
            try:
                yield
            finally:
                self._session = None

    def query(self, statement: str, params: Sequence[Any] = ()) -> tuple[list[str], list[tuple[Any, ...]]]:
        """Run one statement and fetch all its rows.

        Parameters: `?` in the statement stands for a value of `params`, bound by the server.
        Returns: the columns' names, and the rows.
        Raises: as `connect`.
        """
        with self.connect() as connection:
            return self._run(connection, statement, params)

    def ensure_account_objects(self, warehouse_location: str) -> None:
        """Make the external volume and the catalog integration, where they are not there yet.

        Parameters: the s3:// URI under which all tables lie.
        Raises: as `connect`.
        """
        volume = sql.create_external_volume(
            self.external_volume, location=warehouse_location, role_arn=self.aws_role_arn
        )
        integration = integrations.create_catalog_integration(
            self.catalog_integration, role_arn=self.aws_role_arn, catalog_id=self.glue_catalog_id, region=self.region
        )
        with self.connect() as connection:
            self._ensure(connection, volume, "EXTERNAL VOLUME", self.external_volume)
            self._ensure(connection, integration, "CATALOG INTEGRATION", self.catalog_integration)

    def ensure_iceberg_table(self, schema: str, table: str, glue_database: str, glue_table: str) -> None:
        """Make the schema, and the table over its Glue registration, where they are not there yet.

        A new table shows the snapshot that Glue shows now; one that was there stays as it is until `refresh`.
        Raises: as `connect`.
        """
        within = self.database, naming.snowflake_name(schema)
        with self.connect() as connection:
            self._ensure(connection, sql.create_schema(*within), "SCHEMA", *within)
            self._run(
                connection,
                sql.create_iceberg_table(
                    *self._name(schema, table),
                    volume=self.external_volume,
                    integration=self.catalog_integration,
                    namespace=glue_database,
                    catalog_table=glue_table,
                ),
            )

    def take_over(self, schema: str, table: str) -> None:
        """Stop Snowflake's own refreshes of the table: from then on only `refresh` moves it.

        Raises: as `connect`.
        """
        with self.connect() as connection:
            self._run(connection, sql.stop_auto_refresh(*self._name(schema, table)))

    def refresh(self, schema: str, table: str) -> None:
        """Move a table that was taken over to the snapshot, and the schema, that Glue shows now.

        Raises: as `connect`.
        """
        with self.connect() as connection:
            self._run(connection, sql.refresh_iceberg_table(*self._name(schema, table)))

    def metadata_location(self, schema: str, table: str) -> str | None:
        """The metadata file that the table shows, or None when there is no such table that this role may see.

        No warehouse works for it, so it may be asked every minute while none is awake.
        Raises: as `connect`.
        """
        with self.connect() as connection, contextlib.suppress(DoesNotExist):
            _, [(information,)] = self._run(connection, sql.iceberg_table_information(*self._name(schema, table)))
            return str(json.loads(information)["metadataLocation"])
        return None

    def table_state(self, schema: str, table: str) -> TableState | None:
        """What the table shows, or None when there is no such table that this role may see.

        The snapshot's id is in the metadata file, which the caller can read.
        Raises: as `connect`.
        """
        name = self._name(schema, table)
        with self.connect() as connection, contextlib.suppress(DoesNotExist):
            _, [(information,)] = self._run(connection, sql.iceberg_table_information(*name))
            _, [(rows,)] = self._run(connection, sql.count_rows(*name))
            return TableState(json.loads(information)["metadataLocation"], int(rows))
        return None

    def drop_iceberg_table(self, schema: str, table: str) -> None:
        """Remove the table from Snowflake; Glue and the files stay as they are.

        Raises: as `connect`.
        """
        self.query(sql.drop("ICEBERG TABLE", *self._name(schema, table)))

    def _ensure(self, connection: SnowflakeConnection, creation: str, kind: str, *name: str) -> None:
        """Make an object that is not to be seen. Looked at first: a role that was only granted the use of what a
        deployment made may not even say CREATE ... IF NOT EXISTS."""
        columns, rows = self._run(connection, sql.show(kind, *name))
        if name[-1] not in [row[columns.index("name")] for row in rows]:
            self._run(connection, creation)

    def _name(self, schema: str, table: str) -> tuple[str, str, str]:
        return self.database, naming.snowflake_name(schema), naming.snowflake_name(table)

    def _run(
        self, connection: SnowflakeConnection, statement: str, params: Sequence[Any] = ()
    ) -> tuple[list[str], list[tuple[Any, ...]]]:
        from snowflake.connector.errors import Error, OperationalError

        try:
            with connection.cursor() as cursor:
                cursor.execute(statement, tuple(params) or None)
                return [column.name for column in cursor.description], cursor.fetchall()
        except OperationalError as error:
            raise Unreachable("Snowflake", self._where, "host, port and network", error.msg) from error
        except Error as error:
            login = self.login()
            kind = DoesNotExist if error.errno in DOES_NOT_EXIST else LakehouseError
            raise kind(
                f"Snowflake at {self._where} refused a statement of user {login.user}, role {login.role}: "
                + integrations.redacted(f"{error.msg} The statement changed nothing: {statement}")
            ) from error

    def _address(self) -> dict[str, Any]:
        given = {"host": self.host, "port": self.port, "protocol": self.protocol}
        # Otherwise the connector asks the metadata services of three clouds where it runs.
        return {"platform_detection_timeout_seconds": 0} | {key: value for key, value in given.items() if value}

    @property
    def _where(self) -> str:
        host = self.host or f"{self.account_identifier}.snowflakecomputing.com"
        return f"{host}:{self.port}" if self.port else host
