"""lakehouse.yaml as validated, immutable models. Every error names file, line, key and remedy."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import yaml
from pydantic import Field, ValidationError

from lakehouse.config import validation
from lakehouse.config.base import Model
from lakehouse.config.deployment import Deployment
from lakehouse.config.environment import Setting, System
from lakehouse.config.table_names import Taken
from lakehouse.config.topic import Route, Topic
from lakehouse.config.yaml_locations import dotted, duplicate_keys, line_of
from lakehouse.core import naming
from lakehouse.core.bookmark import TOPIC as BOOKMARKS
from lakehouse.core.errors import ConfigError
from lakehouse.core.words import did_you_mean

LOADER: type = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
"""The one in C, where PyYAML has it: ten times faster."""

PROJECT = Path(__file__).resolve().parent.parent.parent
"""The folder that holds lakehouse.yaml, schemas/ and workspace.yaml."""


class Config(Model):
    """The whole of lakehouse.yaml."""

    namespace: str = Field(
        pattern=r"^[a-z][a-z0-9_]{0,127}$", description="Iceberg namespace, Glue database and Snowflake schema."
    )
    topics: dict[str, Topic]
    routes: dict[str, Route] = Field(
        {}, description="Topics by pattern. A topic that has an entry of its own keeps it."
    )
    environments: dict[str, dict[System, dict[str, Setting]]] = Field(
        description="Per environment and system: the fields of that system's resource, as values or `{env: NAME}`."
    )
    deployments: dict[str, Deployment] = Field(
        {}, description="By environment: the cloud set-up that `lakehouse deploy` makes and takes away."
    )
    file: Path = Field(
        PROJECT / "lakehouse.yaml", exclude=True, json_schema_extra={"readOnly": True}, description="This file."
    )
    root: Path = Field(PROJECT, exclude=True, json_schema_extra={"readOnly": True}, description="Folder of this file.")

    def topic(self, name: str) -> Topic:
        """The declared topic of that name.

        Raises: ConfigError when there is none, with the nearest name, or when its route makes no table of it.
        """
        if name not in self.topics:
            for _, _, found in self.matched([name]):
                if isinstance(found, ConfigError):
                    raise found
                return found
            raise ConfigError(f"Topic '{name}' is not declared in lakehouse.yaml.{did_you_mean(name, self.topics)}")
        return self.topics[name]

    @property
    def by_spark(self) -> dict[str, Topic]:
        """The topics that Spark makes tables of, and not Tableflow."""
        return {name: topic for name, topic in self.topics.items() if topic.engine == "spark"}

    def deployment(self, environment: str) -> Deployment:
        """The cloud set-up of an environment.

        Raises: ConfigError when it has none.
        """
        if environment not in self.deployments:
            raise ConfigError(
                f"Environment '{environment}' has no deployment in lakehouse.yaml. Add one, such as "
                f"deployments: {{{environment}: {{name: production, account: '123456789012', region: us-east-1}}}}"
            )
        return self.deployments[environment]

    def routed(self, names: Iterable[str]) -> Iterator[Topic]:
        """The topics of those names that routes have and no entry does, each by the first route that matches."""
        yield from (found for _, _, found in self.matched(names) if isinstance(found, Topic))

    def matched(self, names: Iterable[str]) -> Iterator[tuple[Route, str, Topic | ConfigError]]:
        """Match names with routes: whoever may create a topic may give it a name that becomes no table, or an entry's,
        and the others are taken all the same.

        Two routed topics may become one table. The one that it holds already continues, and runs of the other are
        refused by the table's position: here, a new name could take the place of a topic that was first.

        Yields:
            In the order of names: the first route that matches, the name, and its topic, or why there is none.
        """
        taken = Taken(self.topics.values())
        # Dead letters that were read would become dead letters again, without end.
        own = {entry.dead_letter_topic for entry in (*self.topics.values(), *self.routes.values())} | {BOOKMARKS}
        for name in sorted(names):
            for route in self.routes.values() if name not in self.topics and name not in own else ():
                try:
                    found: Topic | ConfigError | None = route.routed(name)
                except ConfigError as error:
                    found = error
                if found is not None:
                    yield route, name, self._checked(route, found, taken)
                    break

    def _checked(self, route: Route, found: Topic | ConfigError, taken: Taken) -> Topic | ConfigError:
        """A routed topic; or, where its table is or may become another topic's, why there is none."""
        if isinstance(found, ConfigError):
            return found
        fault = taken.fault(found)
        # A topic of this name may be found before the one that continues in its table.
        if naming.family(found.table)[1] > 1 and any(r.on_incompatible == "new_table" for r in self.routes.values()):
            fault = f"table '{found.table}' may be where another one continues (on_incompatible: new_table)"
            fault += ". Give the topic an entry with a 'table'"
        return ConfigError(f"Route '{route.name}': topic '{found.name}': {fault}") if fault else found

    def text(self, file: str) -> str:
        """The content of a file that the configuration names, such as a schema."""
        return (self.root / file).read_text()


