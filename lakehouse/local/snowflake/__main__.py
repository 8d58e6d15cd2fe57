"""`python -m lakehouse.local.snowflake`: the server on the loopback interface, until SIGTERM.

Environment: SNOWFLAKE_PORT, SNOWFLAKE_ACCOUNT, SNOWFLAKE_ADMIN_PASSWORD, LAKEHOUSE_ALLOWED_HOSTS, and the variables of
`Lake.from_environment`. The data is in snowflake/data of the state folder. GET /healthz succeeds when the server is
ready.
"""

import os
import sys
from pathlib import Path

import uvicorn

from lakehouse.local import guard
from lakehouse.local.guard import Hosts
from lakehouse.local.home import Home
from lakehouse.local.snowflake.iceberg import Lake
from lakehouse.local.snowflake.server import application

REQUIRED = (
    "SNOWFLAKE_PORT",
    "SNOWFLAKE_ACCOUNT",
    "SNOWFLAKE_ADMIN_PASSWORD",
    "AWS_ENDPOINT_URL",
    "AWS_REGION",
    "AWS_ACCESS_KEY_ID",
    "AWS_SECRET_ACCESS_KEY",
)


def main() -> None:
    """Serve until stopped."""
    if missing := [name for name in REQUIRED if not os.environ.get(name)]:
        sys.exit(f"The Snowflake server was not started: set {', '.join(missing)}")

    # Arrow's default allocator does not return memory: 600 MB resident after 3 million rows, and 360 with malloc.
    os.environ.setdefault("ARROW_DEFAULT_MEMORY_POOL", "system")

    port = int(os.environ["SNOWFLAKE_PORT"])
    app = application(
        account=os.environ["SNOWFLAKE_ACCOUNT"],
        admin_password=os.environ.pop("SNOWFLAKE_ADMIN_PASSWORD"),
        lake=Lake.from_environment(os.environ),
        # Relative, because fakesnow quotes no apostrophe in the path of the databases.
        folder=Path(os.path.relpath(Home.default().folder("snowflake") / "data")),
    )
    # Clients keep connections open: a graceful shutdown would wait for them without end.
    uvicorn.run(
        guard.asgi(app, Hosts.of(port)),
        host="127.0.0.1",
        port=port,
        access_log=False,
        log_level="warning",
        timeout_graceful_shutdown=2,
    )


if __name__ == "__main__":
    main()
