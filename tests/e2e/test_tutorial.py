"""The commands of docs/tutorial.md, run in order, print the outputs that it shows.

They share the running stack of the test session. `lakehouse up`, which would also start Dagster, and `lakehouse down`
are skipped: test_stack.py runs them.
"""

import re
from pathlib import Path

import pytest

from lakehouse.local.client_environment import environment
from tests.support.guide import Terminal, delete_topic, require_shown, steps


@pytest.fixture
def terminal(stack, tmp_path):
    delete_topic()
    yield Terminal(tmp_path, environment(stack))
    delete_topic()


def write(project: Path, name: str, content: str) -> None:
    """Write a file of the project; `topics` replaces that key of lakehouse.yaml."""
    if name == "topics":
        name = "lakehouse.yaml"
        content = re.sub(r"^topics:.*", content, (project / name).read_text(), flags=re.M | re.S)
    (project / name).write_text(content)


def test_tutorial_commands_print_shown_output(terminal, stack):
    project = terminal.folder / "shop"
    for name, content, is_file in steps("docs/tutorial.md"):
        if is_file:
            write(project, name, content)
        elif name not in ("lakehouse up", "lakehouse down"):
            require_shown(name, terminal.run(name), content)
            if name == "lakehouse init shop":
                (project / ".lakehouse").symlink_to(stack.path)
