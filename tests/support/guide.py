"""A page of the documentation that is run in a terminal, command by command, with the files that it shows."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Collection, Iterator
from pathlib import Path

from lakehouse.core.polling import poll
from tests.support.documentation import pattern
from tests.support.topics import admin, registry
from tools.repository import PROJECT

_BLOCK = re.compile(r'^```(\w+)(?: title="([^"]+)")?\n(.*?)^```', re.MULTILINE | re.DOTALL)

# The shell's variables and folder survive from one command to the next, as in a terminal.
_SHELL = 'source "$STATE" 2>/dev/null\n{}\ncode=$?\n{{ export -p; printf "cd %q\\n" "$PWD"; }} > "$STATE"\nexit $code'

TOPIC, SUBJECT = "orders", "orders-value"
"""The topic of the guides, and the subject of its schemas."""


def steps(page: str) -> Iterator[tuple[str, str, bool]]:
    """Yield the steps of a page: the name and content of a file, or a command and its output, and True for a file."""
    for language, name, content in _BLOCK.findall((PROJECT / page).read_text()):
        if name:
            yield name, content, True
        elif language == "console":
            for part in re.split(r"^\$ ", content, flags=re.MULTILINE)[1:]:
                command, _, expected = part.partition("\n")
                yield command, expected, False


def require_shown(command: str, output: str, expected: str) -> None:
    """Require that the output of a command is the one that its page shows."""
    assert re.fullmatch(pattern(expected), output), f"$ {command}\n{output}\ninstead of\n{expected}"


class Terminal:
    """A shell in a folder."""

    def __init__(self, folder: Path, hidden: Collection[str]):
        """Begin without the variables with these names, and those of the project."""
        self.folder, self.state = folder, folder / ".state"
        inherited = {name: value for name, value in os.environ.items() if name not in hidden}
        inherited = {name: value for name, value in inherited.items() if not name.startswith("LAKEHOUSE")}
        path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
        self.environment = {**inherited, "STATE": str(self.state), "PATH": path, "COLUMNS": "120"}

    def run(self, command: str) -> str:
        """Run a command, which must succeed, and return its output."""
        result = subprocess.run(
            ["bash", "-c", _SHELL.format(command)],
            cwd=self.folder,
            env=self.environment,
            capture_output=True,
            text=True,
            timeout=300,
        )
        assert result.returncode == 0, f"$ {command}\n{result.stdout}\n{result.stderr}"
        return result.stdout


def delete_topic() -> None:
    """Delete the topic and schemas of the guides, whose names other tests use, too."""
    if TOPIC in admin().list_topics(timeout=20).topics:
        admin().delete_topics([TOPIC])[TOPIC].result()
        assert poll(lambda: TOPIC not in admin().list_topics(timeout=20).topics, pause=0.1, deadline_seconds=20)
    if SUBJECT in registry().get_subjects():
        registry().delete_subject(SUBJECT)
