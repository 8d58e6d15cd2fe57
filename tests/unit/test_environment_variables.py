"""The page of environment variables, compared with the reads of the code."""

import ast
from collections.abc import Iterator
from pathlib import Path

from tools.reference.environment_variables import VARIABLES
from tools.repository import PROJECT

PACKAGES = ("lakehouse", "assets", "resources", "spark")
READS = ("get", "pop", "setdefault")
ENVIRONMENTS = ("os.environ",)
PROCESSES = "lakehouse/local/processes/process.py"
"""The module that reads the variables of other processes, as `env` and `self.env`."""
TOKEN = "lakehouse/local/dagster/ui_login.py"
"""The module with the name of a variable that another one reads."""


def constants(tree: ast.Module) -> dict[str, ast.expr]:
    """Return the values of a module's names."""
    return {
        target.id: node.value
        for node in tree.body
        if isinstance(node, ast.Assign)
        for target in node.targets
        if isinstance(target, ast.Name)
    }


def reads(file: Path) -> Iterator[str]:
    """Yield the names of variables that a module reads; of a computed name, the constant beginning and a star."""
    tree = ast.parse(file.read_text())
    environments = (*ENVIRONMENTS, "env", "self.env") if file == PROJECT / PROCESSES else ENVIRONMENTS
    names = constants(ast.parse((PROJECT / TOKEN).read_text())) | constants(tree)
    for node in ast.walk(tree):
        match node:
            case ast.Call(func=ast.Attribute(value=of, attr=attribute), args=[name, *_]) if attribute in READS:
                is_read = ast.unparse(of) in environments
            case ast.Subscript(value=of, slice=name, ctx=ast.Load()):
                is_read = ast.unparse(of) in environments
            case ast.keyword(arg="envvar", value=name):
                is_read = True
            case _:
                continue
        name = names.get(name.id, name) if isinstance(name, ast.Name) else name
        match name:
            case ast.Constant(value=str(text)) if is_read:
                yield text
            case ast.JoinedStr(values=[ast.Constant(value=text), *_]) if is_read:
                yield f"{text}*"


def test_page_lists_each_variable_that_the_code_reads():
    read = {name for package in PACKAGES for file in (PROJECT / package).rglob("*.py") for name in reads(file)}
    documented = {variable.name for variable in VARIABLES}
    computed = {name.rstrip("*") for name in read if name.endswith("*")}
    assert computed == {"SNOWFLAKE_"}
    assert {name for name in read if not name.endswith("*")} - documented == set()
    assert {name for name in documented - read if not name.startswith(tuple(computed))} == set()
