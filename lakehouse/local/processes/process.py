"""Start, detection and stop of servers, the same for all of them.

There are no pid files. Every server has LAKEHOUSE_SERVER and LAKEHOUSE_HOME in its environment, and its child processes
inherit them; the processes of a state folder are those with its path in their environment. So a server is detected even
after `up` was killed, and a foreign process that reuses a server's process id is not.
"""

import hashlib
import json
import os
import re
import shutil
import signal
import subprocess
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

import psutil

from lakehouse.core.errors import LakehouseError
from lakehouse.core.polling import Clock, poll
from lakehouse.local import jars
from lakehouse.local.home import Home
from lakehouse.local.processes import logs
from lakehouse.local.processes.description import Server, inherited_variables

POLL_SECONDS = 0.1
STOP_SECONDS = 60
"""Seconds for a clean shutdown, after which a server is killed. Spark's archive of classes needs 11 s of CPU time."""
REPEAT_SECONDS = 10
"""Seconds after which SIGTERM is repeated. The exception that it raises in a run may be lost, as in an import."""
KILL_SECONDS = 5
PRIVATE = 0o077
"""The umask of all servers."""
MAX_TEMPORARY_BYTES = 70
"""Maximum bytes in the path of a temporary folder. The path of a Unix socket may have 103 (macOS) or 107 (Linux), of
which libraries use up to 32, as in /pymp-12345678/listener-12345678."""


@dataclass(frozen=True)
class Running:
    """The processes of one server: the leader, which `up` started, while it runs, and its descendants."""

    leader: psutil.Process | None
    processes: tuple[psutil.Process, ...]
    env: Mapping[str, str] = field(repr=False)

    @property
    def ports(self) -> dict[str, int]:
        return json.loads(self.env["LAKEHOUSE_PORTS"])

    def is_of(self, server: Server) -> bool:
        """Return whether this server was started from an equal description (same version, ports and settings)."""
        return self.leader is not None and self.env.get("LAKEHOUSE_FINGERPRINT") == server.fingerprint

    def resident_bytes(self) -> int:
        """Return the resident memory of all processes together, in bytes."""
        total = 0
        for process in self.processes:
            try:
                total += process.memory_info().rss
            except psutil.Error:  # the process has just ended
                continue
        return total


def running(home: Home) -> dict[str, Running]:
    """Return the running servers of a state folder, by name."""
    servers: dict[str, list[tuple[psutil.Process, dict[str, str]]]] = {}
    for process in psutil.process_iter():
        try:
            env = process.environ()
        except (psutil.Error, OSError):  # the process has ended, or belongs to another user
            continue
        if env.get("LAKEHOUSE_HOME") == str(home.path) and (name := env.get("LAKEHOUSE_SERVER")):
            servers.setdefault(name, []).append((process, env))
    return {name: _group(members) for name, members in servers.items()}


def _group(members: list[tuple[psutil.Process, dict[str, str]]]) -> Running:
    leader = next(((process, env) for process, env in members if _leads_session(process.pid)), None)
    env = leader[1] if leader else members[0][1]
    return Running(leader[0] if leader else None, tuple(process for process, _ in members), env)


def _leads_session(pid: int) -> bool:
    try:
        return os.getsid(pid) == pid
    except ProcessLookupError:
        return False


@contextmanager
def default_signals() -> Iterator[None]:
    """Let servers that start in this context handle SIGINT and SIGTERM even if this process ignores them.

    Shells without job control ignore SIGINT in background commands (`lakehouse up &`), and child processes inherit
    that. Dagster handles SIGTERM like SIGINT, so its code server and runs would ignore both.
    """
    ignored = [number for number in (signal.SIGINT, signal.SIGTERM) if signal.getsignal(number) is signal.SIG_IGN]
    if threading.current_thread() is not threading.main_thread():
        ignored = []  # only the main thread can change it
    for number in ignored:
        signal.signal(number, lambda *_: None)  # child processes do not inherit handlers
    try:
        yield
    finally:
        for number in ignored:
            signal.signal(number, signal.SIG_IGN)


def start(server: Server, home: Home) -> Running:
    """Start a server in its own session, so that it outlives this process.

    The server appends to its log, so that `logs` can shorten it; earlier logs are kept beside it. Only the user can
    read the files that the server creates.
    """
    server.prepare()
    log = home.folder("logs") / home.log(server.name).name
    logs.set_aside(log)
    marks = {"LAKEHOUSE_FINGERPRINT": server.fingerprint, "LAKEHOUSE_PORTS": json.dumps(dict(server.ports))}
    common = {**inherited_variables(server.inherits()), **server.env, **server.env_once, **marks}
    env = {**common, **_specific(server.name, home, common)}
    server.folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    output = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    try:
        child = subprocess.Popen(  # noqa: S603 (own servers)
            server.command,
            cwd=server.folder,
            env=env,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
            umask=PRIVATE,
        )
    finally:
        os.close(output)
    process = psutil.Process(child.pid)
    return Running(process, (process,), env)


