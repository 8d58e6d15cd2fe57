"""The Makefile's choice of the interpreter of the virtual environment."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from tools.repository import PROJECT


@pytest.mark.parametrize(
    ("existing", "arguments", "used"),
    [(False, [], "python3"), (True, [], ".venv/bin/python"), (True, ["PYTHON=python3.12"], "python3.12")],
)
def test_make_venv_after_lock_change_keeps_interpreter(existing: bool, arguments: list[str], used: str, tmp_path: Path):
    shutil.copy(PROJECT / "Makefile", tmp_path)
    for name in ("requirements.lock", "pyproject.toml"):
        (tmp_path / name).touch()
    if existing:
        python = tmp_path / ".venv/bin/python"
        python.parent.mkdir(parents=True)
        python.touch(mode=0o755)
    inherited = ("PYTHON", "MAKEFLAGS", "MFLAGS", "MAKELEVEL", "MAKEOVERRIDES")
    environment = {name: value for name, value in os.environ.items() if name not in inherited}
    command = ["make", "--dry-run", "venv", *arguments]
    shown = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=True).stdout
    assert shown.splitlines()[0] == f"{used} -m venv .venv"
