"""Reading and validation of lakehouse.yaml. Every error names the file, line, key and remedy."""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml
from pydantic import ValidationError

from lakehouse.config import validation
from lakehouse.config.base import Fault, Location
from lakehouse.config.components import TOPIC, Component, components_around
from lakehouse.config.discovery import config_path, environment_name
from lakehouse.config.model import Config
from lakehouse.core.errors import ConfigError

LOADER: type = type(
    "Loader",
    (getattr(yaml, "CSafeLoader", yaml.SafeLoader),),
    {
        "yaml_implicit_resolvers": {
            first: [(tag, pattern) for tag, pattern in resolvers if tag != "tag:yaml.org,2002:timestamp"]
            for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
        }
    },
)
"""PyYAML's loader in C if it is installed; it is ten times faster. Dates and times remain text, as in YAML 1.2."""

_TYPES = {
    "tag:yaml.org,2002:bool": "true or false",
    "tag:yaml.org,2002:int": "a number",
    "tag:yaml.org,2002:float": "a number",
    "tag:yaml.org,2002:null": "empty",
}
"""The types of YAML that a name may have by accident, by tag."""

_VARIABLE = re.compile(r"\$\{(\w+)[^}]*\}")
"""A reference to a variable in the syntax of shells."""

Validation = Callable[[Config], list[Fault]]
"""A function that returns faults, by location."""

Read = Callable[[Path], str]
"""A function that returns the text of a file."""


def load(
    path: Path | None = None,
    environment: str | None = None,
    *,
    validations: Iterable[Validation] = (),
    read: Read = Path.read_text,
    is_validated: bool = False,
) -> Config:
    """Read and validate the configuration.

    Args:
        path: The file; None reads `config_path`.
        environment: The environment whose deployment may have a namespace of its own; None is the one in use.
        validations: Further validations. They take too long for the start of every process.
        read: Reads the file, and the environments and JSON schemas that it names.
        is_validated: Whether the same texts were validated before, so that other files need not exist now.

    Raises:
        ConfigError: The file is invalid; one line per problem, as `file:line: key: problem. Remedy`.
    """
    path = path or config_path()
    node, raw = _read(path, read, "Set LAKEHOUSE_CONFIG to your file")
    path = path.resolve()
    environments = _read_environments(path, node, raw, read)
    declared = [component for component in components_around(path, LOADER, read) if component.type == TOPIC]
    components: dict[Location, Component] = {component.location: component for component in declared}
    faults = [*_key_faults(node), *validation.reserved_keys(raw), *_component_faults(declared, raw)]
    if not faults:
        for kind in ("topics", "routes"):
            if isinstance(raw, dict) and isinstance(raw.get(kind), dict):
                raw[kind] = {
                    name: _named(name, entry or {}, path.parent, read)
                    | {"file": path, "line": _line_of(node, (kind, name))}
                    if isinstance(entry, dict | None)
                    else entry
                    for name, entry in raw[kind].items()
                }
        for component in components.values():
            kind, name = component.location
            if isinstance(raw, dict) and isinstance(raw.setdefault(kind, {}), dict):
                entry = {key: value for key, value in component.attributes.items() if key not in _OF_COMPONENT[kind]}
                place = {"file": component.file, "line": component.line}
                raw[kind][name] = _named(name, entry, path.parent, read) | place
        try:
            config = Config.model_validate({**raw, "root": path.parent, "file": path} if isinstance(raw, dict) else raw)
            faults = [] if is_validated else validation.semantic_faults(config)
            config = _deployed(config, environment or environment_name())
            for validate in validations:
                faults += validate(config)
        except ValidationError as error:
            faults = list(dict.fromkeys(validation.schema_fault(details, Config) for details in error.errors()))
    if faults:
        files = _Files(path, environments, node, components)
        raise ConfigError("\n".join(f"{files.place(at)}: {fault}" for at, fault in faults))
    return config


def _deployed(config: Config, environment: str) -> Config:
    """Return the configuration with the namespace that the deployment of an environment may have of its own."""
    deployment = config.deployments.get(environment)
    namespace = deployment and (deployment.existing.glue_database or deployment.namespace)
    return config.model_copy(update={"namespace": namespace}) if namespace else config


def _read(path: Path, read: Read, remedy: str) -> tuple[yaml.Node | None, Any]:
    """Return the content of a YAML file with the lines of its parts, and as plain values."""
    try:
        text = read(path)
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or "it is not UTF-8 text"
        raise ConfigError(f"{path}: cannot be read ({reason}). {remedy}") from error
    try:
        return yaml.compose(text, Loader=LOADER), yaml.load(text, Loader=LOADER) or {}  # noqa: S506 (a safe loader)
    except yaml.YAMLError as error:
        raise ConfigError(f"{path.name}{_syntax_fault(error, text)}") from error


