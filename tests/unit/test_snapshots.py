"""The configuration that runs get from the code server while its files are being edited."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from lakehouse.config import snapshots
from tools.repository import PROJECT

SCHEMA = '{"type": "object", "properties": {"id": {"type": "integer"}}}'
FILE = """namespace: shop
topics:
  orders: {key: id, value_format: json, value_schema_file: orders.json}
  totals: {}
environments: {}
"""
SERVER = """
import pathlib, subprocess, sys
from lakehouse.config import snapshots
print(*snapshots.load().topics)
file = pathlib.Path("lakehouse.yaml")
file.write_text(file.read_text() + "  totals: {from: ")
pathlib.Path("orders.json").unlink()
for name, text in {"old": "{name: sums", "new": "{name: "}.items():
    component = pathlib.Path("shop", "defs", name, "defs.yaml")
    component.parent.mkdir(parents=True, exist_ok=True)
    component.write_text("type: lakehouse.TopicComponent\\nattributes: " + text)
subprocess.run([sys.executable, "-c", sys.argv[1]], check=True)
"""
RUN = """
from lakehouse.config import snapshots
config = snapshots.load()
print(*config.topics, config.topics["orders"].value_schema, config.root, config.topics["orders"].line)
"""


@pytest.fixture
def project(tmp_path):
    """A project with two topics in its file and one in a component, and a Dagster home."""
    (tmp_path / "home").mkdir()
    (tmp_path / "lakehouse.yaml").write_text(FILE)
    (tmp_path / "orders.json").write_text(SCHEMA)
    (tmp_path / "pyproject.toml").write_text('[tool.dg.project]\nroot_module = "shop"\n')
    (tmp_path / "shop" / "defs" / "old").mkdir(parents=True)
    component = "type: lakehouse.TopicComponent\nattributes: {name: carts}\n"
    (tmp_path / "shop" / "defs" / "old" / "defs.yaml").write_text(component)
    return tmp_path


def python(project: Path, code: str, *arguments: str, **variables: str) -> subprocess.CompletedProcess[str]:
    """Run code in a process as Dagster starts one."""
    variables |= {"LAKEHOUSE_CONFIG": str(project / "lakehouse.yaml"), "PYTHONPATH": str(PROJECT)}
    environment = {name: value for name, value in os.environ.items() if name != snapshots.VARIABLE} | variables
    command = [sys.executable, "-c", code, *arguments]
    return subprocess.run(command, cwd=project, env=environment, capture_output=True, text=True)


def test_run_uses_the_files_that_its_code_server_validated(project):
    result = python(project, SERVER, RUN, DAGSTER_HOME=str(project / "home"))
    assert result.returncode == 0, result.stderr
    assert result.stdout.splitlines()[-1] == f"orders totals carts {SCHEMA} {project} 3"


def test_run_without_dagster_home_reads_the_files_and_names_the_line(project):
    result = python(project, SERVER, RUN, DAGSTER_HOME="")
    assert result.returncode != 0
    assert "ConfigError: lakehouse.yaml:6: not valid YAML" in result.stderr


def test_code_server_that_starts_again_reads_the_files_again(project):
    home = str(project / "home")
    assert (
        python(project, "from lakehouse.config import snapshots; snapshots.load()", DAGSTER_HOME=home).returncode == 0
    )
    (project / "lakehouse.yaml").write_text(FILE.replace("totals", "sums"))
    shown = "from lakehouse.config import snapshots\nsnapshots.load()\nprint(*snapshots.load().topics)"
    assert python(project, shown, DAGSTER_HOME=home).stdout == "orders sums carts\n"
    records = [*(project / "home" / snapshots.FOLDER).iterdir()]
    assert len(records) == 2 and {record.stat().st_mode & 0o777 for record in records} == {0o600}


def test_record_of_another_file_is_not_used(project):
    home = str(project / "home")
    store = "from lakehouse.config import snapshots; import os; snapshots.load(); print(os.environ[snapshots.VARIABLE])"
    variable = python(project, store, DAGSTER_HOME=home).stdout.strip()
    other = project / "other"
    other.mkdir()
    (other / "lakehouse.yaml").write_text("namespace: shop\ntopics: {users: {}}\nenvironments: {}\n")
    shown = "from lakehouse.config import snapshots\nprint(*snapshots.load().topics)"
    assert python(other, shown, **{snapshots.VARIABLE: variable}).stdout == "users\n"
