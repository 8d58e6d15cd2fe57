"""All steps of a deployment in Confluent Cloud, in the order in which they are made."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import timedelta
from functools import cached_property
from typing import Any

from lakehouse.config.deployment import Deployment
from lakehouse.config.loader import Config
from lakehouse.config.sources.datagen import Datagen
from lakehouse.config.topic import Topic
from lakehouse.core.bookmark import TOPIC as BOOKMARKS
from lakehouse.core.polling import REAL, Clock
from lakehouse.deploy.confluent.access import AccountStep, AclsStep, Role, RolesStep
from lakehouse.deploy.confluent.flink import ComputePoolStep, FlinkTopicStep, StatementStep, table_made
from lakehouse.deploy.confluent.foundation import ClusterStep, EnvironmentStep, SchemaRegistryStep
from lakehouse.deploy.confluent.keys import (
    FlinkKeyStep,
    KafkaKeyStep,
    KeyStep,
    ManagerKeyStep,
    RegistryKeyStep,
    TableflowKeyStep,
)
from lakehouse.deploy.confluent.permissions import PermissionsStep
from lakehouse.deploy.confluent.streams import DatagenStep, TopicStep
from lakehouse.deploy.confluent.tableflow import CatalogIntegrationStep, ProviderIntegrationStep, TableflowTopicStep
from lakehouse.deploy.names import ACCOUNTS, Names
from lakehouse.deploy.step import Step
from resources.confluent_cloud import ConfluentCloud
from resources.secrets_manager import Secrets

FLINK_ROLES = (
    Role("FlinkDeveloper", "{environment}"),
    Role("ResourceOwner", "{kafka}/topic=*"),
    Role("ResourceOwner", "{kafka}/transactional-id=*"),
    Role("Assigner", "{account}"),
    Role("ResourceOwner", "{registry}/subject=*"),
)
ASSIGNER = Role("Assigner", "{integration}")
INTEGRATION = "confluent/provider_integration"
OWN = "lakehouse*"
"""Consumer groups and transactional ids that assets use; Spark's own source names its groups otherwise."""
SPARK_GROUPS = "spark-kafka-relation*"


def confluent_steps(
    cloud: ConfluentCloud,
    secrets: Secrets,
    names: Names,
    config: Config,
    deployment: Deployment,
    clock: Clock = REAL,
) -> list[Step]:
    """The steps. Nothing connects before one of them is looked up.

    With topics whose engine is Tableflow they need `aws/role/confluent` and `aws/bucket`; the role comes after
    `confluent/provider_integration`.
    """
    return list(_Declared(cloud, secrets, names, config, deployment, clock).steps())


