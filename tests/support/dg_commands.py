"""Commands of `dg` in one process: `python -m tests.support.dg_commands` reads them as JSON, one in a line.

A process of its own for each command takes ten seconds, in which it imports the libraries whose components it offers.
"""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import sys
import tempfile
import traceback
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from pathlib import Path

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
    """Run commands until standard input ends.

    Their output goes to a file, as that of other processes would: Dagster captures the descriptors of a step's logs.
    """
    from dagster_dg_cli.cli import cli

    with os.fdopen(os.dup(1), "w") as answers:
        for line in sys.stdin:
            with tempfile.TemporaryFile("w+") as output:
                for descriptor in (1, 2):
                    os.dup2(output.fileno(), descriptor)
                code = _code_of(partial(cli, json.loads(line)))
                output.seek(0)
                print(json.dumps([code, output.read()]), file=answers, flush=True)


def _code_of(command: Callable[[], object]) -> int:
    try:
        command()
    except SystemExit as end:
        return int(end.code or 0)
    except Exception:
        traceback.print_exc()
        return 1
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
    return 0


if __name__ == "__main__":
    main()
