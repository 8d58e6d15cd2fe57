"""Topics that the Dagster project around lakehouse.yaml declares as components, in files `defs.yaml`.

Dagster loads these files as `lakehouse.TopicComponent` (lakehouse/components.py). Every command reads them here, so
that a topic is the same wherever it is declared.
"""

from __future__ import annotations

import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import yaml
from pydantic import Field

from lakehouse.config.base import Fault
from lakehouse.config.model import Route
from lakehouse.config.yaml_text import LOADER, Read
from lakehouse.core.errors import ConfigError

TOPIC, LAKEHOUSE = "lakehouse.TopicComponent", "lakehouse.LakehouseComponent"
"""Types of components in `defs.yaml`: an entry, and all that entries share."""


class TopicAttributes(Route):
    """The attributes of `lakehouse.TopicComponent`: the keys of an entry of `topics`, or with `pattern` of `routes`."""

    name: str = Field("", description="Name of the entry. Default: the name of the folder of defs.yaml.")
    pattern: str = Field(
        "", description="Regular expression that matches the whole name of a topic. Default: one topic."
    )


@dataclass(frozen=True)
class Component:
    """A document of a `defs.yaml` whose type is one of this project's."""

    type: str
    file: Path
    node: yaml.Node
    """The document, which has the lines of its keys."""
    attributes: dict[str, Any]

    @cached_property
    def location(self) -> tuple[str, str]:
        """The location of the entry in the configuration: `topics` or `routes`, and its name."""
        name = self.attributes.get("name") or self.file.parent.name
        return "routes" if self.attributes.get("pattern") else "topics", str(name)

    @cached_property
    def attributes_node(self) -> yaml.Node:
        """The node of the attributes, or of the whole document if it has none."""
        return next((value for key, value in self.node.value if key.value == "attributes"), self.node)

    @property
    def line(self) -> int:
        """The line of the attributes."""
        return self.attributes_node.start_mark.line + 1

    def faults(self) -> Iterator[Fault]:
        """Yield the attributes that only Dagster could read."""
        for key, value in self.attributes.items():
            if isinstance(value, str) and "{{" in value:
                problem = "a template, which commands of lakehouse do not resolve"
                yield (*self.location, key), f"'{value}' is {problem}. Write the value"


def components_around(config: Path, read: Read) -> list[Component]:
    """Return the components of this project in the Dagster project whose folder has the configuration.

    Args:
        config: The path of lakehouse.yaml.
        read: Reads a file.

    Raises:
        ConfigError: A file with a component of this project cannot be read.
    """
    folder = _defs_folder(config.resolve().parent)
    if folder is None:
        return []
    files = sorted(path for path in folder.rglob("defs.y*ml") if path.suffix in (".yaml", ".yml"))
    return [component for file in files for component in _components(file, read)]


def _defs_folder(project: Path) -> Path | None:
    """Return the folder of the definitions of a Dagster project; None if the folder has no project."""
    settings: dict[str, Any] = {}
    for name, keys in (("dg.toml", ("project",)), ("pyproject.toml", ("tool", "dg", "project"))):
        try:
            settings = tomllib.loads((project / name).read_text())
        except FileNotFoundError:
            continue
        except (OSError, ValueError) as error:
            raise ConfigError(f"{project / name}: cannot be read ({error}). Correct it") from error
        for key in keys:
            settings = settings.get(key, {})
        if settings:
            break
    module = settings.get("defs_module") or (f"{settings['root_module']}.defs" if "root_module" in settings else "")
    source = project / "src" if (project / "src").exists() else project
    folder = source.joinpath(*str(module).split("."))
    return folder if module and folder.is_dir() else None


def _components(file: Path, read: Read) -> Iterator[Component]:
    try:
        text = read(file)
        if "lakehouse." not in text:
            return
        documents = zip(yaml.compose_all(text, Loader=LOADER), yaml.load_all(text, Loader=LOADER), strict=True)  # noqa: S506 (a safe loader)
        for node, document in documents:
            if isinstance(document, dict) and document.get("type") in (TOPIC, LAKEHOUSE):
                attributes = document.get("attributes") or {}
                yield Component(document["type"], file, node, attributes if isinstance(attributes, dict) else {})
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        line = f":{mark.line + 1}" if (mark := getattr(error, "problem_mark", None)) else ""
        problem = getattr(error, "problem", None) or error
        raise ConfigError(f"{file}{line}: cannot be read ({problem}). Correct the file") from error
