"""YAML as text, as nodes that have lines, and as values; and the faults of a text that is not such YAML."""

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from lakehouse.config.base import Fault, Location
from lakehouse.core.errors import ConfigError

_TAG = "tag:yaml.org,2002:"
_NUMBERS = {
    f"{_TAG}int": (re.compile(r"[-+]?(?:0|[1-9][0-9_]*|0x[0-9a-fA-F_]+)$"), "-+0123456789"),
    f"{_TAG}float": (
        re.compile(r"[-+]?(?:[0-9][0-9_]*\.[0-9_]*|\.[0-9]+)(?:[eE][-+]?[0-9]+)?$|[-+]?\.(?:inf|nan)$"),
        "-+.0123456789",
    ),
}
"""The form of numbers, and their first characters, by tag."""


def _loader() -> type:
    """Return PyYAML's loader in C if it is installed, because it is ten times faster.

    Dates and times remain text, as in YAML 1.2. So do `010` and `1:30`, which YAML 1.1 reads as 8 and 90.
    """
    resolvers = {
        first: [(tag, form) for tag, form in known if tag not in (*_NUMBERS, f"{_TAG}timestamp")]
        for first, known in yaml.SafeLoader.yaml_implicit_resolvers.items()
    }
    for tag, (form, beginnings) in _NUMBERS.items():
        for first in beginnings:
            resolvers.setdefault(first, []).append((tag, form))
    return type("Loader", (getattr(yaml, "CSafeLoader", yaml.SafeLoader),), {"yaml_implicit_resolvers": resolvers})


LOADER = _loader()

_TYPES = {
    f"{_TAG}bool": "true or false",
    f"{_TAG}int": "a number",
    f"{_TAG}float": "a number",
    f"{_TAG}null": "empty",
}
"""The types of YAML that a name may have by accident, by tag."""

_VARIABLE = re.compile(r"\$\{(\w+)[^}]*\}")
"""A reference to a variable in the syntax of shells."""

Read = Callable[[Path], str]
"""A function that returns the text of a file."""


@dataclass(frozen=True)
class Document:
    """The content of a YAML file."""

    node: yaml.Node | None
    """The content with the lines of its parts; None if the file is empty."""
    value: Any
    """The content as plain values; `{}` if the file is empty."""


def read_document(path: Path, read: Read, remedy: str) -> Document:
    """Return the content of a YAML file.

    Args:
        path: The file.
        read: Reads it.
        remedy: What to do if the file cannot be read.

    Raises:
        ConfigError: The file cannot be read, or is not YAML.
    """
    try:
        text = read(path)
    except UnicodeDecodeError as error:
        line = error.object.count(b"\n", 0, error.start) + 1
        raise ConfigError(f"{path.name}:{line}: not text in UTF-8. Save the file as UTF-8") from error
    except OSError as error:
        raise ConfigError(f"{path}: cannot be read ({error.strerror}). {remedy}") from error
    try:
        return Document(yaml.compose(text, Loader=LOADER), yaml.load(text, Loader=LOADER) or {})  # noqa: S506 (a safe loader)
    except yaml.YAMLError as error:
        raise ConfigError(f"{path.name}{_syntax_fault(error, text)}") from error
    except RecursionError as error:
        raise ConfigError(f"{path.name}: not valid: its values are nested too deeply. Write fewer levels") from error


def line_of(node: yaml.Node | None, location: Location) -> int:
    """Return the line (from 1) of the deepest part of a location that exists in the file."""
    line = node.start_mark.line + 1 if node else 1
    for part in location:
        if isinstance(node, yaml.MappingNode):
            entry = next(((k, v) for k, v in node.value if k.value == str(part)), None)
            if not entry:
                return line
            line, node = entry[0].start_mark.line + 1, entry[1]
        elif isinstance(node, yaml.SequenceNode) and isinstance(part, int) and part < len(node.value):
            node = node.value[part]
            line = node.start_mark.line + 1
    return line


def key_faults(node: yaml.Node | None) -> Iterator[Fault]:
    """Yield the location and an error message of each key that would be lost, or would not be text.

    PyYAML silently keeps the last of two equal keys, which would drop a topic, and reads keys such as `on` or `7` as
    values of other types.
    """
    # Aliases refer to the same node, which may also contain itself.
    seen: set[int] = set()
    pending: list[tuple[yaml.Node | None, Location]] = [(node, ())]
    while pending:
        current, location = pending.pop()
        if not isinstance(current, yaml.MappingNode) or id(current) in seen:
            continue
        seen.add(id(current))
        keys: set[str] = set()
        below: list[tuple[yaml.Node | None, Location]] = []
        for key, value in current.value:
            at = (*location, key.value)
            if key.value in keys:
                yield at, f"the key is duplicated in line {key.start_mark.line + 1}. Remove one of them"
            if key.tag in _TYPES:
                yield at, f"YAML reads this key as {_TYPES[key.tag]}. Write it in quotes"
            keys.add(key.value)
            below.append((value, at))
        pending += reversed(below)


def _syntax_fault(error: yaml.YAMLError, text: str) -> str:
    """Return the line and the problem of a file that is not YAML, and how to correct it."""
    if character := yaml.reader.Reader.NON_PRINTABLE.search(text):
        number = text.count("\n", 0, character.start()) + 1
        return f":{number}: not valid YAML: the line has the control character {ord(character[0]):#04x}. Remove it"
    mark, begun = getattr(error, "problem_mark", None), getattr(error, "context_mark", None)
    problem = getattr(error, "problem", None) or str(error).partition("\n")[0]
    remedy = "Correct the line"
    lines, column = text.splitlines(), mark.column + 1 if mark else 1
    line = lines[mark.line] if mark and mark.line < len(lines) else ""
    if variable := _VARIABLE.search(line):
        problem, remedy = f"'{variable[0]}' is no value", f"Write {{env: {variable[1]}}}"
    elif begun and "flow" in (getattr(error, "context", None) or ""):
        bracket = lines[begun.line][begun.column]
        mark, problem = begun, f"the '{bracket}' in column {begun.column + 1} is not closed"
        remedy = f"Add '{ {'{': '}', '[': ']'}[bracket] }'"
    elif problem == "did not find expected key":
        problem, remedy = "the indentation does not match that of its sibling keys", "Indent it like them"
    elif "\t" in text:
        problem, remedy = f"{problem} (the file has tabs)", "Indent with spaces"
    elif "another document" in problem:
        problem, remedy = "the file has a second document", "Remove this line and what follows, or only this line"
    elif "undefined alias" in problem:
        # What begins with `*` or `!` may be a password without quotes, so it is not repeated.
        problem, remedy = f"the '*' in column {column} refers to no anchor ('&') above", "Write a text in quotes"
    elif "determine a constructor" in problem:
        problem = f"the '!' in column {column} begins a tag, and tags such as '!include' are not supported"
        remedy = "Write the value, in quotes if it is text. {env: NAME} reads a variable"
    elif "unhashable key" in problem:
        problem, remedy = "a key is a list or a mapping", "Write a name, in quotes if it has brackets"
    elif "escape" in problem:
        problem, remedy = "a text in double quotes has a backslash that YAML does not know", "Write it in single quotes"
    return f"{f':{mark.line + 1}' if mark else ''}: not valid YAML: {problem}. {remedy}"
