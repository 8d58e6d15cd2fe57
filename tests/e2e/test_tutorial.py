"""The commands of docs/tutorial.md, run in order, print the outputs that it shows."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from lakehouse.config.model import PROJECT
from tests.support.documentation import pattern

BLOCK = re.compile(r'^```(\w+)(?: title="([^"]+)")?\n(.*?)^```', re.MULTILINE | re.DOTALL)
TEXT = (PROJECT / "docs/tutorial.md").read_text()

# The shell's variables and folder survive from one command to the next, as in a terminal.
SHELL = 'source "$STATE" 2>/dev/null\n{}\ncode=$?\n{{ export -p; printf "cd %q\n" "$PWD"; }} > "$STATE"\nexit $code'


class Terminal:
    """A shell in an empty folder."""

    def __init__(self, folder: Path):
        self.folder, self.state = folder, folder / ".state"
        inherited = {name: value for name, value in os.environ.items() if not name.startswith("LAKEHOUSE")}
        path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
        self.environment = {**inherited, "STATE": str(self.state), "PATH": path, "COLUMNS": "120"}

    def run(self, command: str) -> str:
        result = subprocess.run(
            ["bash", "-c", SHELL.format(command)],
            cwd=self.folder,
            env=self.environment,
            capture_output=True,
            text=True,
            timeout=300,
        )
        assert result.returncode == 0, f"$ {command}\n{result.stdout}\n{result.stderr}"
        return result.stdout

    def write(self, name: str, content: str) -> None:
        """Write a file of the project; `topics` replaces that key of lakehouse.yaml."""
        path = self.folder / "shop" / name
        if name == "topics":
            path = path.with_name("lakehouse.yaml")
            content = re.sub(r"^topics:.*?(?=^environments:)", content + "\n", path.read_text(), flags=re.M | re.S)
        path.write_text(content)


@pytest.fixture
def terminal(tmp_path):
    terminal = Terminal(tmp_path)
    yield terminal
    if (tmp_path / "shop/.lakehouse").exists():
        terminal.run("lakehouse down")


def test_tutorial_commands_print_shown_output(terminal):
    for language, name, content in BLOCK.findall(TEXT):
        if name:
            terminal.write(name, content)
        if language != "console":
            continue
        for part in re.split(r"^\$ ", content, flags=re.MULTILINE)[1:]:
            command, _, expected = part.partition("\n")
            output = terminal.run(command)
            assert re.fullmatch(pattern(expected), output), f"$ {command}\n{output}\ninstead of\n{expected}"
