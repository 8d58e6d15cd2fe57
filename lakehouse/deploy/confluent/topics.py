"""Topics, and the Datagen connectors that fill some of them."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from lakehouse.core.errors import UnclearState
from lakehouse.deploy.confluent.confluent_resource import ConfluentResource
from lakehouse.deploy.resource import Outputs, Resource, Updatable
from lakehouse.deploy.waiting import state_of, unready, wait_until_visible
from resources.confluent.api_client import Key
from resources.confluent.clusters import CONNECTOR_READY, Cluster, Connector, KafkaTopic, SchemaRegistryCluster, Topics
from resources.confluent.organization import ServiceAccount

TOPIC_SECONDS = 5 * 60
TOPIC_DELETION_SECONDS = 60 * 60
CONNECTOR_SECONDS = 30 * 60
ACCOUNT = "kafka.service.account.id"
"""The setting of a connector with the account that writes its records."""
SCHEMA_SECONDS = 10 * 60
"""Until a running connector has registered its schema."""


@dataclass(frozen=True, kw_only=True, repr=False)
class TopicResource(ConfluentResource[KafkaTopic]):
    """A topic of the cluster, independently of its creator."""

    entry: str
    """The topic's name in lakehouse.yaml."""
    topic: str
    """The topic's name in Kafka."""
    cluster: Resource[Cluster]
    manager_key: Resource[Key]
    is_in_existing_cluster: bool = False
    """True if the cluster existed before the deployment. The creator of the topic is then unknown."""
    holds_data: bool = False
    """True if external producers fill the topic, or its table is deleted with it."""

    @property
    def address(self) -> str:
        return f"confluent/topic/{self.entry}"

    @property
    def label(self) -> str:
        return f"topic '{self.topic}'"

    @property
    def read_depends_on(self) -> tuple[Resource[Any], ...]:
        return (self.cluster, self.manager_key)

    def read(self, outputs: Outputs) -> KafkaTopic | None:
        return self.topics(outputs).find(self.topic)

    def wait_until_ready(self, outputs: Outputs, current: KafkaTopic) -> KafkaTopic:
        return self.wait_until_listed(outputs, TOPIC_SECONDS)

    def delete(self, outputs: Outputs, current: KafkaTopic) -> None:
        self.topics(outputs).delete(self.topic)
        self.wait_until_gone(lambda: self.read(outputs), TOPIC_DELETION_SECONDS)

    def retained(self, outputs: Outputs, current: KafkaTopic) -> str:
        return "is in a cluster that existed before the deployment" if self.is_in_existing_cluster else ""

    def topics(self, outputs: Outputs) -> Topics:
        """Return the cluster's topics."""
        return self.cloud.topics(outputs[self.cluster], outputs[self.manager_key])


@dataclass(frozen=True, kw_only=True, repr=False)
class DeclaredTopicResource(TopicResource, Updatable[KafkaTopic]):
    """A topic that lakehouse.yaml declares."""

    partitions: int
    retention_ms: int | None = None
    """Retention of records in milliseconds, or None for the default of the cluster."""
    compacted: bool = False
    """True if Kafka keeps only the last record of each key."""

    def create(self, outputs: Outputs) -> KafkaTopic:
        topics, settings = self.topics(outputs), (self.topic, self.partitions, self.retention_ms)
        return self.when_granted(lambda: topics.create(*settings, compacted=self.compacted))

    def diff(self, outputs: Outputs, current: KafkaTopic) -> list[str]:
        if current.partitions < self.partitions:
            raise UnclearState(
                f"Topic '{self.topic}' has {current.partitions} partitions and lakehouse.yaml declares "
                f"{self.partitions}. The topic was left unchanged. Set 'partitions: {current.partitions}', or add "
                f"partitions yourself (keys will move)"
            )
        if self.retention_ms is None:
            return []
        kept_ms = self.topics(outputs).retention_ms(self.topic)
        return [] if kept_ms == self.retention_ms else [f"retention.ms is {kept_ms} instead of {self.retention_ms}"]

    def update(self, outputs: Outputs, current: KafkaTopic) -> KafkaTopic:
        assert self.retention_ms is not None, "without a declared retention there is no difference"
        self.topics(outputs).set_retention(self.topic, self.retention_ms)
        return current

    def warning(self, outputs: Outputs, current: KafkaTopic) -> str:
        if current.partitions <= self.partitions:
            return ""
        return f"has {current.partitions} partitions, not {self.partitions}: Kafka cannot remove any, and all are read"


