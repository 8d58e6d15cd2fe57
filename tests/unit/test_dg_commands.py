"""The commands of `dg` in a project that create-dagster made."""

import os
import subprocess
from pathlib import Path

import pytest
import yaml

from tests.support.declared import declare
from tests.support.dg_commands import BIN, Dg, dg_project
from tools.repository import PROJECT


@pytest.fixture(scope="module")
def project(tmp_path_factory):
    """Return the folder of a project."""
    return tmp_path_factory.mktemp("dagster") / "sales"


@pytest.fixture(scope="module")
def dg(project):
    """Yield `dg` in the project, which has lakehouse.yaml and both components."""
    variables = {name: value for name, value in os.environ.items() if not name.startswith("LAKEHOUSE")}
    with pytest.MonkeyPatch.context() as monkeypatch, dg_project(project, {**variables, "LAKEHOUSE_ENV": "here"}) as dg:
        declare(monkeypatch, project, namespace="sales", topics={"payments": {}})
        for component in ("TopicComponent orders", "LakehouseComponent all"):
            code, output = dg(f"dg scaffold defs lakehouse.{component}")
            assert code == 0 and "Wrote" not in output, output
        yield dg


def lakehouse(project: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "LAKEHOUSE_ENV": "here", "PYTHONPATH": str(PROJECT)}
    return subprocess.run(
        [BIN / "lakehouse", *arguments], cwd=project, env=environment, capture_output=True, text=True, timeout=120
    )


def test_dg_lists_both_components(dg: Dg):
    code, output = dg("dg list components --json --package lakehouse")
    assert code == 0, output
    assert "lakehouse.TopicComponent" in output and "lakehouse.LakehouseComponent" in output


def test_dg_checks_and_lists_definitions_of_scaffolded_components(dg: Dg):
    for kind in ("yaml", "defs"):
        code, output = dg(f"dg check {kind}")
        assert code == 0, output
    code, output = dg("dg list defs --json")
    assert code == 0, output
    for key in ("orders/iceberg", "payments/iceberg"):
        assert f'"{key}"' in output
    for name in ("topic_offsets", "freshness", "automation"):
        assert output.count(f'"{name}"') == 1


def test_commands_have_topic_of_component_and_name_its_file_and_line(dg: Dg, project):
    validated = lakehouse(project, "validate")
    assert validated.returncode == 0, validated.stderr
    [defs] = project.glob("src/*/defs/orders/defs.yaml")
    scaffolded = defs.read_text()
    try:
        defs.write_text("type: lakehouse.TopicComponent\nattributes:\n  key: id\n  mode: upsrt\n")
        refused = lakehouse(project, "validate")
        code, output = dg("dg check yaml")
    finally:
        defs.write_text(scaffolded)
    assert refused.returncode == 1 and "defs/orders/defs.yaml:4: mode" in refused.stderr, refused.stderr
    assert code == 1 and "orders/defs.yaml:4" in output and "orders/defs.yaml:3" not in output, output


def test_scaffold_in_project_without_file_writes_it_for_servers(tmp_path):
    folder = tmp_path / "sales-data"
    variables = {name: value for name, value in os.environ.items() if not name.startswith("LAKEHOUSE")}
    with dg_project(folder, {**variables, "LAKEHOUSE_ENV": "dev"}) as dg:
        assert dg("dg scaffold defs lakehouse.TopicComponent orders")[0] == 0
        code, output = dg("dg check defs")
        assert code == 1 and f"There is no lakehouse.yaml in {folder}, beside pyproject.toml" in output, output
        servers = {"kafka": "broker:9092", "registry": "http://registry:8081", "catalog": "sqlite:////data/c.db"}
        options = " ".join(f"--{name} {address}" for name, address in servers.items())
        code, output = dg(f"dg scaffold defs lakehouse.LakehouseComponent lakehouse {options}")
        assert code == 0 and "Wrote lakehouse.yaml" in output, output
        assert yaml.safe_load((folder / "lakehouse.yaml").read_text())["namespace"] == "sales_data"
        [environment] = yaml.safe_load((folder / "environments.yaml").read_text()).values()
        assert environment["kafka"] == {"bootstrap_servers": "broker:9092"}
        code, output = dg("dg scaffold defs lakehouse.LakehouseComponent again --kafka other:9092")
        assert code == 1 and "lakehouse.yaml exists" in output, output
        assert "other" not in (folder / "environments.yaml").read_text()
