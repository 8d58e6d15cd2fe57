"""Declarations of lakehouse.yaml for Confluent Cloud: topics, and permissions and keys of each service account."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import timedelta
from functools import cached_property
from typing import Any

from lakehouse.config.deployment import Deployment
from lakehouse.config.model import Config, Topic
from lakehouse.config.sources import Datagen
from lakehouse.core.table_protocol import BOOKMARKS
from lakehouse.core.tables.metadata_columns import Naming
from lakehouse.deploy.confluent.access import Role
from lakehouse.deploy.confluent.flink import created_table
from lakehouse.deploy.names import ACCOUNTS, CONFLUENT_SECRETS, ROTATION, Names

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
        return [topic for topic in self.all if not topic.is_ingested]

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


FLINK_ROLES = (
    Role("FlinkDeveloper", "{environment}"),
    Role("ResourceOwner", "{kafka}/topic=*"),
    Role("ResourceOwner", "{kafka}/transactional-id=*"),
    Role("Assigner", "{account}"),
    Role("ResourceOwner", "{registry}/subject=*"),
)
ASSIGNER = Role("Assigner", "{integration}")
OWN = "lakehouse*"
"""Consumer groups and transactional ids that assets use; Spark's own source names its groups otherwise."""
SPARK_GROUPS = "spark-kafka-relation*"


@dataclass(frozen=True)
class DeclaredAccess:
    """Roles, access control lists and keys, by purpose of the account."""

    topics: DeclaredTopics
    names: Names

    @cached_property
    def roles(self) -> dict[str, tuple[Role, ...]]:
        """The roles, but for the one on the provider integration."""
        subjects = "{registry}/subject=*"
        manager = [Role("CloudClusterAdmin", "{cluster}")]
        if self.topics.tables:
            manager.append(Role("DeveloperRead", subjects))
        roles = {
            "app_manager": tuple(manager),
            "schema_registry": (Role("DeveloperRead", subjects), Role("DeveloperWrite", subjects)),
            "spark": tuple(dict.fromkeys(self._spark_roles())),
            # Confluent has no narrower role with which to create and delete the keys of a service account.
            ROTATION: tuple(Role("ResourceOwner", f"{{account_{purpose}}}") for purpose in self.accounts),
        }
        return roles | ({"flink": FLINK_ROLES} if self.topics.deployment.flink else {})

    @property
    def accounts(self) -> tuple[str, ...]:
        """The purposes of the service accounts."""
        return tuple(purpose for purpose in ACCOUNTS if purpose != "flink" or self.topics.deployment.flink)

    @cached_property
    def secrets(self) -> dict[tuple[str, str], str]:
        """The secret of each key that is needed, by purpose of the account and API."""
        needless = set()
        if not self.topics.tables:
            needless.add(("app_manager", "tableflow"))
        if not self.topics.stored_by_confluent:
            needless.add(("spark", "tableflow"))
        if not self.topics.deployment.flink:
            needless.add(("flink", "flink"))
        return {key: self.names.confluent_secret(*key) for key in CONFLUENT_SECRETS if key not in needless}

    @cached_property
    def acls(self) -> dict[str, tuple[tuple[str, str, str], ...]]:
        """The access control lists: operation, resource type and resource name."""
        topics = self.topics
        produced = [entry.topic for entry in topics.all if not entry.source.writes]
        acls = {
            "app_producer": [("WRITE", "TOPIC", topic) for topic in produced if topic not in topics.statements],
            "app_consumer": [
                ("READ", "GROUP", self.names.confluent),
                *(("READ", "TOPIC", entry.topic) for entry in topics.all),
            ],
            "app_connector": [
                ("DESCRIBE", "CLUSTER", "kafka-cluster"),
                *(("WRITE", "TOPIC", entry.topic) for entry, _ in topics.generated),
            ],
            "spark": list(self._spark_acls()),
        }
        return {purpose: tuple(dict.fromkeys(allowed)) for purpose, allowed in acls.items() if allowed}

    def _spark_acls(self) -> Iterator[tuple[str, str, str]]:
        """Read every topic that has a table; write derived topics and dead letters.

        Lists and not roles: Basic clusters have no roles on topics and groups, and no role below an administrator's
        describes the cluster or configurations.
        """
        topics = self.topics
        yield "DESCRIBE", "CLUSTER", "kafka-cluster"
        for topic in ["*"] if topics.config.routes else [entry.topic for entry in topics.all]:
            yield "READ", "TOPIC", topic
        for group in (OWN, SPARK_GROUPS):
            yield "READ", "GROUP", group
        for topic in topics.written:
            # They are also read, to find what was produced before.
            for operation in ("WRITE", "READ", "DESCRIBE_CONFIGS"):
                yield operation, "TOPIC", topic
        if topics.written:
            for operation in ("WRITE", "DESCRIBE"):
                yield operation, "TRANSACTIONAL_ID", OWN
            # The first bookmark creates the topic.
            for operation in ("CREATE", "READ", "WRITE"):
                yield operation, "TOPIC", BOOKMARKS

    def _spark_roles(self) -> Iterator[Role]:
        """Read all schemas and the tables in Confluent's storage, and register the schemas of derived topics."""
        yield Role("DeveloperRead", "{registry}/subject=*")
        # Tableflow has no lists: roles on a topic apply to its table (Confluent, Role-Based Access for Tableflow).
        for topic in self.topics.stored_by_confluent:
            yield Role("DeveloperRead", f"{{kafka}}/topic={topic.topic}")
        for topic in self.topics.all:
            if topic.source.writes:
                for side in ("key", "value"):
                    yield Role("DeveloperWrite", f"{{registry}}/subject={topic.subject(side)}")