@dataclass(frozen=True)
class _Declared:
    """What the configuration asks for, and the steps of it."""

    cloud: ConfluentCloud
    secrets: Secrets
    names: Names
    config: Config
    deployment: Deployment
    clock: Clock

    def steps(self) -> Iterator[Step]:
        yield EnvironmentStep(self.cloud, self.names, self.is_shared, self.clock)
        if self.tables:
            # Before the cluster: when deletion comes to it, nothing is left that could use it, found or not.
            yield ProviderIntegrationStep(self.cloud, self.names, self.clock)
        yield ClusterStep(self.cloud, self.names, self.is_shared, self.clock)
        yield SchemaRegistryStep(self.cloud, self.names, self.clock)
        for purpose in self.purposes:
            held = tuple(key.secret for key in self.keys if key.purpose == purpose)
            yield AccountStep(self.cloud, self.secrets, self.names, purpose, held, self.clock)
        if self.deployment.flink:
            yield ComputePoolStep(self.cloud, self.names, self.clock)
        for purpose, roles in self.roles.items():
            yield RolesStep(self.cloud, purpose, roles, clock=self.clock)
        yield from self.keys
        yield from self.topic_steps
        for purpose, allowed in self.allowed.items():
            yield AclsStep(self.cloud, purpose, allowed, self.clock)
        for topic in self.generated:
            yield DatagenStep(self.cloud, topic.name, topic.topic, topic.subject("value"), self.clock)
        yield from self.flink_steps()
        yield from self.tableflow_steps()
        yield self.permissions()

    def permissions(self) -> Step:
        roles = self.roles
        on: tuple[str, ...] = ("confluent/cluster", "confluent/schema_registry")
        if self.tables:
            roles, on = roles | {"app_manager": (*roles["app_manager"], ASSIGNER)}, (*on, INTEGRATION)
        return PermissionsStep(self.cloud, tuple(self.purposes), roles, self.allowed, on)

    def flink_steps(self) -> Iterator[Step]:
        fillers = tuple(f"confluent/connector/{each.name}" for each in self.generated)
        for given, sql in self.deployment.flink.items():
            yield StatementStep(self.cloud, self.names, given, sql, fillers, self.clock)
        for topic in self.topics:
            maker = self.made.get(topic.topic)
            if maker:
                yield FlinkTopicStep(
                    self.cloud, topic.name, topic.topic, topic.partitions, clock=self.clock, statement=statement(maker)
                )

    def tableflow_steps(self) -> Iterator[Step]:
        if not self.tables:
            return
        # Tableflow acts in the right of its key's owner.
        on = (INTEGRATION,)
        yield RolesStep(self.cloud, "app_manager", (ASSIGNER,), on, "provider_integration", self.clock)
        yield CatalogIntegrationStep(self.cloud, self.names, self.clock)
        for topic in self.tables:
            yield TableflowTopicStep(
                self.cloud,
                self.names,
                topic.name,
                topic.topic,
                topic.subject("value"),
                _tableflow_config(topic),
                self.filled_by(topic),
                self.clock,
            )

    @cached_property
    def topic_steps(self) -> list[Step]:
        """Topics that Flink does not make, and those that dead letters go to."""
        declared = [
            TopicStep(
                self.cloud,
                each.name,
                each.topic,
                each.partitions,
                each.source.is_external,
                self.clock,
                _milliseconds(each.retention.records) if each.retention.records else None,
            )
            for each in self.topics
            if each.topic not in self.made
        ]
        letters = [
            TopicStep(self.cloud, f"{each.name}/dead_letters", name, each.partitions, clock=self.clock)
            for name, each in self.dead_letters.items()
        ]
        return [*declared, *letters]

    @cached_property
    def keys(self) -> list[KeyStep]:
        given = (self.cloud, self.secrets, self.names)

        def kafka(purpose: str, kind: type[KeyStep] = KafkaKeyStep) -> KeyStep:
            return kind(*given, purpose, f"kafka_cluster/{purpose}/python_client", self.after(purpose), self.clock)

        def registry(purpose: str, path: str) -> KeyStep:
            return RegistryKeyStep(*given, purpose, path, self.after(purpose), self.clock)

        keys = [
            kafka("app_manager", ManagerKeyStep),
            kafka("app_consumer"),
            kafka("app_producer"),
            kafka("spark"),
            registry("schema_registry", "schema_registry_cluster/python_client"),
            registry("spark", "schema_registry_cluster/spark/python_client"),
        ]
        if self.tables:
            keys.append(TableflowKeyStep(*given, "app_manager", "tableflow", self.after("app_manager"), self.clock))
        if self.deployment.flink:
            keys.append(FlinkKeyStep(*given, "flink", "flink", self.after("flink"), self.clock))
        return keys

    @cached_property
    def roles(self) -> dict[str, tuple[Role, ...]]:
        """By account."""
        subjects = "{registry}/subject=*"
        manager = [Role("CloudClusterAdmin", "{cluster}")]
        if self.tables:
            manager.append(Role("DeveloperRead", subjects))
        roles = {
            "app_manager": tuple(manager),
            "schema_registry": (Role("DeveloperRead", subjects), Role("DeveloperWrite", subjects)),
            "spark": tuple(dict.fromkeys(self.spark_roles())),
        }
        return roles | ({"flink": FLINK_ROLES} if self.deployment.flink else {})

    def spark_roles(self) -> Iterator[Role]:
        """Reads every topic that has a table; writes what it derives, and dead letters."""
        for topic in ["*"] if self.config.routes else [each.topic for each in self.topics]:
            yield Role("DeveloperRead", f"{{kafka}}/topic={topic}")
        for group in (OWN, SPARK_GROUPS):
            yield Role("DeveloperRead", f"{{kafka}}/group={group}")
        yield Role("DeveloperRead", "{registry}/subject=*")
        derived = [each for each in self.topics if each.source.writes]
        for topic in self.written:
            yield Role("DeveloperWrite", f"{{kafka}}/topic={topic}")
            # To see what was produced before.
            yield Role("DeveloperRead", f"{{kafka}}/topic={topic}")
        if self.written:
            yield Role("DeveloperWrite", f"{{kafka}}/transactional-id={OWN}")
            # It is made by whoever writes the first bookmark.
            for role in ("DeveloperManage", "DeveloperRead", "DeveloperWrite"):
                yield Role(role, f"{{kafka}}/topic={BOOKMARKS}")
        for each in derived:
            for side in ("key", "value"):
                yield Role("DeveloperWrite", f"{{registry}}/subject={each.subject(side)}")

    @cached_property
    def allowed(self) -> dict[str, tuple[tuple[str, str, str], ...]]:
        """By account: what its access control lists allow."""
        every = [each.topic for each in self.topics]
        produced = [each.topic for each in self.topics if not each.source.writes]
        allowed = {
            "app_producer": [("WRITE", "TOPIC", topic) for topic in produced if topic not in self.made],
            "app_consumer": [("READ", "GROUP", self.names.confluent), *(("READ", "TOPIC", topic) for topic in every)],
            "app_connector": [
                ("DESCRIBE", "CLUSTER", "kafka-cluster"),
                *(("WRITE", "TOPIC", each.topic) for each in self.generated),
            ],
            # No role below an administrator's has it.
            "spark": [
                ("DESCRIBE", "CLUSTER", "kafka-cluster"),
                *(("DESCRIBE_CONFIGS", "TOPIC", topic) for topic in self.written),
            ],
        }
        return {purpose: tuple(dict.fromkeys(each)) for purpose, each in allowed.items() if each}

    @cached_property
    def topics(self) -> list[Topic]:
        return list(self.config.topics.values())

    @cached_property
    def generated(self) -> list[Topic]:
        return [each for each in self.topics if isinstance(each.source, Datagen)]

    @cached_property
    def tables(self) -> list[Topic]:
        """Those that Tableflow keeps."""
        return [each for each in self.topics if each.engine == "tableflow"]

    @cached_property
    def made(self) -> dict[str, str]:
        """By topic: the Flink statement that makes it."""
        return {table: given for given, sql in self.deployment.flink.items() if (table := table_made(sql))}

    @cached_property
    def dead_letters(self) -> dict[str, Topic]:
        """By topic that dead letters go to: the first entry that has it."""
        return {each.dead_letter_topic: each for each in reversed(self.topics) if each.dead_letter_topic}

    @cached_property
    def written(self) -> list[str]:
        """The topics that Spark's account produces to: those that it derives, and those of dead letters."""
        derived = [each.topic for each in self.topics if each.source.writes]
        letters = [each.dead_letter_topic for each in (*self.topics, *self.config.routes.values())]
        return [name for name in dict.fromkeys([*derived, *letters]) if name]

    @cached_property
    def purposes(self) -> list[str]:
        return [each for each in ACCOUNTS if each != "flink" or self.deployment.flink]

    @cached_property
    def is_shared(self) -> bool:
        """Whether the cluster has topics that others fill."""
        return bool(self.config.routes) or any(step.holds_data for step in self.topic_steps)

    def after(self, purpose: str) -> tuple[str, ...]:
        """The roles without which an account's key is refused."""
        return (f"confluent/roles/{purpose}",) if purpose in self.roles else ()

    def filled_by(self, topic: Topic) -> tuple[str, ...]:
        """The step by which records come to a topic; none when others write them."""
        if topic in self.generated:
            return (f"confluent/connector/{topic.name}",)
        return (statement(self.made[topic.topic]),) if topic.topic in self.made else ()


def statement(given: str) -> str:
    """The step of a Flink statement."""
    return f"confluent/statement/{given}"


def _tableflow_config(topic: Topic) -> Mapping[str, Any]:
    """What lakehouse.yaml says of a table, in the words of Tableflow's API."""
    handling = {"mode": topic.errors.upper()}
    if topic.dead_letter_topic:
        handling["target"] = topic.dead_letter_topic
    config = {
        "retention_ms": str(_milliseconds(topic.retention.snapshots)),
        "error_handling": handling,
        "metadata_column_naming_scheme": "PORTABLE" if topic.metadata.naming == "portable" else "DEFAULT",
    }
    if topic.retention.rows:
        config["data_retention_ms"] = str(_milliseconds(topic.retention.rows))
    return config


def _milliseconds(duration: timedelta) -> int:
    return duration // timedelta(milliseconds=1)
