"""Project discovery: the nearest lakehouse.yaml, imports of code from its folder, and the state folder beside it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from lakehouse import DISTRIBUTION
from lakehouse.cli.main import main
from lakehouse.config.discovery import config_path
from lakehouse.config.loader import load
from lakehouse.core.errors import ConfigError
from lakehouse.local.home import Home
from tools.repository import PROJECT

EMPTY = "namespace: shop\ntopics: {}\nenvironments: {local: {}}\n"


@pytest.fixture
def project(tmp_path, monkeypatch) -> Path:
    """A folder with a lakehouse.yaml, which is the current folder; no variable names another one."""
    for name in ("LAKEHOUSE_CONFIG", "LAKEHOUSE_ENV", "LAKEHOUSE_HOME"):
        monkeypatch.delenv(name, raising=False)
    folder = tmp_path.resolve() / "shop"
    folder.mkdir()
    (folder / "lakehouse.yaml").write_text(EMPTY)
    monkeypatch.chdir(folder)
    return folder


def run(*arguments: str) -> Result:
    return CliRunner().invoke(main, [*arguments])


@pytest.mark.parametrize("below", [".", "transforms", "a/b/c"])
def test_config_path_in_folder_of_project_is_nearest_file(project, monkeypatch, below):
    (project / below).mkdir(parents=True, exist_ok=True)
    monkeypatch.chdir(project / below)
    assert config_path() == project / "lakehouse.yaml"
    assert load().root == project
    assert Home.default().path == project / ".lakehouse"


def test_config_path_variable_has_precedence(project, monkeypatch):
    other = project.parent / "other.yaml"
    other.write_text(EMPTY)
    monkeypatch.setenv("LAKEHOUSE_CONFIG", "../other.yaml")
    assert load().file == other
    assert Home.default().path == other.parent / ".lakehouse"


def test_config_path_variable_without_file_is_refused(project, monkeypatch):
    monkeypatch.setenv("LAKEHOUSE_CONFIG", str(project / "typo.yaml"))
    with pytest.raises(ConfigError, match="LAKEHOUSE_CONFIG names .*typo.yaml, which is no file. Nothing was done"):
        config_path()


@pytest.mark.parametrize("boundary", ["repository", "home"])
def test_search_ends_at_repository_and_home(project, monkeypatch, boundary):
    inner = project / "inner" / "folder"
    inner.mkdir(parents=True)
    monkeypatch.chdir(inner)
    if boundary == "repository":
        (project / "inner" / ".git").mkdir()
    else:
        monkeypatch.setenv("HOME", str(project / "inner"))
    where = f"no lakehouse.yaml in {inner} and in the folders above it, up to {inner.parent}. .*`lakehouse init DIR`"
    with pytest.raises(ConfigError, match=where):
        config_path()


def test_file_of_other_user_is_refused(project, monkeypatch):
    owner = (project / "lakehouse.yaml").stat().st_uid
    if owner == 0:
        os.chown(project / "lakehouse.yaml", 12345, -1)
    else:
        monkeypatch.setattr(os, "geteuid", lambda: owner + 1)
    with pytest.raises(ConfigError, match="belongs to another user.*Set LAKEHOUSE_CONFIG"):
        config_path()
    monkeypatch.setenv("LAKEHOUSE_CONFIG", str(project / "lakehouse.yaml"))
    assert config_path() == project / "lakehouse.yaml"


def test_removed_current_folder_is_reported(project, monkeypatch):
    gone = project / "gone"
    gone.mkdir()
    monkeypatch.chdir(gone)
    gone.rmdir()
    with pytest.raises(ConfigError, match="does not exist any more"):
        config_path()


def test_command_outside_of_project_names_where_it_searched(project):
    (project / "lakehouse.yaml").unlink()
    (project / ".git").mkdir()
    for command in (["validate"], ["down"], ["up"]):
        result = run(*command)
        assert result.exit_code == 1
        assert f"There is no lakehouse.yaml in {project}" in result.output and "lakehouse init" in result.output
    assert run("up", "--help").exit_code == 0


def test_state_folder_has_its_own_ignore_file(project):
    Home.default().folder("logs")
    assert (project / ".lakehouse" / ".gitignore").read_text() == "*\n"
    subprocess.run(["git", "init", "--quiet"], check=True)
    status = subprocess.run(["git", "status", "--short"], capture_output=True, text=True, check=True)
    assert status.stdout.split() == ["??", "lakehouse.yaml"]


def test_option_config_is_inherited_by_subprocesses(project, monkeypatch):
    monkeypatch.setenv("LAKEHOUSE_CONFIG", "")
    monkeypatch.setenv("LAKEHOUSE_ENV", "")
    (project.parent / "other.yaml").write_text(EMPTY.replace("local", "aws"))
    result = run("--config", "../other.yaml", "--env", "aws", "--verbose", "down")
    assert result.exit_code == 0, result.output
    assert f"Using {project.parent}/other.yaml, environment aws" in result.stderr
    assert os.environ["LAKEHOUSE_CONFIG"] == f"{project.parent}/other.yaml"
    assert os.environ["LAKEHOUSE_ENV"] == "aws"


def test_changing_command_prints_configuration_unless_obvious(project, monkeypatch):
    assert run("down").stderr == ""
    (project / "transforms").mkdir()
    monkeypatch.chdir(project / "transforms")
    assert run("down").stderr == f"Using {project}/lakehouse.yaml, environment local\n"
    monkeypatch.chdir(project)
    monkeypatch.setenv("LAKEHOUSE_ENV", "aws")
    assert run("down").stderr == f"Using {project}/lakehouse.yaml, environment aws\n"


def test_version_is_that_of_distribution():
    result = run("--version")
    assert result.exit_code == 0 and result.output.startswith(f"{DISTRIBUTION} 0.")


def test_code_location_uses_project_of_its_working_directory(project, monkeypatch):
    """Dagster puts the working directory of a code location first while it imports the module."""
    monkeypatch.chdir(PROJECT)
    environments = (PROJECT / "lakehouse.yaml").read_text().partition("\nenvironments:")[2]
    (project / "lakehouse.yaml").write_text(f"namespace: shop\ntopics: {{orders: {{}}}}\nenvironments:{environments}")
    command = [Path(sys.executable).with_name("dagster"), "asset", "list", "-m", "lakehouse.definitions", "-d", project]
    result = subprocess.run(command, capture_output=True, text=True)
    assert [line for line in result.stdout.split() if "/iceberg" in line] == ["orders/iceberg"], result.stderr


@pytest.mark.parametrize("kind", ["folder", "loop"])
def test_config_path_that_is_no_file_is_reported(tmp_path, monkeypatch, kind):
    monkeypatch.delenv("LAKEHOUSE_CONFIG", raising=False)
    path = tmp_path / "lakehouse.yaml"
    path.mkdir() if kind == "folder" else path.symlink_to(path)
    with pytest.raises(ConfigError, match=f"{path} is (a folder|no file, or a link).*Replace it"):
        config_path(tmp_path)
