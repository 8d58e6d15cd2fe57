"""Processes forked from one that has loaded the project, because loading takes seconds."""

from __future__ import annotations

import multiprocessing
import os
import subprocess
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from multiprocessing.process import BaseProcess
from pathlib import Path

from tools.repository import PROJECT

FORKS = multiprocessing.get_context("forkserver")
FORKS.set_forkserver_preload(
    [
        "lakehouse.pipeline.derivation.derivation",
        "lakehouse.cli.systems",
        "pyiceberg.catalog.sql",
        "pyspark.sql.connect.session",
    ]
)


@dataclass
class Forked:
    """A process with the interface of subprocess.Popen."""

    process: BaseProcess

    def send_signal(self, number: int) -> None:
        os.kill(self.process.pid, number)

    def kill(self) -> None:
        self.process.kill()

    def poll(self) -> int | None:
        return self.process.exitcode

    def wait(self, seconds: float | None = None) -> int:
        """Wait for the end of the process.

        Returns:
            The exit code, or minus the number of the signal that ended the process.

        Raises:
            TimeoutExpired: The process has not ended in time.
        """
        self.process.join(seconds)
        if self.process.exitcode is None:
            raise subprocess.TimeoutExpired(self.process.name, seconds or 0)
        return self.process.exitcode


def fork(
    work: Callable[..., None],
    *arguments: str,
    environment: Mapping[str, str] = os.environ,
    output: Path | None = None,
    errors: Path | None = None,
) -> Forked:
    """Start `work` in another process, whose output is appended to the given files."""
    begin = (work, arguments, dict(environment), output, errors)
    process = FORKS.Process(target=_begin, args=begin, name=work.__module__, daemon=True)
    process.start()
    return Forked(process)


def _begin(
    work: Callable[..., None],
    arguments: tuple[str, ...],
    environment: dict[str, str],
    output: Path | None,
    errors: Path | None,
) -> None:
    os.environ.clear()
    os.environ.update(environment)
    os.chdir(PROJECT)
    for stream, file in ((sys.stdout, output), (sys.stderr, errors)):
        if file:
            with file.open("ab") as opened:
                os.dup2(opened.fileno(), stream.fileno())
    work(*arguments)
