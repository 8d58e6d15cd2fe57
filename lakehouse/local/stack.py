"""Start, stop and status of the embedded stack. All return plain data, which the command line displays."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Collection, Mapping
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass
from graphlib import TopologicalSorter
from pathlib import Path
from threading import Event
from typing import TYPE_CHECKING

from lakehouse.config.discovery import config_path, project
from lakehouse.core.errors import LakehouseError
from lakehouse.core.waiting import waiting_for
from lakehouse.local import jars
from lakehouse.local.client_environment import context as context_of
from lakehouse.local.dagster import dagster_servers
from lakehouse.local.home import Home, explain_full_disk, write_atomically
from lakehouse.local.java import archive_own_classes
from lakehouse.local.processes import ports, process
from lakehouse.local.processes.description import Context, Server, for_project_code
from lakehouse.local.processes.process import Running
from lakehouse.local.servers import aws, kafka_server, registry_server, snowflake_server, spark_server

if TYPE_CHECKING:
    from rich.progress import Progress


@dataclass(frozen=True)
class ServerState:
    """The state of a server, for users."""

    name: str
    state: str
    """`ready`, `not ready` (the process runs, but does not serve) or `stopped`."""
    address: str
    log: Path
    pid: int | None = None
    resident_bytes: int = 0
    """Memory of all its processes together."""
    seconds: float = 0
    """Time that `up` needed to start the server; 0 if it was running before."""


def _datagen(context: Context) -> Server:
    """Describe the producer of the topics whose source is Datagen."""
    return Server(
        name="datagen",
        command=(sys.executable, "-m", "lakehouse.local.servers.datagen_process"),
        folder=project(),
        address="",
        ready=lambda: True,
        env={**context.environment, "LAKEHOUSE_CONFIG": str(config_path()), "PYTHONUNBUFFERED": "1"},
        inherits=for_project_code,
        after=("kafka", "registry"),
    )


def _logs(context: Context) -> Server:
    """Describe the process that keeps the logs of the other servers small."""
    folder = context.home.folder("logs")
    return Server(
        name=LOGS,
        command=(sys.executable, "-P", "-m", "lakehouse.local.processes.logs", str(folder)),
        folder=folder,
        address="",
        ready=lambda: True,
        env={},
    )


LOGS = "logs"

SERVERS: Mapping[str, Callable[[Context], Server]] = {
    LOGS: _logs,
    "kafka": kafka_server.server,
    "registry": registry_server.server,
    "s3": aws.s3proxy,
    "aws": aws.moto,
    "spark": spark_server.server,
    "snowflake": snowflake_server.server,
    "datagen": _datagen,
    "dagster-code": dagster_servers.code_server,
    "dagster": dagster_servers.webserver,
    "dagster-daemon": dagster_servers.daemon,
}
"""Descriptions of all servers, by name, in a possible start order."""

STOPPED_FIRST = ({"dagster-daemon", "dagster", "datagen"}, {"dagster-code"})
"""Servers that are stopped before the others, all of a set at the same time: those that start runs or produce records,
then the code server with its runs."""


def up(
    home: Home,
    names: Collection[str] = tuple(SERVERS),
    progress: Progress | None = None,
    on_ready: Callable[[ServerState], None] = lambda state: None,
    on_start: Callable[[Collection[str]], None] = lambda starting: None,
    kafka_sasl: bool | None = None,
) -> list[ServerState]:
    """Start the servers that are not running yet, and wait until all are ready.

    If one cannot be started, those that this call started are stopped again.

    Args:
        home: The state folder.
        names: The servers to start besides `logs`.
        progress: Display of downloads.
        on_ready: Called for each server when it is ready.
        on_start: Called with the names of the servers that are being started, whenever these change.
        kafka_sasl: Whether Kafka requires a password from now on; None keeps the current setting.
    """
    home.require_usable()
    with explain_full_disk(home.path), home.exclusive(), process.default_signals():
        jars.fetch(names, progress)
        archive_own_classes()
        if kafka_sasl is not None:
            kafka_server.use_sasl(home, kafka_sasl)
        before = process.running(home)
        with ports.chosen(home, _ports_in_use(before)) as port_by_name:
            context = context_of(home, port_by_name)
            write_atomically(_chosen_file(home), json.dumps(sorted({LOGS, *names, *before})))
            home.catalog.touch(mode=0o600)  # the mode must not depend on the process that uses it first
            starter = _Starter(home, before, on_ready, on_start)
            try:
                return starter.start(
                    [describe(context) for name, describe in SERVERS.items() if name in {LOGS, *names}]
                )
            except BaseException:
                _stop(home, starter.started)
                raise


def down(home: Home) -> list[str]:
    """Stop every server of a state folder, even after `up` was killed.

    Returns:
        The names of the servers that were running.
    """
    if not home.path.exists():
        return []
    with home.exclusive():
        names = set(process.running(home))
        _stop(home, names)
        home.remove_sockets()
    return sorted(names)


def chosen(home: Home) -> set[str]:
    """Return the names of the servers that the last `up` started, or that ran before it; all if that is not known."""
    try:
        return {*json.loads(_chosen_file(home).read_text())}
    except (OSError, ValueError):
        return {*SERVERS}


def _chosen_file(home: Home) -> Path:
    return home.path / "chosen.json"


def status(home: Home) -> list[ServerState]:
    """Return the state of every server, running or not. The running ones are probed."""
    running = process.running(home)
    port_by_name = ports.recorded(home) | _ports_in_use(running)
    if set(port_by_name) != set(ports.USUAL):
        return [ServerState(name, "stopped", "", home.log(name)) for name in SERVERS]
    context = context_of(home, port_by_name)
    return [_state(describe(context), running.get(name), home) for name, describe in SERVERS.items()]


def _state(server: Server, running: Running | None, home: Home) -> ServerState:
    log = home.log(server.name)
    if running is None or running.leader is None:
        return ServerState(server.name, "stopped", server.address, log)
    try:
        state = "ready" if server.ready() else "not ready"
    except LakehouseError:
        state = "not ready"
    return ServerState(server.name, state, server.address, log, running.leader.pid, running.resident_bytes())


def _ports_in_use(servers: Mapping[str, Running]) -> dict[str, int]:
    """Return the ports of running servers from their environment, which works even if endpoints.json was lost."""
    in_use = {name: port for running in servers.values() for name, port in running.ports.items()}
    return {name: port for name, port in in_use.items() if name in ports.USUAL}  # other versions had other names


def _stop(home: Home, names: Collection[str]) -> None:
    for stage in (*STOPPED_FIRST, set(names).difference(*STOPPED_FIRST)):
        if stopped := stage & set(names):
            with waiting_for(f"{', '.join(sorted(stopped))} to stop"):
                process.stop(home, *stopped)


class _Starter:
    """Parallel start of servers, each as soon as those in its `after` are ready."""

    def __init__(
        self,
        home: Home,
        before: Mapping[str, Running],
        on_ready: Callable[[ServerState], None],
        on_start: Callable[[Collection[str]], None],
    ):
        self._home, self._before, self._on_ready, self._on_start = home, before, on_ready, on_start
        self._cancelled = Event()
        self.started: set[str] = set()
        """Names of the servers that this starter has started, ready or not."""

    def start(self, servers: list[Server]) -> list[ServerState]:
        """Start the servers and wait for them. The first error of any is raised, and ends the wait for the others."""
        by_name = {server.name: server for server in servers}
        order = TopologicalSorter({name: set(server.after) & set(by_name) for name, server in by_name.items()})
        order.prepare()
        states: dict[str, ServerState] = {}
        with ThreadPoolExecutor(len(servers)) as pool:
            pending: dict[Future[ServerState], str] = {}
            try:
                while order.is_active():
                    pending |= {pool.submit(self._start, by_name[name]): name for name in order.get_ready()}
                    self._on_start([name for name in pending.values() if name not in self._before])
                    done, _ = wait(pending, return_when=FIRST_COMPLETED)
                    for future in done:
                        del pending[future]
                        state = future.result()
                        states[state.name] = state
                        self._on_ready(state)
                        order.done(state.name)
            except BaseException:
                self._cancelled.set()
                raise
        return [states[name] for name in by_name]

    def _start(self, server: Server) -> ServerState:
        began, running = time.monotonic(), self._before.get(server.name)
        if running and not running.is_of(server):
            process.stop(self._home, server.name)
            running = None
        was_running = running is not None
        if running is None:
            self.started.add(server.name)
            running = process.start(server, self._home)
        process.wait_until_ready(server, running.leader, self._home, self._cancelled)
        server.provision(running.env)
        seconds = 0 if was_running else time.monotonic() - began
        assert running.leader is not None, "a process that is ready has not ended"
        pid, memory = running.leader.pid, running.resident_bytes()
        return ServerState(server.name, "ready", server.address, self._home.log(server.name), pid, memory, seconds)
