"""Ruff's security rules, and the reasons of exceptions from them."""

import re
import subprocess
import tomllib

from tools.repository import PROJECT


def test_ruff_selects_security_rules():
    lint = tomllib.loads((PROJECT / "pyproject.toml").read_text())["tool"]["ruff"]["lint"]
    assert "S" in lint["select"]


def test_security_exception_has_rule_and_reason():
    grep = subprocess.run(["git", "grep", "-n", "# noqa", "--", "*.py"], cwd=PROJECT, capture_output=True, text=True)
    exceptions = [line for line in grep.stdout.splitlines() if "test_security_rules.py" not in line]
    assert exceptions
    with_rule = [line for line in exceptions if re.search(r"# noqa: [A-Z]+\d+", line)]
    assert with_rule == exceptions, "an exception does not name its rule"
    security_exceptions = [line for line in exceptions if re.search(r"# noqa:.*\bS\d{3}\b", line)]
    assert [line for line in security_exceptions if not re.search(r"# noqa: S\d{3}(, S\d{3})* +\S.+$", line)] == []
