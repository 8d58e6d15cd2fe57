"""Page of errors, with every message that the source code composes."""

from __future__ import annotations

import ast
import importlib
from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import NamedTuple

from lakehouse.core.errors import LakehouseError
from tools.reference.markdown import page
from tools.repository import PROJECT

_INTRODUCTION = """\
Every error names the problem, the effect on data, and the remedy. The command line prints the message without a
traceback and ends with exit code 1. A program that calls this project catches the classes below; their base class is
`lakehouse.core.errors.LakehouseError`. `{name}` and `…` stand for values that the message contains.
"""
_PACKAGES = ("lakehouse", "assets", "resources", "spark")
_MIN_WORDS = 4
"""Minimum words of a message. Shorter arguments are not messages."""


class ErrorClass(NamedTuple):
    """An error class in the source code."""

    module: str
    name: str

    def load(self) -> type:
        """Import the class."""
        return getattr(importlib.import_module(self.module), self.name)


@dataclass
class _Module:
    """The source code of one module.

    Attributes:
        path: Its path in the repository.
        name: Its name.
        tree: Its syntax tree.
        errors: Error classes by the names that the module uses, filled by `_resolve`.
    """

    path: str
    name: str
    tree: ast.Module
    errors: dict[str, list[ErrorClass]] = field(default_factory=dict)

    @property
    def classes(self) -> list[ast.ClassDef]:
        """The classes at the top level of the module."""
        return [node for node in self.tree.body if isinstance(node, ast.ClassDef)]


def errors() -> str:
    """Return the page."""
    messages = messages_by_class()
    ordered = sorted(messages, key=lambda cls: (cls.name, cls.module))
    return page("Error catalogue", _INTRODUCTION, *(_section(cls, messages[cls]) for cls in ordered))


@cache
def messages_by_class() -> Mapping[ErrorClass, set[tuple[str, str]]]:
    """Return the messages of each class in the source code, each with the file that composes it."""
    modules = [_module(path) for package in _PACKAGES for path in sorted((PROJECT / package).rglob("*.py"))]
    classes = _resolve(modules)
    messages = _messages(modules, classes)
    return {cls: messages[cls] for cls in classes}


def _module(path: Path) -> _Module:
    relative = path.relative_to(PROJECT)
    name = ".".join(relative.with_suffix("").parts).removesuffix(".__init__")
    return _Module(relative.as_posix(), name, ast.parse(path.read_text()))


def _resolve(modules: list[_Module]) -> dict[ErrorClass, ast.ClassDef]:
    """Find LakehouseError and its subclasses, and the names under which each module uses them."""
    classes: dict[ErrorClass, ast.ClassDef] = {}
    while True:
        known = len(classes)
        for module in modules:
            imported = {
                alias.asname or alias.name: [ErrorClass(node.module, alias.name)]
                for node in ast.walk(module.tree)
                if isinstance(node, ast.ImportFrom) and node.module
                for alias in node.names
                if ErrorClass(node.module, alias.name) in classes
            }
            module.errors |= imported
            for node in module.classes:
                cls = ErrorClass(module.name, node.name)
                bases = {ast.unparse(base) for base in node.bases}
                if cls == ErrorClass(LakehouseError.__module__, "LakehouseError") or bases & module.errors.keys():
                    classes[cls] = node
                    module.errors[node.name] = [cls]
            module.errors |= dict(_chosen(module))
        if len(classes) == known:
            return classes


def _chosen(module: _Module) -> Iterator[tuple[str, list[ErrorClass]]]:
    """Yield variables that hold one of several error classes."""
    for node in ast.walk(module.tree):
        match node:
            case ast.Assign(
                targets=[ast.Name(id=name)], value=ast.IfExp(body=ast.Name(id=one), orelse=ast.Name(id=other))
            ) if {one, other} <= module.errors.keys():
                yield name, [*module.errors[one], *module.errors[other]]


def _section(cls: ErrorClass, messages: set[tuple[str, str]]) -> str:
    loaded = cls.load()
    base = loaded.__mro__[1].__name__
    kind = "" if base == "Exception" else f" A kind of `{base}`."
    where = "" if cls.module == LakehouseError.__module__ else f" Defined in `{cls.module}`."
    listed = "\n".join(f"- {text} (`{source}`)" for text, source in sorted(messages))
    return f"## {cls.name}\n\n{' '.join((loaded.__doc__ or '').split())}{kind}{where}\n\n{listed}".strip()


