"""Reading and validation of lakehouse.yaml. Every error names the file, line, key and remedy."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml
from pydantic import ValidationError

from lakehouse.config import type_faults, validation
from lakehouse.config.base import Fault, Location
from lakehouse.config.components import TOPIC, Component, components_around
from lakehouse.config.discovery import config_path, environment_name
from lakehouse.config.model import Config
from lakehouse.config.yaml_text import Document, Read, key_faults, line_of, read_document
from lakehouse.core.errors import ConfigError

Validation = Callable[[Config], list[Fault]]
"""A function that returns faults, by location."""


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
    files = _read_files(path or config_path(), read)
    files.require_none([*files.key_faults()])
    try:
        config = Config.model_validate(files.values(read))
    except ValidationError as error:
        files.require_none(type_faults.faults(error, Config))
        raise
    faults = [] if is_validated else validation.semantic_faults(config)
    config = _deployed(config, environment or environment_name())
    for validate in validations:
        faults += validate(config)
    files.require_none(faults)
    return config


def _deployed(config: Config, environment: str) -> Config:
    """Return the configuration with the namespace that the deployment of an environment may have of its own."""
    deployment = config.deployments.get(environment)
    namespace = deployment and (deployment.existing.glue_database or deployment.namespace)
    return config.model_copy(update={"namespace": namespace}) if namespace else config


_OF_COMPONENT = {"topics": ("name", "pattern"), "routes": ("name",)}
"""Attributes of a component that are no keys of such an entry."""


@dataclass(frozen=True)
class _Files:
    """The files of one configuration, as text that has lines."""

    main: Path
    environments: Path | None
    """The file that `environments` names; None if the main file has them."""
    document: Document
    """The main file, with the content of the environments."""
    components: tuple[Component, ...]
    """The topics and routes that files `defs.yaml` declare."""

    def key_faults(self) -> Iterator[Fault]:
        """Yield faults of keys, which are known before the values are validated."""
        yield from key_faults(self.document.node)
        yield from validation.reserved_keys(self.document.value)
        places: dict[Location, Component] = {}
        for component in self.components:
            kind, name = component.location
            yield from (((*component.location, *at), fault) for at, fault in key_faults(component.attributes_node))
            yield from component.faults()
            if name in self._entries(kind):
                yield component.location, "lakehouse.yaml has an entry of this name, too. Remove one of them"
            if (first := places.setdefault(component.location, component)) is not component:
                place = f"{first.file.parent.name}/{first.file.name} has one, too"
                yield component.location, f"two components have the name '{name}': {place}. Remove one of them"

    def values(self, read: Read) -> object:
        """Return the values of the model: those of the files, with the place and the schema of each entry."""
        if not isinstance(self.document.value, dict):
            return self.document.value
        values = {**self.document.value, "root": self.main.parent, "file": self.main}
        for kind in ("topics", "routes"):
            declared = [component for component in self.components if component.location[0] == kind]
            if isinstance(values.get(kind, {} if declared else None), dict):
                entries = {name: self._entry(kind, name, entry, read) for name, entry in self._entries(kind).items()}
                values[kind] = entries | {one.location[1]: self._component_entry(one, read) for one in declared}
        return values

    def require_none(self, faults: Iterable[Fault]) -> None:
        """Require that there are no faults.

        Raises:
            ConfigError: There are; one line for each.
        """
        if lines := [f"{self.place(at)}: {fault}" for at, fault in faults]:
            raise ConfigError("\n".join(lines))

    def _entries(self, kind: str) -> Mapping[str, object]:
        """Return the entries of the main file; none if it has another value in their place."""
        entries = self.document.value.get(kind) if isinstance(self.document.value, dict) else None
        return entries if isinstance(entries, dict) else {}

    def _entry(self, kind: str, name: str, entry: object, read: Read) -> object:
        if not isinstance(entry, dict | None):
            return entry
        place = {"file": self.main, "line": line_of(self.document.node, (kind, name))}
        return _named(name, entry or {}, self.main.parent, read) | place

    def _component_entry(self, component: Component, read: Read) -> object:
        kind, name = component.location
        entry = {key: value for key, value in component.attributes.items() if key not in _OF_COMPONENT[kind]}
        place = {"file": component.file, "line": component.line}
        return _named(name, entry, self.main.parent, read) | place

    def place(self, at: Location) -> str:
        """Return the file, the line and the key of a location."""
        components: dict[Location, Component] = {one.location: one for one in self.components}
        if component := components.get(at[:2]):
            file = component.file.relative_to(self.main.parent)
            return f"{file}:{line_of(component.attributes_node, at[2:])}: {_dotted(at[2:] or at)}"
        is_environment = self.environments is not None and at[:1] == ("environments",) and len(at) > 1
        file = self.environments if is_environment and self.environments else self.main
        return f"{file.name}:{line_of(self.document.node, at)}: {_dotted(at)}"


def place(config: Config, at: Location) -> str:
    """Return the file, the line and the key of a location; without the line if the files cannot be read any more."""
    if config.file.is_absolute():  # that of a configuration without a file is relative
        with suppress(ConfigError):
            return _read_files(config.file, Path.read_text).place(at)
    return f"{config.file.name}: {_dotted(at)}"


def _read_files(path: Path, read: Read) -> _Files:
    """Read the configuration, the environments that it names, and the components around it."""
    main = read_document(path, read, "Set LAKEHOUSE_CONFIG to your file")
    path = path.resolve()
    environments, document = _with_environments(path, main, read)
    components = tuple(one for one in components_around(path, read) if one.type == TOPIC)
    return _Files(path, environments, document, components)


def _with_environments(path: Path, main: Document, read: Read) -> tuple[Path | None, Document]:
    """Return the path of the file that `environments` names, and the document with its content; or None as the path."""
    name = main.value.get("environments") if isinstance(main.value, dict) else None
    if not isinstance(name, str) or not isinstance(main.node, yaml.MappingNode):
        return None, main
    at = f"{path.name}:{line_of(main.node, ('environments',))}: environments"
    file = path.parent / name
    if file.resolve() == path:
        raise ConfigError(f"{at}: '{name}' is this file itself. Name another one, or write the environments here")
    document = read_document(file, read, f"Correct {at}")
    if isinstance(document.value, dict) and [*document.value] == ["environments"]:
        problem = "the file has the content of `environments`, without this key"
        raise ConfigError(f"{file.name}:1: {problem}. Remove the line, and indent the others less")
    pairs = [(key, document.node if key.value == "environments" else below) for key, below in main.node.value]
    node = yaml.MappingNode(main.node.tag, pairs, main.node.start_mark, main.node.end_mark)
    return file, Document(node, {**main.value, "environments": document.value})


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
