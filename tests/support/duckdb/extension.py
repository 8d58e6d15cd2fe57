"""DuckDB with its Iceberg extension, in an environment of its own.

The extension is published as a package for older releases than the DuckDB of requirements.lock only. DuckDB itself
downloads extensions from a server of its own, whose files no lock pins.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

LOCK = Path(__file__).with_name("duckdb.lock")
PROGRAM = """
import json, sys
from importlib.resources import files
import duckdb

folder, statements = sys.argv[1:]
connection = duckdb.connect(config={"extension_directory": folder})
connection.execute("SET enable_progress_bar = false")
for name in ("avro", "httpfs", "iceberg"):
    [file] = files(f"duckdb_extension_{name}").joinpath("extensions").rglob("*.duckdb_extension")
    connection.execute(f"INSTALL '{file}'")
print(json.dumps(connection.execute(statements).fetchone()))
"""


@pytest.fixture(scope="session")
def duckdb_with_iceberg(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], list[int]]:
    """Return a function that runs statements in a new process and returns the row of the last."""
    folder = tmp_path_factory.mktemp("duckdb")
    python, uv = folder / "venv/bin/python", Path(sys.executable).with_name("uv")
    for arguments in (
        ["venv", "--quiet", "--python", sys.executable, folder / "venv"],
        ["pip", "install", "--quiet", "--python", python, "--require-hashes", "--no-deps", "-r", LOCK],
    ):
        subprocess.run([uv, *arguments], check=True)

    def run(statements: str) -> list[int]:
        command = [python, "-c", PROGRAM, folder / "extensions", statements]
        done = subprocess.run(command, capture_output=True, text=True, timeout=120)
        assert done.returncode == 0, done.stderr
        row: list[int] = json.loads(done.stdout)
        return row

    return run
