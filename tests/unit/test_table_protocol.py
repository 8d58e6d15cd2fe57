"""The names that are stored in tables: declared once, with the modules that use them."""

import ast
import re

import pytest

from lakehouse.core import table_protocol
from lakehouse.core.table_protocol import BRANCH_AGE, NAMES, OWN
from tools.repository import PROJECT

CONSTANTS = {value: key for key, value in vars(table_protocol).items() if key.isupper() and isinstance(value, str)}
PATHS = [path for folder in ("lakehouse", "assets", "resources", "spark") for path in (PROJECT / folder).rglob("*.py")]
MODULES = {
    path.relative_to(PROJECT).as_posix(): [*ast.walk(ast.parse(path.read_text()))]
    for path in PATHS
    if path.name != "table_protocol.py"
}


def test_table_protocol_lists_each_of_its_names():
    assert CONSTANTS.keys() - {OWN} == {stored.name for stored in NAMES}


@pytest.mark.parametrize("stored", NAMES, ids=lambda stored: stored.name)
def test_stored_name_lists_each_module_that_uses_it(stored):
    users = {
        path
        for path, nodes in MODULES.items()
        for node in nodes
        if isinstance(node, ast.ImportFrom) and node.module == table_protocol.__name__
        if CONSTANTS[stored.name] in {alias.name for alias in node.names}
    }
    assert users == {*stored.writers, *stored.readers} or stored.name == BRANCH_AGE


@pytest.mark.parametrize("stored", NAMES, ids=lambda stored: stored.name)
def test_stored_name_is_spelled_in_no_other_module(stored):
    spelled = re.compile(
        rf"(?<![\w./-]){re.escape(stored.name)}" + (r"(?![\w.-])" if stored.name[-1].isalpha() else "")
    )
    for path, nodes in MODULES.items():
        documentation = {id(node.value) for node in nodes if isinstance(node, ast.Expr)}
        texts = [node for node in nodes if isinstance(node, ast.Constant) and isinstance(node.value, str)]
        code = [node.value for node in texts if id(node) not in documentation]
        # Marks in comments of columns are English words, which messages contain too.
        is_mark = stored.place == "column comment"
        assert not [text for text in code if (text == stored.name if is_mark else spelled.search(text))], path
