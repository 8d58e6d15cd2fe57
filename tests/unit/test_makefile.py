"""Creation of the virtual environment by the Makefile."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from tools.repository import PROJECT

FAKE = """#!/bin/sh
case "$1" in -c) exit {accepted};; esac
echo "$@" >> calls
[ "$2" != venv ] || mkdir -p .venv/bin
[ "$2" = venv ]
"""
"""An interpreter that creates a virtual environment, and fails to install anything."""


@pytest.fixture
def make(tmp_path):
    """A function that runs `make venv` in a folder with the Makefile and empty locks."""
    shutil.copy(PROJECT / "Makefile", tmp_path)
    for name in ("requirements.lock", "pyproject.toml"):
        (tmp_path / name).touch()
    inherited = ("PYTHON", "MAKEFLAGS", "MFLAGS", "MAKELEVEL", "MAKEOVERRIDES")
    environment = {name: value for name, value in os.environ.items() if name not in inherited}

    def run(*arguments):
        command = ["make", *arguments, "venv"]
        return subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)

    return run


def fake(file: Path, *, accepted: int = 0) -> str:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(FAKE.format(accepted=accepted))
    file.chmod(0o755)
    return str(file)


@pytest.mark.parametrize(
    ("existing", "arguments", "used"),
    [
        (False, [], "python3 -m venv --clear .venv"),
        (True, [], ".venv/bin/python -m venv .venv"),
        (True, ["PYTHON=python3.12"], "python3.12 -m venv --clear .venv"),
    ],
)
def test_make_venv_after_lock_change_keeps_interpreter(make, existing, arguments, used, tmp_path):
    if existing:
        fake(tmp_path / ".venv/bin/python")
    assert used in make("--dry-run", *arguments).stdout


def test_make_venv_with_another_version_creates_nothing(make, tmp_path):
    result = make(f"PYTHON={fake(tmp_path / 'python3.10', accepted=1)}")
    assert result.returncode == 2 and not (tmp_path / ".venv").exists()
    assert result.stdout.splitlines() == [
        f"{tmp_path}/python3.10 is not Python 3.11, 3.12 or 3.13. Nothing was installed. Run `make venv "
        f"PYTHON=python3.12`, with a version that is installed"
    ]


def test_make_venv_that_fails_removes_what_it_created(make, tmp_path):
    result = make(f"PYTHON={fake(tmp_path / 'python')}")
    assert result.returncode == 2 and not (tmp_path / ".venv").exists()
    assert result.stdout.splitlines() == ["Installing the packages of requirements.lock in .venv"]


def test_make_venv_that_fails_keeps_an_existing_environment(make, tmp_path):
    fake(tmp_path / ".venv/bin/python")
    assert make().returncode == 2
    assert (tmp_path / ".venv/bin/python").exists()
    assert (tmp_path / "calls").read_text().splitlines()[0] == "-m venv .venv"
