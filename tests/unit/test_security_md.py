"""SECURITY.md: each control names an existing test."""

import ast
import re

import pytest

from tools.repository import PROJECT

TEXT = (PROJECT / "SECURITY.md").read_text()
NAMED = sorted(set(re.findall(r"`(tests/[\w/]+\.py)(?:::(\w+))?`", TEXT)))
ROWS = re.findall(r"^\| .+ \| .+ \| (.+) \|$", TEXT[TEXT.index("## Threats") :], flags=re.MULTILINE)


@pytest.mark.parametrize("path, name", NAMED)
def test_named_test_exists(path, name):
    tree = ast.parse((PROJECT / path).read_text())
    functions = {node.name for node in tree.body if isinstance(node, ast.FunctionDef)}
    assert name in functions if name else any(function.startswith("test_") for function in functions)


def test_controls_name_a_test():
    evidence = [row for row in ROWS if row not in ("shown by", "---")]
    assert len(evidence) > 20
    assert [row for row in evidence if not re.match(r"`tests/", row)] == []


def test_threat_model_has_a_section_for_each_role():
    for role in (
        "Schema author",
        "Producer",
        "Dashboard user",
        "Another user of the machine",
        "A web page in the developer's browser",
        "Operator",
        "Cloud administrator",
        "Dependencies and the build",
    ):
        assert f"### {role}\n" in TEXT


def test_linked_pages_exist():
    links = re.findall(r"\]\(((?!http)[^)#]+)\)", TEXT)
    assert links and [link for link in links if not (PROJECT / link).is_file()] == []
