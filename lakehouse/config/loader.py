"""Reading and validation of lakehouse.yaml. Every error names the file, line, key and remedy."""

import os
from collections.abc import Callable, Collection, Iterable, Iterator
from pathlib import Path
from typing import Any

import yaml
from pydantic import Field, ValidationError

from lakehouse.config import validation
from lakehouse.config.base import ConfigModel
from lakehouse.config.deployment import Deployment
from lakehouse.config.environment import SettingValue, System, environment_name
from lakehouse.config.table_names import TableNames
from lakehouse.config.topic import Route, Topic
from lakehouse.config.yaml_locations import Location, dotted, key_faults, line_of
from lakehouse.core.errors import ConfigError
from lakehouse.core.offsets.bookmark import TOPIC as BOOKMARKS
from lakehouse.core.tables import naming
from lakehouse.core.text.phrases import did_you_mean

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

PROJECT = Path(__file__).resolve().parent.parent.parent
"""The folder that contains lakehouse.yaml, schemas/ and workspace.yaml."""


class Config(ConfigModel):
    """The content of lakehouse.yaml."""

    namespace: str = Field(
        pattern=r"^[a-z][a-z0-9_]{0,127}$", description="Iceberg namespace, Glue database and Snowflake schema."
    )
    topics: dict[str, Topic] = Field(description="Kafka topics and their tables, by a name of your choice.")
    routes: dict[str, Route] = Field(
        {}, description="Topics by pattern. An entry of `topics` has precedence over all routes."
    )
    environments: dict[str, dict[System, dict[str, SettingValue]]] = Field(
        description="Settings by environment and system: fields of the system's resource, as values or `{env: NAME}`."
    )
    deployments: dict[str, Deployment] = Field(
        {}, description="Cloud set-up by environment, which `lakehouse deploy` creates and deletes."
    )
    file: Path = Field(
        PROJECT / "lakehouse.yaml", exclude=True, json_schema_extra={"readOnly": True}, description="This file."
    )
    root: Path = Field(PROJECT, exclude=True, json_schema_extra={"readOnly": True}, description="Folder of the file.")

    def topic(self, name: str) -> Topic:
        """Return the topic with a name.

        Raises:
            ConfigError: The topic is not declared, or its route cannot name its table.
        """
        if name not in self.topics:
            for _, _, match in self.match_routes([name]):
                if isinstance(match, ConfigError):
                    raise match
                return match
            raise ConfigError(f"Topic '{name}' is not declared in {self.file}.{did_you_mean(name, self.topics)}")
        return self.topics[name]

    def select(self, names: Collection[str], kafka_topics: Iterable[str]) -> list[Topic]:
        """Return the topics with these names. The name of a route stands for its topics in Kafka.

        Raises:
            ConfigError: As `topic`.
        """
        chosen = {name: self.topic(name) for name in names if name not in self.routes}
        for route, name, match in self.match_routes(kafka_topics):
            if route.name in names and isinstance(match, Topic):
                chosen[name] = match
        return [*chosen.values()]

    def topic_written_by_spark(self, name: str) -> Topic:
        """Return the topic with a name.

        Raises:
            ConfigError: As `topic`, or Tableflow writes its table.
        """
        topic = self.topic(name)
        if topic.engine != "spark":
            raise ConfigError(
                f"Confluent's Tableflow writes the table of '{name}', and not Spark. Nothing was changed. Operate it "
                f"in Confluent Cloud"
            )
        return topic

    @property
    def spark_topics(self) -> dict[str, Topic]:
        """The declared topics whose tables Spark writes, by name."""
        return {name: topic for name, topic in self.topics.items() if topic.engine == "spark"}

    def deployment(self, environment: str) -> Deployment:
        """Return the cloud set-up of an environment.

        Raises:
            ConfigError: The environment has none.
        """
        if environment not in self.deployments:
            raise ConfigError(
                f"Environment '{environment}' has no deployment in lakehouse.yaml. Add one, such as "
                f"deployments: {{{environment}: {{name: production, account: '123456789012', region: us-east-1}}}}"
            )
        return self.deployments[environment]

    def routed_topics(self, names: Iterable[str]) -> Iterator[Topic]:
        """Yield the valid topics of `match_routes`."""
        yield from (match for _, _, match in self.match_routes(names) if isinstance(match, Topic))

    def match_routes(self, names: Iterable[str]) -> Iterator[tuple[Route, str, Topic | ConfigError]]:
        """Match names of topics in Kafka with routes.

        Anyone who may create topics may choose a name that is no table name, or that conflicts with an entry.
        Such a name yields an error, and the other names are matched as usual.

        Two routed topics may map to one table. The topic whose records the table contains continues, and the table's
        stored offsets refuse runs of the other. A choice by name could displace the first topic by a new one.

        Yields:
            In the order of names: the first route that matches, the name, and its topic or an error.
        """
        accepted = TableNames(self.topics.values())
        # Dead letters that were ingested would become dead letters again, endlessly.
        internal = {entry.dead_letter_topic for entry in (*self.topics.values(), *self.routes.values())} | {BOOKMARKS}
        for name in sorted(names):
            for route in self.routes.values() if name not in self.topics and name not in internal else ():
                try:
                    match: Topic | ConfigError | None = route.topic_named(name)
                except ConfigError as error:
                    match = error
                if match is not None:
                    yield route, name, self._checked(route, match, accepted)
                    break

    def _checked(self, route: Route, match: Topic | ConfigError, accepted: TableNames) -> Topic | ConfigError:
        """Return a routed topic, or an error if its table is, or may become, another topic's."""
        if isinstance(match, ConfigError):
            return match
        fault = accepted.conflict(match)
        # Kafka may list a topic of this name before the topic that continues in its table.
        if naming.family(match.table)[1] > 1 and any(r.on_incompatible == "new_table" for r in self.routes.values()):
            fault = f"table '{match.table}' may be the continuation of another one (on_incompatible: new_table)"
            fault += ". Declare the topic under 'topics' with another 'table'"
        return ConfigError(f"Route '{route.name}': topic '{match.name}': {fault}") if fault else match

    def text(self, file: str) -> str:
        """Return the content of a file that the configuration names, such as a schema."""
        return (self.root / file).read_text()


