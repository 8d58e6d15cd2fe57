"""The commands of docs/tutorial.md, run in order, print the outputs that it shows.

They share the running stack of the test session. `lakehouse up`, which would also start Dagster, and `lakehouse down`
are skipped: test_stack.py runs them.
"""

import os
import re
import subprocess
import sys
from collections.abc import Collection
from pathlib import Path

import pytest

from lakehouse.core.polling import poll
from lakehouse.local.client_environment import environment
from tests.support.documentation import pattern
from tests.support.topics import admin, registry
from tools.repository import PROJECT

BLOCK = re.compile(r'^```(\w+)(?: title="([^"]+)")?\n(.*?)^```', re.MULTILINE | re.DOTALL)
TEXT = (PROJECT / "docs/tutorial.md").read_text()

# The shell's variables and folder survive from one command to the next, as in a terminal.
SHELL = 'source "$STATE" 2>/dev/null\n{}\ncode=$?\n{{ export -p; printf "cd %q\n" "$PWD"; }} > "$STATE"\nexit $code'


class Terminal:
    """A shell in an empty folder."""

    def __init__(self, folder: Path, hidden: Collection[str]):
        """Begin without the variables with these names, and those of the project."""
        self.folder, self.state = folder, folder / ".state"
        inherited = {name: value for name, value in os.environ.items() if name not in hidden}
        inherited = {name: value for name, value in inherited.items() if not name.startswith("LAKEHOUSE")}
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
            content = re.sub(r"^topics:.*", content, path.read_text(), flags=re.M | re.S)
        path.write_text(content)


TOPIC, SUBJECT = "orders", "orders-value"


def delete_topic():
    """Delete the tutorial's topic and schemas, whose names other tests use, too."""
    if TOPIC in admin().list_topics(timeout=20).topics:
        admin().delete_topics([TOPIC])[TOPIC].result()
        assert poll(lambda: TOPIC not in admin().list_topics(timeout=20).topics, pause=0.1, deadline_seconds=20)
    if SUBJECT in registry().get_subjects():
        registry().delete_subject(SUBJECT)


@pytest.fixture
def terminal(stack, tmp_path):
    delete_topic()
    yield Terminal(tmp_path, environment(stack))
    delete_topic()


def test_tutorial_commands_print_shown_output(terminal, stack):
    for language, name, content in BLOCK.findall(TEXT):
        if name:
            terminal.write(name, content)
        if language != "console":
            continue
        for part in re.split(r"^\$ ", content, flags=re.MULTILINE)[1:]:
            command, _, expected = part.partition("\n")
            if command in ("lakehouse up", "lakehouse down"):
                continue
            output = terminal.run(command)
            if command == "lakehouse init shop":
                (terminal.folder / "shop/.lakehouse").symlink_to(stack.path)
            assert re.fullmatch(pattern(expected), output), f"$ {command}\n{output}\ninstead of\n{expected}"
