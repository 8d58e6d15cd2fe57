"""Other users of this machine: who is logged in, and what of the stack lets them in."""

from __future__ import annotations

from lakehouse.local import kafka
from lakehouse.local.home import Home


def logged_in() -> list[str]:
    """The names of the other users who are logged in now."""
    import psutil

    return sorted({user.name for user in psutil.users()} - {psutil.Process().username()})


def warning(home: Home) -> str:
    """What to tell the user of a stack while others are logged in; nothing while nobody is."""
    if not (others := logged_in()):
        return ""
    servers, remedy = ["the schema registry", "AWS's stand-in"], ""
    if not kafka.uses_sasl(home):
        servers.insert(0, "Kafka")
        remedy = " Run `lakehouse up --kafka-sasl` to have Kafka ask for a password."
    listed = f"{', '.join(servers[:-1])} and {servers[-1]}"
    return f"Logged in besides you: {', '.join(others)}. {listed} let in every user of this machine.{remedy}"
