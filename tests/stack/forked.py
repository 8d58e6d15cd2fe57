"""Processes that begin with the project loaded: each is forked from one that loaded it once, which takes seconds."""

from __future__ import annotations

import multiprocessing
import os
import subprocess
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from multiprocessing.process import BaseProcess
from pathlib import Path

from lakehouse.config.loader import PROJECT

FORKS = multiprocessing.get_context("forkserver")
FORKS.set_forkserver_preload(
    ["lakehouse.pipeline.derivation", "lakehouse.cli.systems", "pyiceberg.catalog.sql", "pyspark.sql.connect.session"]
)


@dataclass
class Forked:
    """A process, as subprocess.Popen would have it."""

    process: BaseProcess

    def send_signal(self, number: int) -> None:
        os.kill(self.process.pid, number)

    def kill(self) -> None:
        self.process.kill()

    def poll(self) -> int | None:
        return self.process.exitcode

    def wait(self, seconds: float | None = None) -> int:
        """How it ended: minus the signal's number where one ended it.

        Raises: TimeoutExpired when it has not.
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
    """Begin `work` in another process, which appends what it says to files where those are given."""
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
