"""Ruff's security rules are errors, and each exception from one gives its reason on its line."""

import re
import subprocess
import tomllib

from lakehouse.config.loader import PROJECT


def test_the_rules_are_selected():
    lint = tomllib.loads((PROJECT / "pyproject.toml").read_text())["tool"]["ruff"]["lint"]
    assert "S" in lint["select"]


def test_each_exception_has_a_reason():
    listed = subprocess.run(["git", "grep", "-n", "# noqa", "--", "*.py"], cwd=PROJECT, capture_output=True, text=True)
    exceptions = [line for line in listed.stdout.splitlines() if "test_security_rules.py" not in line]
    assert exceptions
    named = [line for line in exceptions if re.search(r"# noqa: [A-Z]+\d+", line)]
    assert named == exceptions, "an exception names its rule"
    of_security = [line for line in exceptions if re.search(r"# noqa:.*\bS\d{3}\b", line)]
    assert [line for line in of_security if not re.search(r"# noqa: S\d{3}(, S\d{3})* +\S.+$", line)] == []
