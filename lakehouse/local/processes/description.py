"""Descriptions of servers: their input, the environment variables they inherit, and probes of their readiness."""

import hashlib
import json
import os
import socket
import urllib.error
import urllib.request
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

from lakehouse.config import loader
from lakehouse.config.discovery import environment_name
from lakehouse.config.environment import references
from lakehouse.core.errors import LakehouseError
from lakehouse.local.home import Credentials, Home

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


@dataclass(frozen=True)
class Server:
    """Description of a server."""

    name: str
    command: tuple[str, ...]
    folder: Path
    """The server's working folder."""
    address: str
    """Address for users: a URL, host and port, or empty."""
    ready: Callable[[], bool]
    """Returns within seconds whether the server is ready; raises LakehouseError if it never will be."""
    env: Mapping[str, str] = field(repr=False)
    """Environment variables in addition to the inherited ones."""
    env_once: Mapping[str, str] = field(default_factory=dict, repr=False)
    """Like `env`, for values that each `up` generates: a running server with other values is not restarted."""
    inherits: Callable[[], Iterable[str]] = tuple
    """Returns names or patterns of the variables that the server inherits from `up` in addition to
    `EVERY_SERVER`. Called when the server starts."""
    ports: Mapping[str, int] = field(default_factory=dict)
    """Listening ports, by their names in `ports.USUAL`."""
    after: tuple[str, ...] = ()
    """Names of servers that must be ready before this one starts."""
    seconds: float = 300
    """Timeout for becoming ready. Seconds suffice on an idle machine; a busy one may need minutes."""
    prepare: Callable[[], None] = lambda: None
    """Called before the server starts; can be repeated after any interruption."""
    provision: Callable[[Mapping[str, str]], None] = lambda env: None
    """Called once the server is ready, with the server's environment; can be repeated."""

    @property
    def fingerprint(self) -> str:
        """Hash of everything that requires a restart when it changes."""
        return hashlib.sha256(json.dumps([self.command, sorted(self.env.items())]).encode()).hexdigest()


TIMEOUT_SECONDS = 2
"""Timeout of a probe. It is short, because callers repeat probes."""

# Without the proxies in the user's environment.
_opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))


def responds(url: str) -> bool:
    """Return whether an HTTP server responds with a status below 500."""
    try:
        _opener.open(url, timeout=TIMEOUT_SECONDS).close()
    except urllib.error.HTTPError as error:
        return error.code < 500
    except OSError:
        return False
    return True


def accepts_connections(path: Path) -> bool:
    """Return whether a process listens on a Unix socket."""
    with socket.socket(socket.AF_UNIX) as client:
        client.settimeout(TIMEOUT_SECONDS)
        try:
            client.connect(str(path))
        except OSError:
            return False
    return True


def request_json(url: str, body: Any, method: str = "POST", headers: Mapping[str, str] | None = None) -> Any:
    """Send a JSON request and return the JSON of the response.

    Raises:
        OSError: There is no response, or its status is an error (urllib.error.HTTPError).
    """
    headers = {"Content-Type": "application/json", **(headers or {})}
    request = urllib.request.Request(url, json.dumps(body).encode(), headers, method=method)  # noqa: S310 (own servers)
    with _opener.open(request, timeout=5) as response:
        return json.load(response)


# The user's environment may contain cloud credentials. A server that does not need them must not inherit them: they
# would be in its memory dumps, its child processes and its error reports.
EVERY_SERVER = (
    "PATH",
    "HOME",
    "USER",
    "LOGNAME",
    "LANG",
    "LANGUAGE",
    "LC_*",
    "TZ",
    "LD_LIBRARY_PATH",
    "DYLD_LIBRARY_PATH",
    "JAVA_TOOL_OPTIONS",
    "PYTHON*",
    "VIRTUAL_ENV",
    "SSL_CERT_*",
    "*_CA_BUNDLE",
)
"""Patterns of the names that every server inherits: paths of programs, libraries and certificates, and the language."""

EXCLUDED = ("PYTHONDONTWRITEBYTECODE",)
"""Names that no server inherits. Images of containers set this one; without bytecode files, each process of Dagster and
each run compiles Dagster again, which takes longer than the rest of its start."""

PROJECT_CODE = ("LAKEHOUSE_*", "DAGSTER_*", "XDG_*", "*_PROXY", "*_proxy")


def inherited_variables(patterns: Iterable[str]) -> dict[str, str]:
    """Return the variables of this process whose names match one of the patterns or of `EVERY_SERVER`, except those in
    `EXCLUDED`."""
    every = (*EVERY_SERVER, *patterns)
    names = [name for name in os.environ if any(fnmatchcase(name, pattern) for pattern in every)]
    return {name: os.environ[name] for name in names if name not in EXCLUDED}


def for_project_code() -> tuple[str, ...]:
    """Return the patterns for servers that run the project's code, including the variables that lakehouse.yaml refers
    to in this environment, and those in `LAKEHOUSE_PASS_ENV`."""
    return (*PROJECT_CODE, *_configured(), *for_transforms())


def for_transforms() -> tuple[str, ...]:
    """Return the names in `LAKEHOUSE_PASS_ENV` (separated by commas), which the user's transforms need."""
    return tuple(name.strip() for name in os.environ.get("LAKEHOUSE_PASS_ENV", "").split(",") if name.strip())


def _configured() -> list[str]:
    """Return the variables that the current environment of lakehouse.yaml refers to; none if the file is invalid,
    which the code that needs it reports."""
    try:
        systems = loader.load().environments.get(environment_name(), {})
    except LakehouseError:
        return []
    return [ref.env for settings in systems.values() for ref in references(settings.values())]
