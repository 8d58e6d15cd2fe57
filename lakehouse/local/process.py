"""Starting, awaiting, finding and stopping a server: the same way for all of them.

There are no pid files. Every server gets LAKEHOUSE_SERVER and LAKEHOUSE_HOME in its environment, and whatever it starts
inherits them; the processes of a state folder are those whose environment names it. So a server is found after `up` was
killed at any point, a process number that the system gave to somebody else never is, and nothing foreign is touched.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import subprocess
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from threading import Event

import psutil

from lakehouse.core.errors import LakehouseError
from lakehouse.core.polling import Clock, poll
from lakehouse.local import inherited, jars, logs
from lakehouse.local.home import Home

POLL_SECONDS = 0.1
STOP_SECONDS = 15
"""How long a server may take to end cleanly before it is killed."""
PRIVATE = 0o077
"""The umask of all servers."""
LONGEST_TEMPORARY = 70
"""Bytes in the path of a temporary folder. A Unix socket's may have 103 (macOS) or 107 (Linux), and those who make one
append up to 32, as in /pymp-12345678/listener-12345678."""


@dataclass(frozen=True)
class Server:
    """What there is to know about a server."""

    name: str
    command: tuple[str, ...]
    folder: Path
    """Its working folder."""
    address: str
    """What a user would open or connect to."""
    ready: Callable[[], bool]
    """Whether it serves now. Answers within seconds; raises LakehouseError when waiting any longer is of no use."""
    env: Mapping[str, str] = field(repr=False)
    """What its environment has besides what it inherits."""
    env_once: Mapping[str, str] = field(default_factory=dict, repr=False)
    """Like env, for values made anew by each `up`: a running server that has other ones is kept."""
    inherits: Callable[[], Iterable[str]] = tuple
    """Gives the names of variables, or patterns of them, that it gets from the environment of `up` besides
    `inherited.EVERY_SERVER`. Called when it starts."""
    ports: Mapping[str, int] = field(default_factory=dict)
    """The ports it listens on, by their names in `ports.USUAL`."""
    after: tuple[str, ...] = ()
    """The servers that must be ready before this one starts."""
    seconds: float = 300
    """How long it may take to become ready: seconds, and minutes on a machine that is busy with something else."""
    prepare: Callable[[], None] = lambda: None
    """Runs before it starts; safe to run again after any interruption."""
    provision: Callable[[Mapping[str, str]], None] = lambda env: None
    """Runs once it is ready, with the environment it runs in; safe to run again."""

    @property
    def fingerprint(self) -> str:
        """Equal for two descriptions exactly when a process started from one would do for the other."""
        return hashlib.sha256(json.dumps([self.command, sorted(self.env.items())]).encode()).hexdigest()


@dataclass(frozen=True)
class Running:
    """The processes of one server: the one that `up` started, if it still runs, and those that it started in turn."""

    leader: psutil.Process | None
    processes: tuple[psutil.Process, ...]
    env: Mapping[str, str] = field(repr=False)

    @property
    def ports(self) -> dict[str, int]:
        return json.loads(self.env["LAKEHOUSE_PORTS"])

    def is_of(self, server: Server) -> bool:
        """Whether this is the server described, and not one of an earlier version or with other addresses."""
        return self.leader is not None and self.env.get("LAKEHOUSE_FINGERPRINT") == server.fingerprint

    def resident_bytes(self) -> int:
        """Resident memory of its processes, in bytes."""
        total = 0
        for process in self.processes:
            try:
                total += process.memory_info().rss
            except psutil.Error:  # it has just ended
                continue
        return total


def running(home: Home) -> dict[str, Running]:
    """The servers of a state folder that run now, by name."""
    found: dict[str, list[tuple[psutil.Process, dict[str, str]]]] = {}
    for process in psutil.process_iter():
        try:
            env = process.environ()
        except (psutil.Error, OSError):  # another user's, or already gone
            continue
        if env.get("LAKEHOUSE_HOME") == str(home.path) and (name := env.get("LAKEHOUSE_SERVER")):
            found.setdefault(name, []).append((process, env))
    return {name: _group(members) for name, members in found.items()}


def _group(members: list[tuple[psutil.Process, dict[str, str]]]) -> Running:
    leader = next(((process, env) for process, env in members if _leads_session(process.pid)), None)
    env = leader[1] if leader else members[0][1]
    return Running(leader[0] if leader else None, tuple(process for process, _ in members), env)


def _leads_session(pid: int) -> bool:
    try:
        return os.getsid(pid) == pid
    except ProcessLookupError:
        return False


def start(server: Server, home: Home) -> Running:
    """Start a server in its own session, so that it outlives this process.

    It appends to its log, so that `logs` may shorten it; earlier logs are kept beside it. What it writes can be read
    by its owner only.
    """
    server.prepare()
    log = home.folder("logs") / home.log(server.name).name
    logs.set_aside(log)
    marks = {"LAKEHOUSE_FINGERPRINT": server.fingerprint, "LAKEHOUSE_PORTS": json.dumps(dict(server.ports))}
    given = {**inherited.selected(server.inherits()), **server.env, **server.env_once, **marks}
    env = {**given, **_own(server.name, home, given)}
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
    """Run a command that prepares a server; like the server itself it is found and stopped by `down`.

    Raises: LakehouseError with the last line it printed when it fails or takes longer than two minutes.
    """
    given = {**inherited.selected(()), **(env or {}), "LAKEHOUSE_PORTS": "{}"}
    try:
        done = subprocess.run(  # noqa: S603 (own servers)
            command,
            env={**given, **_own(server, home, given)},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=120,
            umask=PRIVATE,
        )
        failed, output = done.returncode != 0, done.stdout
    except subprocess.TimeoutExpired:
        failed, output = True, "no end after 120 s"
    if failed:
        said = " ".join(output.strip().splitlines()[-1:])
        raise LakehouseError(f"{server} could not be prepared: {said}. It was not started and nothing of it was kept")


def _own(server: str, home: Home, given: Mapping[str, str]) -> dict[str, str]:
    """Return the variables that no two servers share: the marks it is found by, and its temporary folder, emptied.

    JVMs do not look at TMPDIR. Both variables reach whatever the server starts in turn.
    """
    temporary = _temporary(server, home)
    shutil.rmtree(temporary, ignore_errors=True)
    temporary.mkdir(mode=0o700)
    quote = '"' if "'" in str(temporary) else "'"
    options = f"{given.get('JAVA_TOOL_OPTIONS', '')} {quote}-Djava.io.tmpdir={temporary}{quote}".strip()
    marks = {"LAKEHOUSE_HOME": str(home.path), "LAKEHOUSE_SERVER": server}
    return {**marks, "TMPDIR": str(temporary), "JAVA_TOOL_OPTIONS": options}


def _temporary(server: str, home: Home) -> Path:
    """Return where a server's temporary folder goes: in the state folder or, where that has too long a name for Unix
    sockets, in the cache."""
    if len(os.fsencode(home.path / "tmp" / server)) <= LONGEST_TEMPORARY:
        return home.folder("tmp") / server
    short = hashlib.sha256(os.fsencode(home.path)).hexdigest()[:12]
    return Home(jars.cache()).folder(f"tmp/{short}") / server


def wait_until_ready(server: Server, process: psutil.Process, home: Home, cancelled: Event) -> None:
    """Wait until a server serves.

    Parameters: the server, the process that it is, its state folder, and an event that ends the wait early.
    Raises: LakehouseError when it ended, did not become ready in time, or the wait was cancelled.
    """

    def is_ready() -> bool:
        if _listens(process, set(server.ports.values())) and server.ready():
            return True
        if not is_alive(process):
            raise LakehouseError(f"{server.name} ended while it started. {last_words(home.log(server.name))}")
        if cancelled.is_set():
            raise LakehouseError(f"{server.name} was given up because another server failed")
        return False

    clock = Clock(sleep=cancelled.wait)
    if not poll(is_ready, pause=POLL_SECONDS, deadline_seconds=server.seconds, clock=clock):
        raise LakehouseError(
            f"{server.name} was not ready after {server.seconds:.0f} s. {last_words(home.log(server.name))}"
        )


def is_alive(process: psutil.Process) -> bool:
    """Whether a process still runs; one that ended but was not yet collected by its parent does not."""
    try:
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def _listens(process: psutil.Process, ports: set[int]) -> bool:
    """Whether it is this very process that listens: somebody else may have taken the port, and answer."""
    try:
        sockets = process.net_connections("tcp") if ports else ()
    except psutil.Error:
        return False
    return ports <= {socket.laddr.port for socket in sockets if socket.status == psutil.CONN_LISTEN}


def stop(name: str, home: Home) -> None:
    """End a server and what it started: politely, and after STOP_SECONDS by force.

    Raises: LakehouseError when a process outlives that.
    """

    def signal(send: Callable[[psutil.Process], None], seconds: float) -> None:
        found = running(home).get(name)
        processes = found.processes if found else ()
        for process in processes:
            try:
                send(process)
            except psutil.NoSuchProcess:
                continue
        poll(lambda: not any(map(is_alive, processes)), pause=POLL_SECONDS, deadline_seconds=seconds)

    signal(psutil.Process.terminate, STOP_SECONDS)
    signal(psutil.Process.kill, 5)
    if left := running(home).get(name):
        numbers = ", ".join(str(process.pid) for process in left.processes)
        raise LakehouseError(
            f"{name} could not be stopped: process {numbers} does not end. End it by hand, then try again"
        )


def last_words(log: Path, count: int = 3) -> str:
    """What a server said last, for an error message: its last complaints or, without any, its last lines."""
    lines = [line.strip() for line in log.read_text(errors="replace").splitlines() if line.strip()]
    complaints = [line for line in lines if _COMPLAINT.search(line) and not line.startswith("at ")]
    said = " | ".join(line[:300] for line in (complaints or lines)[-count:])
    return f"Its log ({log}) ends with: {said}" if said else f"Its log ({log}) is empty"


_COMPLAINT = re.compile(r"\b(ERROR|FATAL|Error|error|\w+Exception|\w+Error|Caused by|already in use|No space left)\b")
