"""Comparison of two builds: this checkout and another one, each with its own interpreter and libraries."""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TextIO

from rich.console import Console
from rich.table import Table

from lakehouse.local.home import Home
from lakehouse.local.processes import ports
from tools.repository import PROJECT

WORKER = Path(__file__).with_name("ingest_worker.py")


def python_of(checkout: Path) -> Path:
    """Return the interpreter of a checkout; end the program if it has none."""
    python = checkout / ".venv/bin/python"
    if not python.exists():
        sys.exit(f"{checkout} has no {python.relative_to(checkout)}. Nothing was measured. Run `make venv` there")
    return python


@dataclass
class Build:
    """A process of a build that ingests batches on request, with its own Spark server."""

    name: str
    process: subprocess.Popen[str]
    log: Path

    def ask(self, **request: Any) -> dict[str, Any]:
        """Send a request, and return its response; end the program if there is none."""
        try:
            _pipe(self.process.stdin).write(json.dumps(request) + "\n")
            _pipe(self.process.stdin).flush()
        except BrokenPipeError:
            pass  # the response is missing, too
        response = _pipe(self.process.stdout).readline()
        if not response:
            sys.exit(f"{self.name} ended:\n{self.log.read_text()[-3000:]}")
        return dict(json.loads(response))


@contextmanager
def spark_of(checkout: Path, stack: Home, variables: Mapping[str, str]) -> Iterator[tuple[Home, dict[str, str]]]:
    """Start a Spark server of a build, beside the other servers of a running stack.

    Spark's Python workers load the project's decoders, so both builds need a server of their own.

    Args:
        checkout: The folder of the build.
        stack: The state folder of the stack.
        variables: The variables of the stack's clients.

    Yields:
        The state folder of the server, and the environment of processes that use it.
    """
    python = python_of(checkout)
    with tempfile.TemporaryDirectory(prefix="lakehouse-") as folder:
        home = Home(Path(folder, "home"))
        home.folder("")
        # Spark reads S3 with the stack's credentials.
        (home.path / "secrets").symlink_to(stack.path / "secrets")
        of_build = {"LAKEHOUSE_HOME": str(home.path), "PYTHONUNBUFFERED": "1", "PYTHONPATH": str(checkout)}
        environment = {**os.environ, **of_build}

        def run(*command: str) -> None:
            full = [str(python), "-P", "-m", "lakehouse.cli.main", *command]
            done = subprocess.run(full, cwd=checkout, env=environment, capture_output=True, text=True)
            if done.returncode:
                sys.exit(f"`lakehouse {' '.join(command)}` of {checkout} failed:\n{done.stdout}{done.stderr}")

        run("up", "--only", "spark")
        try:
            remote = {"SPARK_REMOTE": f"sc://localhost:{ports.recorded(home)['spark']}"}
            yield home, {**environment, **variables, **remote, "LAKEHOUSE_ENV": "local"}
        finally:
            run("down")


@contextmanager
def started(checkout: Path, name: str, stack: Home, variables: Mapping[str, str]) -> Iterator[Build]:
    """Start a Spark server of a build and a process that ingests with it.

    Args:
        checkout: The folder of the build.
        name: The name of the build, also of the namespaces of its tables.
        stack: The state folder of the stack.
        variables: The variables of the stack's clients.
    """
    python = python_of(checkout)
    with spark_of(checkout, stack, variables) as (home, environment):
        log = home.path / "worker.log"
        with log.open("w") as errors:
            process = subprocess.Popen(
                [str(python), "-P", str(WORKER)],
                cwd=checkout,
                env=environment,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
            )
        try:
            build = Build(name, process, log)
            loaded = Path(build.ask()["folder"])
            if loaded != checkout:
                sys.exit(f"{python} loads lakehouse from {loaded}. Nothing was measured. Run `make venv` there")
            yield build
        finally:
            _pipe(process.stdin).close()
            process.wait(timeout=60)


def _pipe(pipe: Any) -> TextIO:
    assert pipe is not None
    return pipe


def print_comparison(unit: str, measured: Mapping[str, Mapping[str, Sequence[float]]], checkout: Path) -> None:
    """Print medians of both builds, and of the ratio of each pair of measurements, with the lowest and highest value.

    Args:
        unit: The unit of the measurements.
        measured: Measurements of each build (`this`, `other`) in the order of the rounds, by case.
        checkout: The folder of the other build.
    """
    table = Table("case", f"this build, {unit}", f"{checkout.name}, {unit}", "ratio", title=f"{PROJECT} / {checkout}")
    for case, by_build in measured.items():
        this, other = by_build["this"], by_build["other"]
        ratios = [a / b for a, b in zip(this, other, strict=True)]
        table.add_row(case, _spread(this), _spread(other), _spread(ratios))
    Console().print(table)


def _spread(values: Sequence[float]) -> str:
    low, middle, high = (
        f"{value:,.0f}" if value >= 100 else f"{value:.2f}"
        for value in (min(values), statistics.median(values), max(values))
    )
    return f"{middle} ({low} to {high})"
