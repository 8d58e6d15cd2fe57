"""Commands of `dg` in one process: `python -m tests.support.dg_commands` reads them as JSON, one in a line.

A process of its own for each command takes ten seconds, in which it imports the libraries whose components it offers.
"""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import sys
import traceback
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from click.testing import CliRunner

from tools.repository import PROJECT

BIN = Path(sys.executable).parent


class Dg:
    """The process."""

    def __init__(self, process: subprocess.Popen[str]):
        self._process = process

    def __call__(self, command: str) -> tuple[int, str]:
        """Run a command, such as `dg check yaml`, and return its exit code and its output."""
        assert self._process.stdin and self._process.stdout
        program, *arguments = shlex.split(command)
        assert program == "dg"
        print(json.dumps(arguments), file=self._process.stdin, flush=True)
        code, output = json.loads(self._process.stdout.readline())
        return code, output


@contextmanager
def dg_project(folder: Path, variables: Mapping[str, str]) -> Iterator[Dg]:
    """Make a project by create-dagster, and yield `dg` in it.

    Args:
        folder: The folder of the project, which does not exist. Its parent becomes the home folder.
        variables: The variables of the environment.
    """
    settings = folder.with_name("dg.toml")
    settings.write_text("[cli.telemetry]\nenabled = false\n")
    environment = {
        **variables,
        "HOME": str(folder.parent),
        "PATH": f"{BIN}{os.pathsep}{variables['PATH']}",
        "PYTHONPATH": f"{folder / 'src'}{os.pathsep}{PROJECT}",
        "PYTHONWARNINGS": "ignore",
        "DG_CLI_CONFIG": str(settings),
        "COLUMNS": "200",
    }
    create = [BIN / "create-dagster", "project", folder, "--no-uv-sync"]
    created = subprocess.run(create, env=environment, capture_output=True, text=True, timeout=120)
    assert created.returncode == 0, created.stderr
    # With -P, the project's package `tests` does not hide this one.
    with subprocess.Popen(
        [sys.executable, "-P", "-m", "tests.support.dg_commands"],
        cwd=folder,
        env=environment,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        yield Dg(process)
        process.communicate(timeout=60)


def main() -> None:
    """Run commands until standard input ends."""
    from dagster_dg_cli.cli import cli

    for line in sys.stdin:
        result = CliRunner().invoke(cli, json.loads(line))
        failure = (
            [] if isinstance(result.exception, SystemExit | None) else traceback.format_exception(result.exception)
        )
        print(json.dumps([result.exit_code, "".join([result.output, *failure])]), flush=True)


if __name__ == "__main__":
    main()
