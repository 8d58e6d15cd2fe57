"""Choice of the servers' ports: the previous one, else the usual one, else any free one."""

import json
import random
import socket
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from itertools import chain

from lakehouse.local.home import Home, write_atomically
from lakehouse.local.processes import reserved
from lakehouse.local.processes.description import LOOPBACK

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


def recorded(home: Home) -> dict[str, int]:
    """Return the ports of the last `up`, by name; empty if there was none or endpoints.json cannot be read."""
    try:
        ports = json.loads(home.endpoints.read_text())
        return {name: int(ports[name]) for name in USUAL if name in ports}
    except (FileNotFoundError, NotADirectoryError, ValueError, TypeError):
        return {}


@contextmanager
def chosen(home: Home, in_use: Mapping[str, int]) -> Iterator[dict[str, int]]:
    """Choose a port for every server, and record them in the state folder.

    No other stack chooses these ports before the context ends, by when the servers listen.

    Args:
        home: The state folder.
        in_use: Ports of its running servers, which keep them.

    Yields:
        Port by name.
    """
    before = recorded(home)
    ports = dict(in_use)
    with ExitStack() as reservations:
        for name, usual in USUAL.items():
            if name not in ports:
                candidates = chain(filter(None, (before.get(name), usual)), _others())
                ports[name] = next(
                    port for port in candidates if port not in ports.values() and _reserve(port, reservations)
                )
        write_atomically(home.endpoints, json.dumps(ports, indent=2))
        yield ports


def _others() -> Iterator[int]:
    while True:
        yield _CHANCE.choice(OTHERS)


def _reserve(port: int, reservations: ExitStack) -> bool:
    """Reserve a port if it is free, and return whether it was.

    The reservation is the UDP port of the same number, which no server uses. The kernel releases it when this process
    ends, however it ends.
    """
    reservation = socket.socket(type=socket.SOCK_DGRAM)
    try:
        reservation.bind((LOOPBACK, port))
    except OSError:
        reservation.close()
        return False
    reservations.enter_context(reservation)
    # Only now: the servers of a stack that had reserved the port until a moment ago listen.
    return is_free(port)
