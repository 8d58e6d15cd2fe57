"""The local Snowflake server (lakehouse.local.snowflake), whose account exists in memory only."""

import secrets
import sys
from collections.abc import Mapping

from lakehouse.local.http import guard
from lakehouse.local.processes import probe
from lakehouse.local.processes.process import Server
from lakehouse.local.processes.server_context import Context
from lakehouse.local.snowflake import bootstrap


def server(context: Context) -> Server:
    """Describe the server. Its setup creates role, warehouse, database and user with key, as an administrator would.

    The administrator's password is generated for each process and exists in its environment only.
    """
    environment = context.environment

    def provision(env: Mapping[str, str]) -> None:
        bootstrap.ensure(
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
        command=(sys.executable, "-m", "lakehouse.local.snowflake"),
        folder=context.home.folder("snowflake"),
        address=context.url("snowflake"),
        ready=lambda: probe.responds(f"{context.url('snowflake')}/healthz"),
        env={**environment, **guard.variables()},
        env_once={"SNOWFLAKE_ADMIN_PASSWORD": secrets.token_urlsafe(24)},
        ports={"snowflake": context.ports["snowflake"]},
        provision=provision,
    )
