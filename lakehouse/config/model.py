"""The content of lakehouse.yaml: topics, routes, environments and deployments."""

import re
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from pydantic import Field, ValidationError

from lakehouse.config import checks as check_types
from lakehouse.config import sources
from lakehouse.config.base import one_of
from lakehouse.config.checks import Check, RowCheck
from lakehouse.config.deployment import Deployment
from lakehouse.config.discovery import FILE
from lakehouse.config.environment import SettingValue, System
from lakehouse.config.settings import Declarations, TopicSettings
from lakehouse.config.sources import Existing, Source
from lakehouse.core.errors import ConfigError
from lakehouse.core.table_protocol import BOOKMARKS, DEAD_LETTERS
from lakehouse.core.tables import naming
from lakehouse.core.text import did_you_mean, nearest_names

if TYPE_CHECKING:
    DeclaredCheck = Check
    DeclaredSource = Source
else:
    DeclaredCheck = one_of(check_types.registered().values())
    DeclaredSource = one_of(sources.registered().values())


class Topic(TopicSettings):
    """A Kafka topic and the table that contains its records."""

    source: DeclaredSource = Field(Existing(), description="Producer of the records, by its `type`.")
    checks: dict[str, DeclaredCheck] = Field({}, description="Checks of the rows, by a name of your choice.")

    @property
    def quarantine(self) -> dict[str, RowCheck]:
        """The checks whose failing rows become dead letters, by name."""
        checks = {name: check for name, check in self.checks.items() if check.severity == "quarantine"}
        return {name: check for name, check in checks.items() if isinstance(check, RowCheck)}

    @property
    def keeps_dead_letters(self) -> bool:
        """True if the topic has a table of dead letters."""
        return self.errors == "log" or bool(self.quarantine)


class Route(Topic):
    """Topics that match a pattern, each with a table of its own. New topics need no change of the configuration."""

    pattern: str = Field(description="Regular expression that matches the whole name of a topic.")
    table_name: str = Field(
        "",
        alias="table",
        description="Template of table names with the pattern's named groups, such as `shop_{entity}`. "
        "Default: derived from the topic's name.",
    )

    def topic_named(self, name: str) -> Topic | None:
        """Return the topic with a name as an entry of its own, or None if the pattern does not match it.

        Raises:
            ConfigError: The template yields no valid table name, or names a group that the topic's name does not have.
        """
        match = re.fullmatch(self.pattern, name)
        if match is None or name.startswith("__"):
            return None
        groups = {group: text for group, text in match.groupdict().items() if text is not None}
        try:
            table = naming.table_name(self.table_name.format_map(groups))
        except KeyError as error:
            raise ConfigError(
                f"Route '{self.name}': topic '{name}' does not have the optional group {error} of the pattern, which "
                f"the template of the table names. Make the group required, or give this topic an entry"
            ) from error
        settings = self.model_dump(exclude={"pattern", "table_name"}, by_alias=True)
        try:
            return Topic.model_validate({**settings, "name": name, "value_schema": self.value_schema, "table": table})
        except ValidationError as error:
            problem = f"'{table}' is not a valid table name"
            raise ConfigError(f"Route '{self.name}': topic '{name}': {problem}. Correct the template") from error


class TableNames:
    """The table names of the topics that were accepted so far."""

    def __init__(self, topics: Iterable[Topic] = ()) -> None:
        """Accept the tables of topics whose names were checked before."""
        self._families: dict[str, list[Topic]] = defaultdict(list)
        for topic in topics:
            self.add(topic)

    def add(self, topic: Topic) -> None:
        """Accept the table of a topic."""
        self._families[naming.family(topic.table)[0]].append(topic)

    def conflict(self, topic: Topic) -> str | None:
        """Return why a topic's table name is invalid or conflicts with an accepted one, or None."""
        table = topic.table
        if table.endswith(DEAD_LETTERS):
            return f"names ending in '{DEAD_LETTERS}' are dead-letter tables. Rename the topic"
        if len(table) > naming.MAX_TABLE_CHARACTERS:
            limit = (
                f"a table name has at most {naming.MAX_TABLE_CHARACTERS} characters, '{table[:40]}…' has {len(table)}"
            )
            return f"{limit}. Add 'table: <shorter name>'"
        for other in self._families[naming.family(table)[0]]:
            if other.table == table:
                return f"maps to table '{table}', like topic '{other.name}'. Rename one of them"
            older, newer = sorted((topic, other), key=lambda one: naming.family(one.table)[1])
            if older.on_incompatible == "new_table":
                return (
                    f"table '{newer.table}' is where topic '{older.name}' may continue (on_incompatible: new_table), "
                    f"but topic '{newer.name}' maps to it. Add 'table: <another name>' to one of them"
                )
        return None


class Config(Declarations):
    """The content of lakehouse.yaml."""

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
    file: Path = Field(Path(FILE), exclude=True, json_schema_extra={"readOnly": True}, description="This file.")
    root: Path = Field(Path(), exclude=True, json_schema_extra={"readOnly": True}, description="Folder of the file.")

    def topic(self, name: str) -> Topic:
        """Return the topic with a name."""
        if name not in self.topics:
            for _, _, match in self.match_routes([name]):
                if isinstance(match, ConfigError):
                    raise match
                return match
            if hint := " Separate names by spaces" if "," in name else did_you_mean(name, self.topics):
                raise ConfigError(f"Topic '{name}' is not declared in {self.file}.{hint}")
            known = nearest_names(name, self.topics)
            raise ConfigError(
                f"Topic '{name}' is not declared in {self.file}, which has {known or 'no topics'}. "
                f"{'Name one of them' if known else 'Add it under `topics`'}"
            )
        return self.topics[name]

    def select(self, names: Collection[str], kafka_topics: Iterable[str]) -> list[Topic]:
        """Return the topics with these names. The name of a route stands for its topics in Kafka."""
        chosen = {name: self.topic(name) for name in names if name not in self.routes}
        for route, name, match in self.match_routes(kafka_topics):
            if route.name in names and isinstance(match, Topic):
                chosen[name] = match
        return [*chosen.values()]

    def topic_written_by_spark(self, name: str) -> Topic:
        """Return the topic with a name."""
        topic = self.topic(name)
        if not topic.is_ingested:
            raise ConfigError(
                f"Confluent's Tableflow writes the table of '{name}', and not Spark. Nothing was changed. Operate it "
                f"in Confluent Cloud"
            )
        return topic

    @property
    def spark_topics(self) -> dict[str, Topic]:
        """The declared topics whose tables Spark writes, by name."""
        return {name: topic for name, topic in self.topics.items() if topic.is_ingested}

    def deployment(self, environment: str) -> Deployment:
        """Return the cloud set-up of an environment."""
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
