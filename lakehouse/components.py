"""Components for Dagster projects: a topic with its table, and the systems, sensors and jobs that topics share."""

from __future__ import annotations

import os
from pathlib import Path

import click
import dagster as dg
from pydantic import BaseModel

from assets.topics.topic_chain import entry_definitions
from lakehouse.config import snapshots
from lakehouse.config.components import LAKEHOUSE, TOPIC, TopicAttributes, components_around
from lakehouse.config.discovery import FILE, config_path
from lakehouse.config.model import Config
from lakehouse.config.new_project import Servers, configuration_files, write_new
from lakehouse.core.errors import ConfigError
from lakehouse.definitions import shared_definitions


class TopicComponent(dg.Component):
    """A Kafka topic as an audited Iceberg table, or with `pattern` all topics whose names match.

    The attributes are the keys of an entry of lakehouse.yaml, which every command of lakehouse reads from this file.
    """

    def __init__(self, name: str) -> None:
        """
        Args:
            name: The name of the entry.
        """
        self.name = name

    @classmethod
    def get_model_cls(cls) -> type[BaseModel]:
        return TopicAttributes

    @classmethod
    def load(cls, attributes: BaseModel | None, context: dg.ComponentLoadContext) -> TopicComponent:
        named = attributes.name if isinstance(attributes, TopicAttributes) else ""
        return cls(named or context.path.name)

    def build_defs(self, context: dg.ComponentLoadContext) -> dg.Definitions:
        config = _config_of(context)
        entry = config.topics.get(self.name) or config.routes.get(self.name)
        if entry is None or entry.file == config.file:
            raise ConfigError(
                f"{context.path}: topic '{self.name}' is in no defs.yaml of type {TOPIC}",
                "It has no definitions",
                "Declare it there, not in Python, so that the commands of lakehouse read it",
            )
        return entry_definitions(config, entry)


class LakehouseScaffolder(dg.Scaffolder[Servers]):
    """Writes `defs.yaml` and, unless the project has a lakehouse.yaml, that file with its environments."""

    @classmethod
    def get_scaffold_params(cls) -> type[Servers]:
        return Servers

    def scaffold(self, request: dg.ScaffoldRequest[Servers]) -> None:
        project = request.project_root or Path.cwd()
        if not (project / FILE).exists():
            files = configuration_files(project, request.params)
            write_new(project, files)
            click.echo(f"Wrote {', '.join(files)} to {project}.")
        elif request.params.environments():
            raise ConfigError(
                f"{project / FILE} exists, so that the addresses of servers were not written to it",
                "Nothing was changed",
                "Write them to its environments",
            )
        dg.scaffold_component(request)


@dg.scaffold_with(LakehouseScaffolder)
class LakehouseComponent(dg.Component):
    """The file lakehouse.yaml beside pyproject.toml: its topics, and the systems, sensors and jobs of all topics."""

    def build_defs(self, context: dg.ComponentLoadContext) -> dg.Definitions:
        config = _config_of(context)
        entries = [entry for entry in (*config.topics.values(), *config.routes.values()) if entry.file == config.file]
        return dg.Definitions.merge(shared_definitions(config), *(entry_definitions(config, e) for e in entries))


_LOADED: list[tuple[object, Config]] = []
"""The project whose components are being loaded, and its configuration, which each of them needs."""


def _config_of(context: dg.ComponentLoadContext) -> Config:
    if not _LOADED or _LOADED[0][0] is not context.component_tree:
        _LOADED[:] = [(context.component_tree, _read(context.project_root))]
    return _LOADED[0][1]


def _read(project: Path) -> Config:
    if not (project / FILE).exists() and "LAKEHOUSE_CONFIG" not in os.environ:
        raise ConfigError(
            f"There is no {FILE} in {project}, beside pyproject.toml",
            "No topic has definitions",
            f"Restore it. `dg scaffold defs {LAKEHOUSE} lakehouse` writes a new one with the component",
        )
    file = config_path(project)
    os.environ.setdefault("LAKEHOUSE_CONFIG", str(file))
    if LAKEHOUSE not in [one.type for one in components_around(file, Path.read_text)]:
        raise ConfigError(
            f"The project in {project} has no {LAKEHOUSE}, which has the systems and sensors of its topics",
            "No topic has definitions",
            f"Run `dg scaffold defs {LAKEHOUSE} lakehouse`",
        )
    return snapshots.load()