def _messages(
    modules: list[_Module], classes: Mapping[ErrorClass, ast.ClassDef]
) -> dict[ErrorClass, set[tuple[str, str]]]:
    """Return the messages of each class, each with the file that composes it."""
    constructors = {cls: constructor for cls, node in classes.items() if (constructor := _constructor(node))}
    messages: dict[ErrorClass, set[tuple[str, str]]] = defaultdict(set)
    for module in modules:
        texts = _texts_by_name(module.tree)
        for node in ast.walk(module.tree):
            if not (isinstance(node, ast.Call) and isinstance(node.func, ast.Name)):
                continue
            for cls in module.errors.get(node.func.id, ()):
                constructor = _inherited(cls, constructors)
                text = constructor.message(node, texts) if constructor else _joined(node, texts)
                if _is_message(text):
                    messages[cls].add((text, module.path))
    for cls, constructor in constructors.items():
        if _is_message(constructor.template) and not messages[cls]:
            messages[cls].add((constructor.template, cls.module.replace(".", "/") + ".py"))
    return messages


@dataclass(frozen=True)
class _Constructor:
    """A constructor that composes the message: the message, and the parameters that it contains."""

    parameters: list[str]
    template: str

    def message(self, call: ast.Call, texts: Mapping[str, ast.expr]) -> str:
        """Return the message of a call, with the texts of its arguments in place of the parameters."""
        arguments = dict(zip(self.parameters, call.args, strict=False))
        arguments |= {keyword.arg: keyword.value for keyword in call.keywords if keyword.arg}
        message = self.template
        for name, argument in arguments.items():
            message = message.replace(f"{{{name}}}", _text(argument, texts))
        return message


def _constructor(node: ast.ClassDef) -> _Constructor | None:
    """Return the constructor of a class, if it composes the message itself."""
    for function in node.body:
        if isinstance(function, ast.FunctionDef) and function.name == "__init__":
            parameters = [argument.arg for argument in function.args.args[1:]]
            texts = _texts_by_name(function)
            for call in ast.walk(function):
                if isinstance(call, ast.Call) and ast.unparse(call.func) in (
                    "super().__init__",
                    "LakehouseError.__init__",
                ):
                    if [ast.unparse(argument) for argument in call.args] == parameters[:1]:
                        return _Constructor(parameters, f"{{{parameters[0]}}}")
                    template = _joined(call, texts)
                    if _is_message(template):
                        return _Constructor(parameters, template)
    return None


def _inherited(cls: ErrorClass, constructors: Mapping[ErrorClass, _Constructor]) -> _Constructor | None:
    """Return the constructor that a class uses; None if its callers compose the message."""
    for base in cls.load().__mro__:
        if constructor := constructors.get(ErrorClass(base.__module__, base.__name__)):
            return constructor
        if "__init__" in vars(base):
            return None
    return None


def _texts_by_name(tree: ast.AST) -> dict[str, ast.expr]:
    """Return texts that are assigned to a variable, by its name; without variables that are assigned twice."""
    values: dict[str, list[ast.expr]] = defaultdict(list)
    for node in ast.walk(tree):
        match node:
            case ast.Assign(targets=[ast.Name(id=name)], value=value):
                values[name].append(value)
    return {
        name: value
        for name, [value, *others] in values.items()
        if not others and isinstance(value, ast.Constant | ast.JoinedStr) and len(_text(value, {}).split()) > 1
    }


def _joined(call: ast.Call, texts: Mapping[str, ast.expr]) -> str:
    """Return the message of a call that composes it from its arguments: problem, effect, remedy."""
    arguments = {
        **dict(enumerate(argument for argument in call.args if ast.unparse(argument) != "self")),
        **{keyword.arg: keyword.value for keyword in call.keywords if keyword.arg in ("problem", "effect", "remedy")},
    }
    return ". ".join(filter(None, (_text(argument, texts) for argument in arguments.values())))


def _is_message(text: str) -> bool:
    return len(text.replace("…", "").split()) >= _MIN_WORDS


def _text(node: ast.expr, texts: Mapping[str, ast.expr]) -> str:
    """Return a text in the source, with the name of each value, or `…`, as its placeholder."""
    match node:
        case ast.Constant(value=str(text)):
            return text
        case ast.JoinedStr(values=parts):
            return "".join(_text(part, {}) for part in parts)
        case ast.Name(id=name) if name in texts:
            return _text(texts[name], {})
        case ast.FormattedValue(value=ast.Name(id=name) | ast.Attribute(attr=name)):
            return f"{{{name}}}"
        case ast.BinOp(left=left, op=ast.Add(), right=right):
            return _text(left, texts) + _text(right, texts)
    return "…"
