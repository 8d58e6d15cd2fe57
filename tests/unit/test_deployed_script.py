"""The deployment script that the workflow runs with secrets: its commands, and the deletion of the private key."""

import os
import subprocess

import pytest

from tools.repository import PROJECT

LAKEHOUSE = """#!/bin/bash
printf '%s ' "$@" >> "$RUNNER_TEMP/calls"
stat -c '%a' "$SNOWFLAKE_PRIVATE_KEY_PATH" >> "$RUNNER_TEMP/calls"
cp "$SNOWFLAKE_PRIVATE_KEY_PATH" "$RUNNER_TEMP/received"
env > "$RUNNER_TEMP/environment"
test "$1" != "$FAILS"
"""


@pytest.mark.parametrize("fails", ["", "plan"])
def test_deployed_script_key_file_is_private_and_deleted(tmp_path, fails):
    checkout, temp = tmp_path / "checkout", tmp_path / "temp"
    for folder in (checkout / ".github", checkout / ".venv" / "bin", temp):
        folder.mkdir(parents=True)
    script = checkout / ".github" / "deployed"
    script.write_text((PROJECT / ".github" / "deployed").read_text())
    lakehouse = checkout / ".venv" / "bin" / "lakehouse"
    lakehouse.write_text(LAKEHOUSE)
    for program in (script, lakehouse):
        program.chmod(0o755)
    environment = {"PATH": os.environ["PATH"], "RUNNER_TEMP": str(temp), "SNOWFLAKE_PRIVATE_KEY": "key\nof two lines"}

    result = subprocess.run([script], env={**environment, "FAILS": fails}, cwd=tmp_path)

    calls = [
        "validate 600",
        "plan 600",
        "dry-run --junit reports/dry-run.xml 600",
        "check --junit reports/checks.xml 600",
    ]
    assert result.returncode == (1 if fails else 0)
    assert (temp / "calls").read_text().splitlines() == (calls[:2] if fails else calls)
    assert (temp / "received").read_text() == "key\nof two lines\n"
    assert "SNOWFLAKE_PRIVATE_KEY=" not in (temp / "environment").read_text()
    assert {path.name for path in temp.iterdir()} == {"calls", "received", "environment"}
    assert [path for path in checkout.rglob("*") if "pem" in path.name] == []
