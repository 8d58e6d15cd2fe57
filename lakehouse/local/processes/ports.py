"""Choice of the servers' ports: the previous one, else the usual one, else any free one."""

from __future__ import annotations

import json
import os
import random
import socket
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from lakehouse.local import jars
from lakehouse.local.home import Home, hold, write_atomically
from lakehouse.local.processes import reserved
from lakehouse.local.processes.server_context import LOOPBACK

USUAL = {
    "kafka": 9092,
    "kafka-controller": 9093,
    "registry": 8081,
    "s3": 9000,
    "aws": 5050,
    "spark": 15002,
    "snowflake": 8084,
    "dagster": 3000,
}

OTHERS = range(20_000, 32_768)
"""Candidates when the usual port is in use.

They are below the ports of outgoing connections (from 32768 on Linux, from 49152 elsewhere): while a server restarts,
such a connection could occupy its port, and the server would have to move away from its clients.
"""

TURN_SECONDS = 300
"""Time to wait while another stack of this user starts: the timeout of one server."""

_CHANCE = random.SystemRandom()


def is_free(port: int) -> bool:
    """Return whether a server can listen on this port of 127.0.0.1, and nothing is bound to it on [::1].

    Clients that resolve `localhost` would connect to a listener on [::1] before trying our server.
    """
    with socket.socket() as listener:
        # As the servers do: a port with connections in TIME_WAIT is free.
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listener.bind((LOOPBACK, port))
            if reservation := reserved.bound(port):
                reservation.close()
        except OSError:
            return False
    return True


@contextmanager
def in_turn() -> Iterator[None]:
    """Let one stack of this user start at a time: two stacks would choose the same ports as long as the servers of
    neither listen.

    Raises:
        LakehouseError: Another stack is still starting after `TURN_SECONDS`.
    """
    cache = jars.cache()
    cache.mkdir(parents=True, exist_ok=True, mode=0o700)
    with hold(
        cache / f"ports-{os.getuid()}.lock",
        lambda holder: (
            f"Another `lakehouse up` ({holder}) has been starting servers for {TURN_SECONDS / 60:.0f} minutes."
            " Nothing was started. Wait for it to end, or stop it, then run the command again"
        ),
        TURN_SECONDS,
    ):
        yield


def recorded(home: Home) -> dict[str, int]:
    """Return the ports of the last `up`, by name; empty if there was none or endpoints.json cannot be read."""
    try:
        ports = json.loads(home.endpoints.read_text())
        return {name: int(ports[name]) for name in USUAL if name in ports}
    except (FileNotFoundError, NotADirectoryError, ValueError, TypeError):
        return {}


def choose(home: Home, in_use: Mapping[str, int]) -> dict[str, int]:
    """Choose a port for every server, and record them in the state folder.

    Args:
        home: The state folder.
        in_use: Ports of its running servers, which keep them.

    Returns:
        Port by name.
    """
    before = recorded(home)
    ports = dict(in_use)
    for name, usual in USUAL.items():
        if name not in ports:
            preferred = (port for port in (before.get(name), usual) if port and port not in ports.values())
            ports[name] = next(filter(is_free, preferred), None) or _any_free(set(ports.values()) | set(USUAL.values()))
    write_atomically(home.endpoints, json.dumps(ports, indent=2))
    return ports


def _any_free(excluded: set[int]) -> int:
    while True:
        port = _CHANCE.choice(OTHERS)
        if port not in excluded and is_free(port):
            return port
