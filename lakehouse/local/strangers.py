"""Other users of this machine, and the servers of the stack that are open to them."""

import psutil

from lakehouse.local.home import Home
from lakehouse.local.servers import kafka_server


def logged_in() -> list[str]:
    """Return the names of the other users who are logged in."""
    return sorted({user.name for user in psutil.users()} - {psutil.Process().username()})


def warning(home: Home) -> str:
    """Return a warning for the stack's user if other users are logged in, otherwise an empty string."""
    if not (others := logged_in()):
        return ""
    servers, remedy = ["the schema registry", "the local AWS"], ""
    if not kafka_server.uses_sasl(home):
        servers.insert(0, "Kafka")
        remedy = " Run `lakehouse up --kafka-sasl` to let Kafka require a password."
    listed = f"{', '.join(servers[:-1])} and {servers[-1]}"
    return f"Other users are logged in: {', '.join(others)}. {listed} accept every user of this machine.{remedy}"
