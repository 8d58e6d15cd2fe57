"""The local Snowflake server (lakehouse.local.snowflake), whose account exists in memory only, and its setup."""

from __future__ import annotations

import secrets
import sys
from collections.abc import Mapping
from contextlib import closing
from typing import TYPE_CHECKING

from lakehouse.core.errors import LakehouseError
from lakehouse.local import guard
from lakehouse.local.processes.description import Context, Server, responds
from lakehouse.local.snowflake import ADMIN_USER
from resources.snowflake import sql
from resources.snowflake.session import connect, location, session_errors

if TYPE_CHECKING:
    from snowflake.connector.errors import Error


def server(context: Context) -> Server:
    """Describe the server. Its setup creates role, warehouse, database and user with key, as an administrator would.

    The administrator's password is generated for each process and exists in its environment only.
    """
    environment = context.environment

    def provision(env: Mapping[str, str]) -> None:
        ensure(
            host=environment["SNOWFLAKE_HOST"],
            port=context.ports["snowflake"],
            account=environment["SNOWFLAKE_ACCOUNT"],
            admin_password=env["SNOWFLAKE_ADMIN_PASSWORD"],
            user=environment["SNOWFLAKE_USER"],
            role=environment["SNOWFLAKE_ROLE"],
            warehouse=environment["SNOWFLAKE_WAREHOUSE"],
            database=environment["SNOWFLAKE_DATABASE"],
            public_key=context.credentials.snowflake_public_key,
        )

    return Server(
        name="snowflake",
        command=(sys.executable, "-m", "lakehouse.local.snowflake.server"),
        folder=context.home.folder("snowflake"),
        address=context.url("snowflake"),
        ready=lambda: responds(f"{context.url('snowflake')}/healthz"),
        env={**environment, **guard.variables()},
        env_once={"SNOWFLAKE_ADMIN_PASSWORD": secrets.token_urlsafe(24)},
        ports={"snowflake": context.ports["snowflake"]},
        provision=provision,
    )


NETWORK_TIMEOUT_SECONDS = 30


def ensure(
    *,
    host: str,
    port: int,
    account: str,
    admin_password: str,
    user: str,
    role: str,
    warehouse: str,
    database: str,
    public_key: str,
) -> None:
    """Create the missing objects and set the user's key; repeating it changes nothing.

    Args:
        host: Host of the local server.
        port: Port of the local server.
        account: The account's name.
        admin_password: The password that the server was started with.
        user: Name of the user, in upper case like the following names.
        role: Name of the role.
        warehouse: Name of the warehouse.
        database: Name of the database.
        public_key: Base64 body of the user's PEM public key (Snowflake's RSA_PUBLIC_KEY).
    """
    address = {"host": host, "port": port, "protocol": "http"}
    statements = [
        sql.create_role(role),
        sql.grant_role_to_role(role, "SYSADMIN"),
        sql.create_warehouse(warehouse),
        sql.create_database(database),
        sql.create_service_user(user, role=role, warehouse=warehouse),
        sql.set_public_key(user, public_key),
        sql.grant_role_to_user(role, user),
        *sql.grants(role, warehouse=warehouse, database=database),
    ]

    def refused(error: Error) -> LakehouseError:
        return LakehouseError(
            f"The local Snowflake server at {host}:{port} could not be set up: {error.msg}. Objects created before"
            " remain. Run `lakehouse down` and `lakehouse up`: the server starts empty"
        )

    session = connect(
        account=account,
        user=ADMIN_USER,
        address=address,
        refused=refused,
        network_timeout=NETWORK_TIMEOUT_SECONDS,
        socket_timeout=NETWORK_TIMEOUT_SECONDS,
        password=admin_password,
    )
    with closing(session), session_errors(location(account, address), refused):
        for statement in statements:
            session.cursor().execute(statement)
