"""Commands on a terminal: what a silent one waits for, and the acknowledgement of Ctrl-C."""

from __future__ import annotations

import os
import pty
import select
import signal
import socket
import subprocess
import sys
import time
from contextlib import closing
from typing import TYPE_CHECKING

import pytest

from lakehouse.cli.main import INTERRUPTED
from lakehouse.cli.progress import SILENT_SECONDS

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

LAKEHOUSE = [sys.executable, "-m", "lakehouse.cli.main"]


@pytest.fixture
def silent() -> Iterator[socket.socket]:
    """A server that accepts connections and never answers."""
    with closing(socket.create_server(("127.0.0.1", 0), backlog=64)) as server:
        server.settimeout(120)
        yield server


@pytest.fixture
def environment(tmp_path: Path, silent: socket.socket) -> dict[str, str]:
    """The variables of a project whose Kafka and registry are silent."""
    address = f"127.0.0.1:{silent.getsockname()[1]}"
    (tmp_path / "lakehouse.yaml").write_text(f"""
namespace: shop
topics: {{trades: {{}}}}
environments:
  here:
    kafka: {{bootstrap_servers: "{address}"}}
    schema_registry: {{url: "http://{address}"}}
    spark: {{remote: "sc://{address}"}}
    catalog: {{type: sql, uri: "sqlite:///{tmp_path}/c.db", warehouse: "s3://w/x", region: us-east-1}}
""")
    named = {"LAKEHOUSE_CONFIG": str(tmp_path / "lakehouse.yaml"), "LAKEHOUSE_ENV": "here", "TERM": "xterm"}
    return os.environ | named


class Terminal:
    """A command on a pseudo-terminal."""

    def __init__(self, *arguments: str, environment: dict[str, str]) -> None:
        self._end, other = pty.openpty()
        self.process = subprocess.Popen(
            [*LAKEHOUSE, *arguments], env=environment, stdin=other, stdout=other, stderr=other, start_new_session=True
        )
        os.close(other)
        self.output = ""

    def wait_for(self, *texts: str, seconds: float) -> float:
        """Return the seconds until the output has one of the texts."""
        began = time.monotonic()
        while not any(text in self.output for text in texts):
            remaining = began + seconds - time.monotonic()
            assert remaining > 0, f"none of {texts} within {seconds} s in {self.output!r}"
            if select.select([self._end], [], [], remaining)[0]:
                try:
                    self.output += os.read(self._end, 4096).decode()
                except OSError:  # EIO is the end of a terminal's output.
                    pytest.fail(f"none of {texts} in {self.output!r}")
        return time.monotonic() - began

    def printed(self) -> str:
        """Return the output until now."""
        while select.select([self._end], [], [], 0)[0]:
            self.output += os.read(self._end, 4096).decode()
        return self.output

    def close(self) -> None:
        self.process.kill()
        self.process.wait()
        os.close(self._end)


def test_silent_command_names_what_it_waits_for(environment):
    with closing(Terminal("plan", "trades", environment=environment)) as terminal:
        terminal.wait_for("Waiting for the schema registry … ", seconds=120)


def test_silent_command_with_json_shows_nothing(environment, silent):
    with closing(Terminal("plan", "trades", "--json", environment=environment)) as terminal:
        silent.accept()
        time.sleep(2 * SILENT_SECONDS)
        assert terminal.printed() == ""


def test_silent_command_in_pipe_shows_nothing(environment, silent):
    command = [*LAKEHOUSE, "plan", "trades"]
    with subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT) as process:
        silent.accept()
        time.sleep(2 * SILENT_SECONDS)
        process.kill()
        assert process.stdout.read() == b""


@pytest.mark.parametrize(("command", "awaited"), [("check", "Kafka"), ("plan", "the schema registry")])
def test_interrupted_command_acknowledges_at_once(environment, command, awaited):
    with closing(Terminal(command, "trades", environment=environment)) as terminal:
        terminal.wait_for(f"Waiting for {awaited} … ", seconds=120)
        terminal.process.send_signal(signal.SIGINT)
        # A command that ends at once does not print that what is in progress ends first.
        assert terminal.wait_for("Stopping. What is in progress ends first.", "Interrupted", seconds=10) < 1
        terminal.wait_for("Interrupted", seconds=60)
        assert terminal.process.wait(60) == INTERRUPTED


def test_completion_completes_commands_and_options():
    printed = subprocess.run([*LAKEHOUSE, "--help"], capture_output=True, text=True, check=True).stdout
    assert "_LAKEHOUSE_COMPLETE=bash_source" in printed
    for words, expected in (("lakehouse vali", "validate"), ("lakehouse query --eng", "--engine")):
        variables = {"COMP_WORDS": words, "COMP_CWORD": str(words.count(" ")), "_LAKEHOUSE_COMPLETE": "bash_complete"}
        program = [sys.executable, "-c", "from lakehouse.cli.main import main; main(prog_name='lakehouse')"]
        completed = subprocess.run(program, env=os.environ | variables, capture_output=True, text=True, check=True)
        assert f"plain,{expected}" in completed.stdout.splitlines()
