"""What a contender is, and the process of those that are Python."""

from __future__ import annotations

import multiprocessing
import socket
import time
from collections.abc import Callable
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Protocol

import psutil

from lakehouse.core import polling

NAMESPACE = "bench"
COMMIT_SECONDS = 5
"""How often a contender commits that is told how often."""
HEAP = "2g"
"""Of each JVM that does a contender's work."""


@dataclass(frozen=True)
class Stack:
    """Where the servers are that all contenders share, and a folder for what a contender keeps."""

    kafka: str
    registry: str
    catalog: Path
    warehouse: str
    s3: str
    region: str
    folder: Path

    def java_catalog(self) -> dict[str, str]:
        """The catalog, as Iceberg's Java library is told of it. Credentials come from the environment."""
        return {
            "catalog-impl": "org.apache.iceberg.jdbc.JdbcCatalog",
            "uri": f"jdbc:sqlite:{self.catalog}",
            "jdbc.schema-version": "V1",
            "warehouse": self.warehouse,
            "io-impl": "org.apache.iceberg.aws.s3.S3FileIO",
            "s3.endpoint": self.s3,
            "s3.path-style-access": "true",
            "client.region": self.region,
        }


class Contender(Protocol):
    """Between `begin` and `end` it takes what is and what comes in a topic into a table of NAMESPACE, exactly once."""

    name: str
    makes_its_table: bool
    """Whether it creates the table itself."""

    def start(self) -> None:
        """Start its processes."""

    def begin(self, topic: str, table: str) -> None: ...

    def end(self) -> None: ...

    def failure(self) -> str | None:
        """Why it will never be done, if that is so."""
        ...

    def stop(self) -> None:
        """End its processes."""

    def processes(self) -> list[psutil.Process]:
        """Those whose work is its own; their children count too."""
        ...


Work = Callable[[str, str, Callable[[], bool]], None]
"""Takes a topic into a table until the function it is given says that it is to end."""


class PythonContender:
    """A contender that is a loop in a Python process of its own."""

    makes_its_table = False

    def __init__(self, name: str, work: Callable[[Stack], Work], stack: Stack):
        self.name = name
        context = multiprocessing.get_context("spawn")
        self._here, there = context.Pipe()
        self._process = context.Process(target=_serve, args=(work, stack, there), daemon=True)

    def start(self) -> None:
        self._process.start()

    def begin(self, topic: str, table: str) -> None:
        self._here.send((topic, table))

    def end(self) -> None:
        self._here.send(None)
        if not self._here.poll(60) or not self._here.recv():
            raise RuntimeError(f"{self.name} did not end within a minute, or failed: its error is above")

    def failure(self) -> str | None:
        return None if self._process.is_alive() else "its process has ended; its error is above"

    def stop(self) -> None:
        self._process.terminate()
        self._process.join()

    def processes(self) -> list[psutil.Process]:
        return [psutil.Process(self._process.pid)]


def _serve(work: Callable[[Stack], Work], stack: Stack, commands: Connection) -> None:
    ingest = work(stack)
    while True:
        topic, table = commands.recv()
        ingest(topic, table, commands.poll)
        commands.recv()
        commands.send(True)


def until(done: Callable[[], bool], seconds: float, what: str) -> None:
    """Wait until something is done.

    Raises:
        RuntimeError: It takes longer than `seconds`.
    """
    if not polling.poll(done, pause=0.1, deadline_seconds=seconds):
        raise RuntimeError(f"No sign of {what} within {seconds:.0f} s")


def free_port() -> int:
    """A port of the loopback interface that nobody listens on."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return listener.getsockname()[1]


def idle() -> None:
    """Pause a loop that had nothing to ingest, as a schedule would."""
    time.sleep(0.1)
