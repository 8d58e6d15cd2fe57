"""Which port each server listens on: the one it had, else the usual one, else any that is free."""

from __future__ import annotations

import json
import os
import random
import socket
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from lakehouse.local import jars, reserved
from lakehouse.local.context import LOOPBACK
from lakehouse.local.home import Home, hold, write_atomically

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
"""Where a port is looked for when the usual one is taken.

Below those that systems give to outgoing connections (from 32768 on Linux, from 49152 elsewhere): while a server is
restarted, such a connection could take its port, and its clients would not find it again.
"""

TURN_SECONDS = 300
"""How long to wait for another stack of this user that starts: as long as one server may take."""


_CHANCE = random.SystemRandom()


def is_free(port: int) -> bool:
    """Whether a server could listen on this port of 127.0.0.1 now, and nobody has it on [::1].

    Clients that are led to `localhost` would find whoever listens on [::1] before our server.
    """
    with socket.socket() as listener:
        # As the servers do: a port whose last connections are still being closed is free.
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
    """Let one stack of this user start at a time: two that choose before the servers of either listen would choose the
    same ports.

    Raises:
        LakehouseError: Another one has not finished after `TURN_SECONDS`.
    """
    cache = jars.cache()
    cache.mkdir(parents=True, exist_ok=True, mode=0o700)
    with hold(
        cache / f"ports-{os.getuid()}.lock",
        lambda holder: (
            f"Another `lakehouse up` ({holder}) has been starting servers for {TURN_SECONDS / 60:.0f} minutes."
            " Nothing was started. Wait for it to end, or stop it, then try again"
        ),
        TURN_SECONDS,
    ):
        yield


def recorded(home: Home) -> dict[str, int]:
    """The ports of the last `up`. Empty when there was none or its record cannot be read: they are chosen anew then."""
    try:
        ports = json.loads(home.endpoints.read_text())
        return {name: int(ports[name]) for name in USUAL if name in ports}
    except (FileNotFoundError, ValueError, TypeError):
        return {}


def choose(home: Home, in_use: Mapping[str, int]) -> dict[str, int]:
    """A port for every server, recorded in the state folder.

    Parameters: the state folder, and the ports that its running servers listen on, which stay.
    """
    before = recorded(home)
    ports = dict(in_use)
    for name, usual in USUAL.items():
        if name not in ports:
            wanted = (port for port in (before.get(name), usual) if port and port not in ports.values())
            ports[name] = next(filter(is_free, wanted), None) or _any_free(set(ports.values()) | set(USUAL.values()))
    write_atomically(home.endpoints, json.dumps(ports, indent=2))
    return ports


def _any_free(taken: set[int]) -> int:
    while True:
        port = _CHANCE.choice(OTHERS)
        if port not in taken and is_free(port):
            return port