Validation = Callable[[Config], list[tuple[Location, str]]]
"""A function that returns faults, by location."""


def config_path() -> Path:
    """Return the path of the configuration: LAKEHOUSE_CONFIG, or lakehouse.yaml of this project."""
    return Path(os.environ.get("LAKEHOUSE_CONFIG") or PROJECT / "lakehouse.yaml")


def load(path: Path | None = None, environment: str | None = None, *, validations: Iterable[Validation] = ()) -> Config:
    """Read and validate the configuration.

    Args:
        path: The file; None reads `config_path`.
        environment: The environment whose deployment may have a namespace of its own; None is the one in use.
        validations: Further validations. They take too long for the start of every process.

    Raises:
        ConfigError: The file is invalid; one line per problem, as `file:line: key: problem. Remedy`.
    """
    path = path or config_path()
    try:
        text = path.read_text()
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or "it is not UTF-8 text"
        raise ConfigError(f"{path}: cannot be read ({reason}). Set LAKEHOUSE_CONFIG to your file") from error
    try:
        node, raw = yaml.compose(text, Loader=LOADER), yaml.load(text, Loader=LOADER) or {}  # noqa: S506 (a safe loader)
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        line = f":{mark.line + 1}" if mark else ""
        problem = getattr(error, "problem", None) or str(error).partition("\n")[0]
        if "\t" in text:
            problem += " (the file has tabs; indent with spaces)"
        raise ConfigError(f"{path.name}{line}: not valid YAML: {problem}. Correct the line") from error
    faults = [*key_faults(node), *validation.reserved_keys(raw)]
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
            faults = validation.semantic_faults(config)
            for validate in validations:
                faults += validate(config)
        except ValidationError as error:
            faults = list(dict.fromkeys(validation.schema_fault(details, Config) for details in error.errors()))
    if faults:
        raise ConfigError("\n".join(f"{path.name}:{line_of(node, at)}: {dotted(at)}: {fault}" for at, fault in faults))
    deployment = config.deployments.get(environment or environment_name())
    namespace = deployment and (deployment.existing.glue_database or deployment.namespace)
    return config.model_copy(update={"namespace": namespace}) if namespace else config


def _named(name: str, topic: dict[str, Any], folder: Path, line: int) -> dict[str, Any]:
    """Return a topic's settings with its name, its line and the content of its schema file.

    The content of a file that cannot be read is empty, which the validation reports.
    """
    try:
        schema = (folder / str(topic.get("value_schema_file", ""))).read_text()
    except (OSError, ValueError):
        schema = ""
    return {**topic, "name": name, "line": line, "value_schema": schema}
