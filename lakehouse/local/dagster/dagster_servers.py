"""Dagster: a code server, which loads the definitions once for all, the webserver and the daemon."""

import os
import shutil
import sys
import time
from pathlib import Path

import yaml

from lakehouse.config import snapshots
from lakehouse.config.discovery import config_path, environment_name, project
from lakehouse.core.errors import LakehouseError
from lakehouse.local import guard
from lakehouse.local.dagster import ui_login
from lakehouse.local.dagster.ui_login import TOKEN_VARIABLE
from lakehouse.local.home import Home, write_atomically
from lakehouse.local.processes.description import (
    Context,
    Server,
    accepts_connections,
    for_project_code,
    request_json,
    responds,
)
from lakehouse.local.processes.process import run_tool

LOCATION = "lakehouse"
"""Name of the code location. It is a key of the sensors' persisted state."""


def home_folder(home: Home) -> Path:
    """Return the folder for DAGSTER_HOME."""
    return home.path / "dagster"


def code_server(context: Context) -> Server:
    """Describe the code server, which loads lakehouse.definitions, reloads them on request of the UI, and starts runs.

    Its clients can execute code as its user and it has no authentication, so it listens on a Unix socket only.
    """
    socket = _socket(context)
    definitions = ("-m", "lakehouse.definitions", "-d", str(project()), "--location-name", LOCATION)
    return Server(
        name="dagster-code",
        command=_dagster("dagster", "code-server", "start", "--socket", str(socket), *definitions),
        folder=project(),
        address=f"unix:{socket}",
        ready=lambda: accepts_connections(socket),  # it listens once the definitions are loaded
        env={**_env(context), snapshots.VARIABLE: ""},
        inherits=for_project_code,
        prepare=lambda: _prepare(context),
    )


def webserver(context: Context) -> Server:
    """Describe the webserver of the UI, which requires a login (lakehouse.local.dagster.webserver)."""
    url, port, token = context.url("dagster"), context.ports["dagster"], context.credentials.ui_token
    return Server(
        name="dagster",
        command=(sys.executable, "-m", "lakehouse.local.dagster.webserver", str(port), str(_workspace(context))),
        folder=project(),
        address=url,
        ready=lambda: responds(f"{url}/server_info") and _definitions_loaded(url, token),
        env={**_env(context), **guard.variables(), TOKEN_VARIABLE: token},
        inherits=for_project_code,
        ports={"dagster": port},
        after=("dagster-code",),
    )


def daemon(context: Context) -> Server:
    """Describe the daemon of sensors, schedules, automation and the run queue.

    It starts last, because it may start runs at once.
    """
    url, token = context.url("dagster"), context.credentials.ui_token
    started = 0.0

    def prepare() -> None:
        nonlocal started
        started = time.time()

    return Server(
        name="dagster-daemon",
        command=_dagster("dagster-daemon", "run", "-w", str(_workspace(context))),
        folder=project(),
        address="",
        ready=lambda: _daemons_healthy(url, token, started),
        env=_env(context),
        inherits=for_project_code,
        prepare=prepare,
        after=("kafka", "registry", "s3", "aws", "spark", "snowflake", "dagster"),
    )


def _dagster(tool: str, *arguments: str) -> tuple[str, ...]:
    return (str(Path(sys.executable).with_name(tool)), *arguments)


def _env(context: Context) -> dict[str, str]:
    # Dagster fails a run that its code server did not start within 60 s by default, which a busy laptop may exceed.
    timeout = {"DAGSTER_GRPC_TIMEOUT_SECONDS": os.environ.get("DAGSTER_GRPC_TIMEOUT_SECONDS", "180")}
    config = {"LAKEHOUSE_CONFIG": str(config_path())}
    return {**context.environment, **timeout, **config, "PYTHONUNBUFFERED": "1"}


def _socket(context: Context) -> Path:
    return context.home.sockets() / "dagster-code"


def _workspace(context: Context) -> Path:
    return context.home.path / "workspace.yaml"


def _prepare(context: Context) -> None:
    """Create the instance's databases, settings and workspace.

    Each of Dagster's processes would create the databases, and fail when two do so concurrently. So they are created
    before, in another folder, and moved.
    """
    folder, settings = home_folder(context.home), Path(__file__).with_name("dagster.yaml").read_text()
    if not folder.exists():
        fresh = context.home.folder("dagster.new")
        shutil.rmtree(fresh)
        write_atomically(fresh / "dagster.yaml", settings)
        command = _dagster("dagster", "instance", "info")
        run_tool("dagster-code", context.home, command, {"DAGSTER_HOME": str(fresh)})
        fresh.rename(folder)
    write_atomically(folder / "dagster.yaml", settings)
    shown = {"configuration": str(config_path()), "environment": environment_name()}
    server = {"socket": str(_socket(context)), "location_name": LOCATION, "additional_metadata": shown}
    write_atomically(_workspace(context), yaml.safe_dump({"load_from": [{"grpc_server": server}]}))


def _definitions_loaded(url: str, token: str) -> bool:
    """Return whether the webserver has loaded the definitions."""
    query = """{ workspaceOrError { ... on Workspace { locationEntries { loadStatus
        locationOrLoadError { ... on PythonError { message } } } } } }"""
    entries = _graphql(url, token, query).get("workspaceOrError", {}).get("locationEntries", [])
    for entry in entries:
        if message := (entry["locationOrLoadError"] or {}).get("message"):
            raise LakehouseError(
                f"Dagster cannot load lakehouse.definitions: {message.strip()}. It was not started. Run `lakehouse "
                f"validate`"
            )
    return bool(entries) and all(entry["loadStatus"] == "LOADED" for entry in entries)


def _daemons_healthy(url: str, token: str, since: float) -> bool:
    """Return whether each daemon is healthy with a heartbeat after `since` (Unix seconds). Older heartbeats are of an
    earlier process, and may look healthy."""
    query = "{ instance { daemonHealth { allDaemonStatuses { required healthy lastHeartbeatTime } } } }"
    daemons = _graphql(url, token, query).get("instance", {}).get("daemonHealth", {}).get("allDaemonStatuses", [])
    required = [daemon for daemon in daemons if daemon["required"]]
    return bool(required) and all(daemon["healthy"] and daemon["lastHeartbeatTime"] > since for daemon in required)


def _graphql(url: str, token: str, query: str) -> dict:
    try:
        response = request_json(f"{url}/graphql", {"query": query}, headers=ui_login.bearer(token))
        return response.get("data") or {}
    except OSError:
        return {}
