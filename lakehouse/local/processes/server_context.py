"""The input for the descriptions of servers."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from lakehouse.local.credentials import Credentials
from lakehouse.local.home import Home

LOOPBACK = "127.0.0.1"


@dataclass(frozen=True)
class Context:
    """One stack: its state folder, ports, credentials, and the environment variables of its clients."""

    home: Home
    ports: Mapping[str, int]
    credentials: Credentials = field(repr=False)
    environment: Mapping[str, str] = field(repr=False)

    def url(self, server: str) -> str:
        return f"http://{LOOPBACK}:{self.ports[server]}"
