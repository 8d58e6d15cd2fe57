"""The commands of docs/dagster.md, run in order in a project of create-dagster, print the outputs that it shows.

The installation is skipped, and so are `lakehouse up`, `lakehouse down` and `dg dev`, which start and stop servers.
"""

import os

import dagster
import pytest

from lakehouse.local.client_environment import environment
from tests.support.dg_commands import dg_project
from tests.support.guide import Terminal, delete_topic, require_shown, steps

SERVERS = ("lakehouse up ", "lakehouse down", "dg dev")
IN_STACK = "lakehouse run "
TRIAL = {"order.avsc", "produce.py"}
"""Files of the tutorial, which the page uses."""


@pytest.fixture
def terminal(stack, tmp_path):
    delete_topic()
    terminal = Terminal(tmp_path, environment(stack))
    (terminal.folder / "dagster").mkdir()
    (terminal.folder / "dagster/dagster.yaml").write_text("telemetry: {enabled: false}")
    yield terminal
    delete_topic()


def test_dagster_guide_commands_print_shown_output(terminal, stack):
    project, home = terminal.folder / "sales", terminal.folder / "dagster"
    variables = {name: value for name, value in os.environ.items() if not name.startswith("LAKEHOUSE")}
    with dg_project(project, {**variables, **environment(stack), "DAGSTER_HOME": str(home)}) as dg:
        (project / ".lakehouse").symlink_to(stack.path)
        for name, content, is_file in steps("docs/tutorial.md"):
            if is_file and name in TRIAL:
                (project / name).write_text(content)
        terminal.run(f"cd {project}")
        for name, content, is_file in steps("docs/dagster.md"):
            command = name.removeprefix(IN_STACK)
            if is_file:
                (project / name).write_text(content)
            elif command.startswith(SERVERS):
                continue
            elif command.startswith("dg "):
                code, output = dg(command)
                assert code == 0, f"$ {command}\n{output}"
                require_shown(name, output, content)
            else:
                require_shown(name, terminal.run(name), content)
    with dagster.DagsterInstance.from_config(str(home)) as instance:
        counts = {name: _metadata(instance, name) for name in ("revenue", "end_offset")}
    assert counts == {"revenue": {"orders": 2}, "end_offset": {"end": 2}}


def _metadata(instance: dagster.DagsterInstance, asset: str) -> dict[str, object]:
    event = instance.get_latest_materialization_event(dagster.AssetKey(asset))
    assert event and event.asset_materialization
    return {name: value.value for name, value in event.asset_materialization.metadata.items() if "/" not in name}
