"""Protocol of a contender, and contenders that are a Python process."""

from __future__ import annotations

import multiprocessing
import socket
import subprocess
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
"""Commit interval of contenders that have such a setting."""
HEAP = "2g"
"""Maximum heap of each JVM of a contender."""


@dataclass(frozen=True)
class Stack:
    """Addresses of the servers that all contenders share, and a folder for files of contenders."""

    kafka: str
    registry: str
    catalog: Path
    warehouse: str
    s3: str
    region: str
    folder: Path

    def java_catalog(self) -> dict[str, str]:
        """Return the catalog's settings for Iceberg's Java library. Credentials come from the environment."""
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
    """A tool that ingests old and new records of a topic into a table of NAMESPACE, exactly once.

    It does so from `begin` to `end`, in processes that run from `start` to `stop`.
    """

    name: str
    creates_table: bool
    """Whether the contender creates the table itself."""

    def start(self) -> None:
        """Start the processes."""

    def begin(self, topic: str, table: str) -> None: ...

    def end(self) -> None: ...

    def failure(self) -> str | None:
        """Return the reason why the ingestion failed for good, or None."""
        ...

    def stop(self) -> None:
        """Stop the processes."""

    def processes(self) -> list[psutil.Process]:
        """Return the processes to measure; their children are measured too."""
        ...


def end(process: subprocess.Popen[bytes]) -> None:
    """Terminate a process, and kill it if that takes longer than half a minute: all that it wrote was verified."""
    process.terminate()
    try:
        process.wait(30)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


Work = Callable[[str, str, Callable[[], bool]], None]
"""Function that ingests a topic into a table until the function in its third argument returns True."""


class PythonContender:
    """A contender that is a loop in a separate Python process."""

    creates_table = False

    def __init__(self, name: str, work: Callable[[Stack], Work], stack: Stack):
        self.name = name
        context = multiprocessing.get_context("spawn")
        self._commands, commands = context.Pipe()
        self._process = context.Process(target=_serve, args=(work, stack, commands), daemon=True)

    def start(self) -> None:
        self._process.start()

    def begin(self, topic: str, table: str) -> None:
        self._commands.send((topic, table))

    def end(self) -> None:
        self._commands.send(None)
        if not self._commands.poll(60) or not self._commands.recv():
            raise RuntimeError(f"{self.name} did not end within a minute, or failed: its error is above")

    def failure(self) -> str | None:
        return None if self._process.is_alive() else "its process has ended; its error is above"

    def stop(self) -> None:
        if self._process.is_alive():
            self._commands.send(None)
            self._process.join(10)
        self._process.kill()

    def processes(self) -> list[psutil.Process]:
        return [psutil.Process(self._process.pid)]


def _serve(work: Callable[[Stack], Work], stack: Stack, commands: Connection) -> None:
    ingest = work(stack)
    while named := commands.recv():
        topic, table = named
        ingest(topic, table, commands.poll)
        commands.recv()
        commands.send(True)


def until(done: Callable[[], bool], seconds: float, what: str) -> None:
    """Wait until `done` returns True.

    Raises:
        RuntimeError: `done` returns False for `seconds`.
    """
    if not polling.poll(done, pause=0.1, deadline_seconds=seconds):
        raise RuntimeError(f"Timeout after {seconds:.0f} s: {what}")


def free_port() -> int:
    """Return an unused port of the loopback interface."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return listener.getsockname()[1]


def idle() -> None:
    """Pause a loop without new records, as a schedule would."""
    time.sleep(0.1)