@dataclass(frozen=True, kw_only=True, repr=False)
class DatagenResource(ConfluentResource[Connector], Updatable[Connector]):
    """A managed connector that fills a topic with synthetic records."""

    entry: str
    connector: str
    """Name of the connector in the cluster."""
    topic_name: str
    settings: Mapping[str, str]
    """The settings that determine its records and their rate."""
    subject: str
    """The subject under which the connector registers its schema."""
    cluster: Resource[Cluster]
    registry: Resource[SchemaRegistryCluster]
    account: Resource[ServiceAccount]
    acls: Resource[Any]
    topic: Resource[Any]
    registry_key: Resource[Key]
    visible: Callable[[str], str]
    """Replaces Confluent's text about a failure if it may quote values of sensitive columns."""

    @property
    def address(self) -> str:
        return f"confluent/connector/{self.entry}"

    @property
    def label(self) -> str:
        return f"Datagen connector '{self.connector}'"

    @property
    def read_depends_on(self) -> tuple[Resource[Any], ...]:
        return (self.cluster,)

    def read(self, outputs: Outputs) -> Connector | None:
        connectors = self.cloud.connectors(outputs[self.cluster]).list()
        current = next((connector for connector in connectors if connector.name == self.connector), None)
        account_id = outputs[self.account].id if self.account in outputs else ""
        if current and self.names.existing.confluent_cluster and current.config.get(ACCOUNT) != account_id:
            raise UnclearState(
                f"Kafka cluster '{outputs[self.cluster].id}' has a connector '{self.connector}' whose service account "
                f"is not that of deployment '{self.names.deployment}'. It was left unchanged. Rename topic "
                f"'{self.entry}' in lakehouse.yaml; or delete the connector, if it is the deployment's"
            )
        return current and self._shown(current)

    def create(self, outputs: Outputs) -> Connector:
        connectors, config = self.cloud.connectors(outputs[self.cluster]), self._config(outputs)
        connectors.validate(config)
        connectors.put(config)
        return Connector(self.connector, "PROVISIONING", config=config)

    def wait_until_ready(self, outputs: Outputs, current: Connector) -> Connector:
        connectors = self.cloud.connectors(outputs[self.cluster])
        subjects = self.cloud.subjects(outputs[self.registry], outputs[self.registry_key])

        def look() -> Connector | None:
            connector = connectors.find(self.connector)
            return connector and self._shown(connector)

        self.wait_for_phase(look, CONNECTOR_READY, CONNECTOR_SECONDS)
        wait_until_visible(
            f"subject '{self.subject}' of {self.label}",
            lambda: True if self.subject in subjects.list() else None,
            deadline_seconds=SCHEMA_SECONDS,
            clock=self.clock,
        )
        return current

    def diff(self, outputs: Outputs, current: Connector) -> list[str]:
        return [
            f"{setting} is {current.config.get(setting)!r} instead of {value!r}"
            for setting, value in self._config(outputs).items()
            if current.config.get(setting) != value
        ]

    def warning(self, outputs: Outputs, current: Connector) -> str:
        return unready(current, CONNECTOR_READY) or (f"is {state_of(current)}" if current.detail else "")

    def update(self, outputs: Outputs, current: Connector) -> Connector:
        return self.create(outputs)

    def delete(self, outputs: Outputs, current: Connector) -> None:
        connectors = self.cloud.connectors(outputs[self.cluster])
        connectors.delete(self.connector)
        self.wait_until_gone(lambda: connectors.find(self.connector), CONNECTOR_SECONDS)

    def _shown(self, connector: Connector) -> Connector:
        """Return a connector with the failures of its tasks in its detail."""
        return replace(connector, detail=self.visible("; ".join(connector.failures)))

    def _config(self, outputs: Outputs) -> dict[str, str]:
        return {
            "connector.class": "DatagenSource",
            "name": self.connector,
            "kafka.auth.mode": "SERVICE_ACCOUNT",
            ACCOUNT: outputs[self.account].id,
            "kafka.topic": self.topic_name,
            "output.data.format": "AVRO",
            **self.settings,
        }
