"""What an administrator prepares in a new Snowflake account, for the local one: role, warehouse, database, user."""

from __future__ import annotations

from lakehouse.core.errors import LakehouseError, Unreachable
from lakehouse.local.snowflake.account import ADMIN_USER
from resources import snowflake_sql as sql

LOGIN_TIMEOUT_SECONDS = 15
NETWORK_TIMEOUT_SECONDS = 30
"""Without these the connector repeats a request for minutes."""


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
    """Make what is not there yet, and set the user's key; running it again changes nothing.

    Parameters: where the local server answers and the password it was started with; the names of what to make, in upper
    case; the base64 body of the user's PEM public key (Snowflake's RSA_PUBLIC_KEY).
    Raises: Unreachable when the server does not answer; LakehouseError when it refuses the password or a statement.
    """
    import snowflake.connector
    from snowflake.connector.errors import DatabaseError, OperationalError

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
    try:
        with snowflake.connector.connect(
            account=account,
            host=host,
            port=port,
            protocol="http",
            user=ADMIN_USER,
            password=admin_password,
            login_timeout=LOGIN_TIMEOUT_SECONDS,
            network_timeout=NETWORK_TIMEOUT_SECONDS,
            socket_timeout=NETWORK_TIMEOUT_SECONDS,
            platform_detection_timeout_seconds=0,
        ) as connection:
            for statement in statements:
                connection.cursor().execute(statement)
    except OperationalError as error:
        raise Unreachable(
            "The local Snowflake server", f"{host}:{port}", "its log, and that the stack is up", error.msg
        ) from error
    except DatabaseError as error:
        raise LakehouseError(
            f"The local Snowflake server at {host}:{port} could not be prepared: {error.msg}. What was made before"
            " stays. Stop the stack and start it again: the server begins empty"
        ) from error