def _read_environments(path: Path, node: yaml.Node | None, raw: Any, read: Read) -> Path | None:
    """Replace the name of a file in `environments` by its content, and return its path; None without such a file."""
    name = raw.get("environments") if isinstance(raw, dict) else None
    if not isinstance(name, str) or not isinstance(node, yaml.MappingNode):
        return None
    file = path.parent / name
    at = f"{path.name}:{_line_of(node, ('environments',))}: environments"
    content, raw["environments"] = _read(file, read, f"Correct {at}")
    node.value = [(key, content if key.value == "environments" else value) for key, value in node.value]
    return file


@dataclass(frozen=True)
class _Files:
    """The files of one configuration, with the lines of their parts."""

    main: Path
    environments: Path | None
    node: yaml.Node | None
    """The main file, with the content of the environments."""
    components: Mapping[Location, Component]

    def place(self, at: Location) -> str:
        """Return the file, the line and the key of a location."""
        if component := self.components.get(at[:2]):
            file = component.file.relative_to(self.main.parent)
            return f"{file}:{_line_of(component.attributes_node, at[2:])}: {_dotted(at[2:] or at)}"
        is_environment = self.environments is not None and at[:1] == ("environments",) and len(at) > 1
        file = self.environments if is_environment and self.environments else self.main
        return f"{file.name}:{_line_of(self.node, at)}: {_dotted(at)}"


_OF_COMPONENT = {"topics": ("name", "pattern"), "routes": ("name",)}
"""Attributes of a component that are no keys of such an entry."""


def _component_faults(components: Iterable[Component], raw: object) -> Iterator[Fault]:
    """Yield faults of the keys of components, which are known before the values are validated."""
    places: dict[Location, Component] = {}
    for component in components:
        kind, name = component.location
        yield from (((*component.location, *at), fault) for at, fault in _key_faults(component.attributes_node))
        yield from component.faults()
        entries = raw.get(kind) if isinstance(raw, dict) else None
        if isinstance(entries, dict) and name in entries:
            yield component.location, "lakehouse.yaml has an entry of this name, too. Remove one of them"
        if (first := places.setdefault(component.location, component)) is not component:
            place = f"{first.file.parent.name}/{first.file.name} has one, too"
            yield component.location, f"two components have the name '{name}': {place}. Remove one of them"


def _syntax_fault(error: yaml.YAMLError, text: str) -> str:
    """Return the line and the problem of a file that is not YAML, and how to correct it."""
    mark, begun = getattr(error, "problem_mark", None), getattr(error, "context_mark", None)
    problem = getattr(error, "problem", None) or str(error).partition("\n")[0]
    remedy = "Correct the line"
    lines = text.splitlines()
    if variable := _VARIABLE.search(lines[mark.line] if mark and mark.line < len(lines) else ""):
        problem, remedy = f"'{variable[0]}' is no value", f"Write {{env: {variable[1]}}}"
    elif begun and "flow" in (getattr(error, "context", None) or ""):
        bracket = lines[begun.line][begun.column]
        mark, problem = begun, f"the '{bracket}' in column {begun.column + 1} is not closed"
        remedy = f"Add '{ {'{': '}', '[': ']'}[bracket] }'"
    elif problem == "did not find expected key":
        problem, remedy = "the indentation does not match that of the keys beside it", "Indent it like them"
    elif "\t" in text:
        problem, remedy = f"{problem} (the file has tabs)", "Indent with spaces"
    return f"{f':{mark.line + 1}' if mark else ''}: not valid YAML: {problem}. {remedy}"


def _named(name: str, topic: dict[str, Any], folder: Path, read: Read) -> dict[str, Any]:
    """Return a topic's settings with its name and the content of its schema file.

    The content of a file that cannot be read is empty, which the validation reports.
    """
    try:
        schema = read(folder / str(topic["value_schema_file"])) if "value_schema_file" in topic else ""
    except (OSError, ValueError):
        schema = ""
    return {**topic, "name": name, "value_schema": schema}


def _dotted(location: Location) -> str:
    """Return a location in dotted notation, such as `topics.orders.key`."""
    return ".".join(str(part) for part in location) or "(file)"


def _line_of(node: yaml.Node | None, location: Location) -> int:
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


def _key_faults(node: yaml.Node | None, location: Location = ()) -> Iterator[Fault]:
    """Yield the location and an error message of each key that would be lost, or would not be text.

    PyYAML silently keeps the last of two equal keys, which would drop a topic, and reads keys such as `on` or `7` as
    values of other types.
    """
    if not isinstance(node, yaml.MappingNode):
        return
    keys: set[str] = set()
    for key, value in node.value:
        at = (*location, key.value)
        if key.value in keys:
            yield at, f"the key is duplicated in line {key.start_mark.line + 1}. Remove one of them"
        if key.tag in _TYPES:
            yield at, f"YAML reads this key as {_TYPES[key.tag]}. Write it in quotes"
        keys.add(key.value)
        yield from _key_faults(value, at)
