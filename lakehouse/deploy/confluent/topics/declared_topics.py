"""The topics of lakehouse.yaml by who creates and fills them."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta
from functools import cached_property
from typing import Any

from lakehouse.config.deployment import Deployment
from lakehouse.config.loader import Config
from lakehouse.config.sources.datagen import Datagen
from lakehouse.config.topic import Topic
from lakehouse.core.tables.metadata_columns import Naming
from lakehouse.deploy.confluent.flink_resources import created_table

TABLEFLOW_NAMINGS: Mapping[Naming, str] = {"confluent": "DEFAULT", "confluent_portable": "PORTABLE"}
"""Tableflow's names of the naming schemes that it has."""


@dataclass(frozen=True)
class DeclaredTopics:
    """The topics of the configuration."""

    config: Config
    deployment: Deployment

    @cached_property
    def all(self) -> list[Topic]:
        """All entries."""
        return list(self.config.topics.values())

    @cached_property
    def generated(self) -> list[tuple[Topic, Datagen]]:
        """Topics that Datagen connectors fill, with their sources."""
        return [(topic, topic.source) for topic in self.all if isinstance(topic.source, Datagen)]

    @cached_property
    def tables(self) -> list[Topic]:
        """Topics that Tableflow writes as tables."""
        return [topic for topic in self.all if topic.engine == "tableflow"]

    @cached_property
    def upserted(self) -> list[Topic]:
        """Topics of `tables` that Kafka must compact, so that Tableflow replaces the row of a key."""
        return [topic for topic in self.tables if topic.mode == "upsert"]

    @cached_property
    def statements(self) -> dict[str, str]:
        """The Flink statement that creates a topic, by topic."""
        return {table: name for name, sql in self.deployment.flink.items() if (table := created_table(sql))}

    @cached_property
    def dead_letters(self) -> dict[str, Topic]:
        """The first entry that names a topic of dead letters, by that topic. Spark's account may create none."""
        return {entry.dead_letter_topic: entry for entry in reversed(self._entries) if entry.dead_letter_topic}

    @cached_property
    def written(self) -> list[str]:
        """The topics that Spark's account produces to: derived topics, and those that receive dead letters."""
        derived = [topic.topic for topic in self.all if topic.source.writes]
        letters = [entry.dead_letter_topic for entry in self._entries]
        return [name for name in dict.fromkeys([*derived, *letters]) if name]

    def visible(self, text: str) -> str:
        """Return a system's text about any topics, or a placeholder if one of them has sensitive columns."""
        for entry in self._entries:
            text = entry.visible(text)
        return text

    @property
    def _entries(self) -> list[Topic]:
        return [*self.all, *self.config.routes.values()]

    @cached_property
    def hold_data(self) -> bool:
        """True if external producers fill some of the topics, or some are tables in Confluent's own storage."""
        return (
            bool(self.config.routes)
            or bool(self.stored_by_confluent)
            or any(topic.source.is_external for topic in self.all if topic.topic not in self.statements)
        )

    @cached_property
    def stored_by_confluent(self) -> list[Topic]:
        """Topics whose tables are in Confluent's own storage, and are deleted with their topics."""
        return self.tables if self.deployment.tableflow.storage == "confluent" else []


def tableflow_config(topic: Topic) -> Mapping[str, Any]:
    """Return the declared settings of a table in the terms of Tableflow's API."""
    handling = {"mode": topic.errors.upper()}
    if topic.dead_letter_topic:
        handling["target"] = topic.dead_letter_topic
    config = {
        "retention_ms": str(milliseconds(topic.retention.snapshots)),
        "error_handling": handling,
        "metadata_column_naming_scheme": TABLEFLOW_NAMINGS[topic.metadata.naming],
    }
    if topic.retention.rows:
        config["data_retention_ms"] = str(milliseconds(topic.retention.rows))
    return config


def milliseconds(duration: timedelta) -> int:
    """Return a duration in whole milliseconds."""
    return duration // timedelta(milliseconds=1)