def run_tool(server: str, home: Home, command: tuple[str, ...], env: Mapping[str, str] | None = None) -> None:
    """Run a command that prepares a server. `down` stops it like the server itself."""
    common = {**inherited_variables(()), **(env or {}), "LAKEHOUSE_PORTS": "{}"}
    try:
        done = subprocess.run(  # noqa: S603 (own servers)
            command,
            env={**common, **_specific(server, home, common)},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=120,
            umask=PRIVATE,
        )
        failed, output = done.returncode != 0, done.stdout
    except subprocess.TimeoutExpired:
        failed, output = True, "the command did not end within 120 s"
    if failed:
        last_line = " ".join(output.strip().splitlines()[-1:])
        raise LakehouseError(f"{server} could not be prepared: {last_line}. It was not started. Run `lakehouse doctor`")


def _specific(server: str, home: Home, common: Mapping[str, str]) -> dict[str, str]:
    """Return the variables that differ between servers: those that identify it, and its (emptied) temporary folder.

    JVMs ignore TMPDIR, so JAVA_TOOL_OPTIONS has the folder too. Child processes inherit both variables.
    """
    temporary = _temporary(server, home)
    shutil.rmtree(temporary, ignore_errors=True)
    temporary.mkdir(mode=0o700)
    quote = '"' if "'" in str(temporary) else "'"
    options = f"{common.get('JAVA_TOOL_OPTIONS', '')} {quote}-Djava.io.tmpdir={temporary}{quote}".strip()
    marks = {"LAKEHOUSE_HOME": str(home.path), "LAKEHOUSE_SERVER": server}
    return {**marks, "TMPDIR": str(temporary), "JAVA_TOOL_OPTIONS": options}


def _temporary(server: str, home: Home) -> Path:
    """Return the path of a server's temporary folder: in the state folder or, where its path is too long for Unix
    sockets, in the cache."""
    if len(os.fsencode(home.path / "tmp" / server)) <= MAX_TEMPORARY_BYTES:
        return home.folder("tmp") / server
    short = hashlib.sha256(os.fsencode(home.path)).hexdigest()[:12]
    return Home(jars.cache()).folder(f"tmp/{short}") / server


def wait_until_ready(server: Server, process: psutil.Process, home: Home, cancelled: threading.Event) -> None:
    """Wait until a server is ready.

    Args:
        server: The description of the server.
        process: Its leading process.
        home: Its state folder.
        cancelled: Ends the wait early.
    """

    def is_ready() -> bool:
        if _listens(process, set(server.ports.values())) and server.ready():
            return True
        if not is_alive(process):
            raise LakehouseError(f"{server.name} exited during its start. {log_tail(home.log(server.name))}")
        if cancelled.is_set():
            raise LakehouseError(
                f"The start of {server.name} was cancelled because another server failed. Correct the error of that "
                f"server, and run `lakehouse up` again"
            )
        return False

    clock = Clock(sleep=cancelled.wait)
    if not poll(is_ready, pause=POLL_SECONDS, deadline_seconds=server.seconds, clock=clock):
        raise LakehouseError(
            f"{server.name} was not ready after {server.seconds:.0f} s. {log_tail(home.log(server.name))}"
        )


def is_alive(process: psutil.Process) -> bool:
    """Return whether a process runs. A zombie, which ended but was not collected by its parent, does not."""
    try:
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def _listens(process: psutil.Process, ports: set[int]) -> bool:
    """Return whether this process listens on all the ports: a foreign process might listen there instead."""
    try:
        sockets = process.net_connections("tcp") if ports else ()
    except psutil.Error:
        return False
    return ports <= {socket.laddr.port for socket in sockets if socket.status == psutil.CONN_LISTEN}


def stop(home: Home, *names: str) -> None:
    """Stop servers and their child processes at the same time: by SIGTERM, which is repeated once, and after
    STOP_SECONDS by SIGKILL.

    Child processes that start meanwhile are stopped as well: a server may wait for them.
    """

    def members() -> set[psutil.Process]:
        return {process for name, server in running(home).items() if name in names for process in server.processes}

    def end_by(send: Callable[[psutil.Process], None], seconds: float) -> bool:
        signalled: set[psutil.Process] = set()

        def have_ended() -> bool:
            current = members()
            for process in current - signalled:
                with suppress(psutil.NoSuchProcess):
                    send(process)
            signalled.update(current)
            return not current and not any(map(is_alive, signalled))

        return poll(have_ended, pause=POLL_SECONDS, deadline_seconds=seconds)

    terminate, kill = psutil.Process.terminate, psutil.Process.kill
    steps = (terminate, REPEAT_SECONDS), (terminate, STOP_SECONDS - REPEAT_SECONDS), (kill, KILL_SECONDS)
    if any(end_by(send, seconds) for send, seconds in steps):
        return
    remaining = {name: server for name, server in running(home).items() if name in names}
    pids = ", ".join(str(process.pid) for server in remaining.values() for process in server.processes)
    raise LakehouseError(
        f"{', '.join(remaining)} could not be stopped: process {pids} does not exit. Kill it (`kill -9`), then run "
        f"the command again"
    )


def log_tail(log: Path) -> str:
    """Return the last error lines of a log, or its last lines if there are none, as a sentence for a message."""
    lines = [line.strip() for line in log.read_text(errors="replace").splitlines() if line.strip()]
    errors = [line for line in lines if _ERROR.search(line) and not line.startswith("at ")]
    end = " | ".join(line[:300] for line in (errors or lines)[-3:])
    return f"Its log ({log}) ends with: {end}" if end else f"Its log ({log}) is empty"


_ERROR = re.compile(r"\b(ERROR|FATAL|Error|error|\w+Exception|\w+Error|Caused by|already in use|No space left)\b")
