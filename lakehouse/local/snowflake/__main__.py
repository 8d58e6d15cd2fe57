"""Runs the server on loopback until it is told to stop: `python -m lakehouse.local.snowflake`.

Environment: SNOWFLAKE_PORT, SNOWFLAKE_ACCOUNT, SNOWFLAKE_ADMIN_PASSWORD, LAKEHOUSE_ALLOWED_HOSTS, and what
`Lake.from_environment` needs. The data lies in snowflake/data of the state folder. GET /healthz answers when the server
is ready.
"""

from __future__ import annotations

import os
import sys

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
    """Start and serve."""
    if lacking := [name for name in REQUIRED if not os.environ.get(name)]:
        sys.exit(f"The Snowflake server was not started: set {', '.join(lacking)}")

    # Arrow's own allocator keeps what a load needed: 600 MB resident after 3 million rows, and 360 with malloc.
    os.environ.setdefault("ARROW_DEFAULT_MEMORY_POOL", "system")

    import uvicorn

    from lakehouse.local import guard
    from lakehouse.local.guard import Hosts
    from lakehouse.local.home import Home
    from lakehouse.local.snowflake.iceberg import Lake
    from lakehouse.local.snowflake.server import application

    port = int(os.environ["SNOWFLAKE_PORT"])
    app = application(
        account=os.environ["SNOWFLAKE_ACCOUNT"],
        admin_password=os.environ.pop("SNOWFLAKE_ADMIN_PASSWORD"),
        lake=Lake.from_environment(os.environ),
        folder=Home.default().folder("snowflake") / "data",
    )
    # Clients keep connections open: a stop does not wait for them.
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