def config_path() -> Path:
    """LAKEHOUSE_CONFIG, or lakehouse.yaml of this project."""
    return Path(os.environ.get("LAKEHOUSE_CONFIG") or PROJECT / "lakehouse.yaml")


def load(path: Path | None = None) -> Config:
    """Read and validate the configuration.

    Raises: ConfigError, one line a fault, each as `file:line: key: what is wrong. Remedy`.
    """
    path = path or config_path()
    try:
        text = path.read_text()
    except (OSError, UnicodeDecodeError) as error:
        said = getattr(error, "strerror", None) or "it is not UTF-8 text"
        raise ConfigError(f"{path}: cannot be read ({said}). Set LAKEHOUSE_CONFIG to your file") from error
    try:
        node, raw = yaml.compose(text, Loader=LOADER), yaml.load(text, Loader=LOADER) or {}  # noqa: S506 (a safe loader)
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        line = f":{mark.line + 1}" if mark else ""
        problem = getattr(error, "problem", None) or str(error).partition("\n")[0]
        raise ConfigError(f"{path.name}{line}: not valid YAML: {problem}. Correct the line") from error
    faults = duplicate_keys(node) + validation.set_elsewhere(raw)
    if not faults:
        for kind in ("topics", "routes"):
            if isinstance(raw, dict) and isinstance(raw.get(kind), dict):
                raw[kind] = {
                    name: _named(name, entry or {}, path.parent, line_of(node, (kind, name)))
                    if isinstance(entry, dict | None)
                    else entry
                    for name, entry in raw[kind].items()
                }
        try:
            config = Config.model_validate(
                {**raw, "root": path.resolve().parent, "file": path.resolve()} if isinstance(raw, dict) else raw
            )
            faults = validation.of_meaning(config)
        except ValidationError as error:
            faults = [validation.of_form(details, Config) for details in error.errors()]
    if faults:
        raise ConfigError("\n".join(f"{path.name}:{line_of(node, loc)}: {dotted(loc)}: {said}" for loc, said in faults))
    return config


def _named(name: str, topic: dict[str, Any], folder: Path, line: int) -> dict[str, Any]:
    """A topic's settings, with its name, its line and the schema it points to. A file that is missing is told of
    later."""
    file = folder / str(topic.get("value_schema_file", ""))
    return {**topic, "name": name, "line": line, "value_schema": file.read_text() if file.is_file() else ""}


def json_schema() -> str:
    """The JSON Schema of lakehouse.yaml, as docs/lakehouse.schema.json holds it for editors."""
    schema = Config.model_json_schema()
    for model in (schema, schema["$defs"]["Topic"], schema["$defs"]["Route"]):
        model["properties"] = {k: v for k, v in model["properties"].items() if not v.get("readOnly")}
    for name in ("Topic", "Route"):
        key = schema["$defs"][name]["properties"]["key"]
        key["anyOf"] = [{"type": "string"}, {"type": key.pop("type"), "items": key.pop("items")}]
    return json.dumps(schema, indent=2) + "\n"
