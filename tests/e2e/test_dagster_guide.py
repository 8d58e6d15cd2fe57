"""The commands of docs/dagster.md, run in order in a project of create-dagster, print the outputs that it shows.

The installation is skipped, and so are `lakehouse up`, `lakehouse down` and `dg dev`, which start and stop servers.
"""

import os

import boto3
import dagster
import pytest

from lakehouse.local.client_environment import BUCKET, environment
from tests.support.dg_commands import dg_project
from tests.support.documentation import block
from tests.support.guide import Terminal, delete_topic, require_shown, steps

SERVERS = ("lakehouse up ", "lakehouse down", "dg dev")
IN_STACK = "lakehouse run "
TRIAL = {"order.avsc", "produce.py"}
"""Files of the tutorial, which the page uses."""
SECRETS = ("AWS_SECRET_ACCESS_KEY", "SPARK_CONNECT_AUTHENTICATE_TOKEN")


def logs():
    """Return the logs of steps in S3, by their keys."""
    client = boto3.client("s3")
    objects = client.list_objects_v2(Bucket=BUCKET, Prefix="dagster/").get("Contents", [])
    bodies = {item["Key"]: client.get_object(Bucket=BUCKET, Key=item["Key"])["Body"] for item in objects}
    return {key: body.read().decode() for key, body in bodies.items()}


@pytest.fixture
def terminal(stack, tmp_path):
    delete_topic()
    terminal = Terminal(tmp_path, environment(stack))
    (terminal.folder / "dagster").mkdir()
    settings = block("docs/dagster.md", "yml", "compute_logs:")
    (terminal.folder / "dagster/dagster.yaml").write_text(settings)
    yield terminal
    delete_topic()


def test_dagster_guide_commands_print_shown_output(terminal, stack, monkeypatch):
    project, home = terminal.folder / "sales", terminal.folder / "dagster"
    variables = {name: value for name, value in os.environ.items() if not name.startswith("LAKEHOUSE")}
    before = logs().keys()
    settings = {"DAGSTER_HOME": str(home), "LOGS_BUCKET": BUCKET}
    with dg_project(project, {**variables, **environment(stack), **settings}) as dg:
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
    monkeypatch.setenv("LOGS_BUCKET", BUCKET)
    with dagster.DagsterInstance.from_config(str(home)) as instance:
        counts = {name: _metadata(instance, name) for name in ("revenue", "end_offset")}
    assert counts == {"revenue": {"orders": 2}, "end_offset": {"end": 2}}
    written = {key: text for key, text in logs().items() if key not in before}
    assert any("orders: 2 records replayed from 2026-01-31T00:00:00Z" in text for text in written.values()), written
    secrets = {environment(stack)[name] for name in SECRETS}
    assert not [key for key, text in written.items() if any(secret in text for secret in secrets)]


def _metadata(instance: dagster.DagsterInstance, asset: str) -> dict[str, object]:
    event = instance.get_latest_materialization_event(dagster.AssetKey(asset))
    assert event and event.asset_materialization
    return {name: value.value for name, value in event.asset_materialization.metadata.items() if "/" not in name}
