"""Page of errors, with every message that the source code composes."""

from __future__ import annotations

import ast
import inspect
from collections import defaultdict
from collections.abc import Iterator

from lakehouse.config.loader import PROJECT
from lakehouse.core import errors as module
from lakehouse.core.errors import LakehouseError
from tools.reference.markdown import page

_INTRODUCTION = """\
Every error names the problem, the effect on data, and the remedy. The command line prints the message without a
traceback and ends with exit code 1. A program that calls this project catches the classes below
(`lakehouse.core.errors`). `{name}` and `…` stand for values that the message contains.
"""
_PACKAGES = ("lakehouse", "assets", "resources", "spark")
_MIN_WORDS = 4
"""Minimum words of a message. Shorter arguments are not messages."""


def errors() -> str:
    """Return the page."""
    classes = [cls for _, cls in inspect.getmembers(module, inspect.isclass) if issubclass(cls, LakehouseError)]
    messages = _messages({cls.__name__ for cls in classes})
    return page(
        "Error catalogue",
        _INTRODUCTION,
        *(_section(cls, messages[cls.__name__]) for cls in sorted(classes, key=lambda cls: cls.__name__)),
    )


def _section(cls: type, messages: set[tuple[str, str]]) -> str:
    base = cls.__mro__[1].__name__
    kind = "" if base == "Exception" else f" A kind of `{base}`."
    listed = "\n".join(f"- {text} (`{source}`)" for text, source in sorted(messages))
    return f"## {cls.__name__}\n\n{' '.join((cls.__doc__ or '').split())}{kind}\n\n{listed}"


def _messages(names: set[str]) -> dict[str, set[tuple[str, str]]]:
    """Return the messages of each class, each with the file that composes it."""
    messages: dict[str, set[tuple[str, str]]] = defaultdict(set)
    for path in sorted(path for package in _PACKAGES for path in (PROJECT / package).rglob("*.py")):
        for name, call in _calls(ast.parse(path.read_text()), names):
            text = ". ".join(filter(None, (_text(argument) for argument in call.args)))
            if len(text.replace("…", "").split()) >= _MIN_WORDS:
                messages[name].add((text, path.relative_to(PROJECT).as_posix()))
    return messages


def _calls(tree: ast.AST, names: set[str]) -> Iterator[tuple[str, ast.Call]]:
    """Yield each call that composes an error: of its class, or of `super().__init__` inside of the class."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in names:
            yield node.func.id, node
        if isinstance(node, ast.ClassDef) and node.name in names:
            for inner in ast.walk(node):
                if isinstance(inner, ast.Call) and ast.unparse(inner.func) == "super().__init__":
                    yield node.name, inner


def _text(node: ast.expr) -> str:
    """Return a text in the source, with the name of each value, or `…`, as its placeholder."""
    match node:
        case ast.Constant(value=str(text)):
            return text
        case ast.JoinedStr(values=parts):
            return "".join(_text(part) for part in parts)
        case ast.FormattedValue(value=ast.Name(id=name) | ast.Attribute(attr=name)):
            return f"{{{name}}}"
        case ast.BinOp(left=left, op=ast.Add(), right=right):
            return _text(left) + _text(right)
    return "…"
