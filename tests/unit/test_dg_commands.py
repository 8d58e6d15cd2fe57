"""The commands of `dg` in a project that create-dagster made."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.declared import declare

BIN = Path(sys.executable).parent
QUIET = "[cli.telemetry]\nenabled = false\n"


@pytest.fixture(scope="module")
def project(tmp_path_factory):
    """Yield a function that runs a command in a project with lakehouse.yaml and both components."""
    folder = tmp_path_factory.mktemp("dagster") / "sales"
    home = folder.parent / "home"
    home.mkdir()
    with pytest.MonkeyPatch.context() as monkeypatch:
        environment = os.environ | {
            "HOME": str(home),
            "PYTHONPATH": str(folder / "src"),
            "PATH": f"{BIN}{os.pathsep}{os.environ['PATH']}",
            "PYTHONWARNINGS": "ignore",
            "LAKEHOUSE_ENV": "here",
            "COLUMNS": "200",
            "DG_CLI_CONFIG": str(home / "dg.toml"),
        }
        (home / "dg.toml").write_text(QUIET)
        environment.pop("LAKEHOUSE_CONFIG", None)

        def run(command, *arguments, cwd=folder):
            program = [str(BIN / command), *arguments]
            return subprocess.run(program, cwd=cwd, env=environment, capture_output=True, text=True, timeout=300)

        created = run("create-dagster", "project", str(folder), "--no-uv-sync", cwd=folder.parent)
        assert created.returncode == 0, created.stderr
        declare(monkeypatch, folder, namespace="sales", topics={"payments": {}})
        for arguments in (("TopicComponent", "orders"), ("LakehouseComponent", "all")):
            scaffolded = run("dg", "scaffold", "defs", f"lakehouse.{arguments[0]}", arguments[1])
            assert scaffolded.returncode == 0, scaffolded.stdout + scaffolded.stderr
        run.folder = folder
        yield run


def test_dg_lists_both_components(project):
    listed = project("dg", "list", "components", "--json", "--package", "lakehouse")
    assert listed.returncode == 0, listed.stderr
    assert "lakehouse.TopicComponent" in listed.stdout and "lakehouse.LakehouseComponent" in listed.stdout


def test_dg_checks_and_lists_definitions_of_scaffolded_components(project):
    for kind in ("yaml", "defs"):
        checked = project("dg", "check", kind)
        assert checked.returncode == 0, checked.stdout + checked.stderr
    listed = project("dg", "list", "defs", "--json")
    assert listed.returncode == 0, listed.stderr
    for key in ("orders/iceberg", "payments/iceberg"):
        assert f'"{key}"' in listed.stdout
    for name in ("topic_offsets", "freshness", "automation"):
        assert listed.stdout.count(f'"{name}"') == 1


def test_commands_have_topic_of_component_and_name_its_file_and_line(project):
    validated = project("lakehouse", "validate")
    assert validated.returncode == 0, validated.stderr
    [defs] = project.folder.glob("src/*/defs/orders/defs.yaml")
    scaffolded = defs.read_text()
    try:
        defs.write_text("type: lakehouse.TopicComponent\nattributes:\n  mode: upsrt\n")
        refused = project("lakehouse", "validate")
        checked = project("dg", "check", "yaml")
    finally:
        defs.write_text(scaffolded)
    assert refused.returncode == 1 and "defs/orders/defs.yaml:3: mode" in refused.stderr, refused.stderr
    assert checked.returncode == 1 and "orders/defs.yaml:3" in checked.stdout + checked.stderr
