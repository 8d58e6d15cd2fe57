"""Topics, and the Datagen connectors that fill some of them."""

from __future__ import annotations

from dataclasses import dataclass

from lakehouse.core.errors import UnclearState
from lakehouse.core.polling import REAL, Clock
from lakehouse.deploy.confluent.access import GRANTED_SECONDS, MANAGER_KEY
from lakehouse.deploy.step import Found, Step
from resources.confluent.connectors import READY, Connector
from resources.confluent.kafka import Topic, Topics
from resources.confluent.waiting import wait, wait_gone, wait_there, when_allowed
from resources.confluent_cloud import ConfluentCloud

TOPIC_SECONDS = 5 * 60
TOPIC_GONE_SECONDS = 60 * 60
CONNECTOR_SECONDS = 30 * 60
SCHEMA_SECONDS = 10 * 60
"""Until a connector that runs has registered its schema."""
REGISTRY_KEY = "confluent/key/schema_registry/schema_registry"


@dataclass(frozen=True)
class TopicStep(Step):
    """A topic of the cluster."""

    cloud: ConfluentCloud
    entry: str
    """What lakehouse.yaml calls it."""
    topic: str
    """What Kafka calls it."""
    partitions: int
    holds_data: bool = False
    """Whether others fill it."""
    clock: Clock = REAL
    retention_ms: int | None = None
    """How long records are kept; None leaves it to the cluster."""

    @property
    def name(self) -> str:
        return f"confluent/topic/{self.entry}"

    @property
    def what(self) -> str:
        return f"topic '{self.topic}'"

    @property
    def needs(self) -> tuple[str, ...]:
        return ("confluent/cluster", MANAGER_KEY)

    def find(self, found: Found) -> Topic | None:
        return self._topics(found).find(self.topic)

    def create(self, found: Found) -> Topic:
        def make() -> Topic:
            return self._topics(found).create(self.topic, self.partitions, self.retention_ms)

        return when_allowed(self.what, make, deadline_seconds=GRANTED_SECONDS, clock=self.clock)

    def settle(self, found: Found, it: Topic) -> Topic:
        return wait_there(self.what, lambda: self.find(found), deadline_seconds=TOPIC_SECONDS, clock=self.clock)

    def differences(self, found: Found, it: Topic) -> list[str]:
        """Raises: UnclearState when it has fewer partitions than declared: more would move keys between them."""
        if it.partitions < self.partitions:
            raise UnclearState(
                f"Topic '{self.topic}' has {it.partitions} partitions and lakehouse.yaml declares {self.partitions}. "
                f"Nothing was changed. Set 'partitions: {it.partitions}', or add partitions yourself (keys will move)"
            )
        if self.retention_ms is None:
            return []
        kept_ms = self._topics(found).retention_ms(self.topic)
        return [] if kept_ms == self.retention_ms else [f"retention.ms is {kept_ms} instead of {self.retention_ms}"]

    def change(self, found: Found, it: Topic) -> Topic:
        assert self.retention_ms is not None, "no retention is declared, so that none differs"
        self._topics(found).set_retention(self.topic, self.retention_ms)
        return it

    def remark(self, found: Found, it: Topic) -> str:
        if it.partitions <= self.partitions:
            return ""
        return f"has {it.partitions} partitions, not {self.partitions}: Kafka takes none away, and all are read"

    def delete(self, found: Found, it: Topic) -> None:
        self._topics(found).delete(self.topic)
        wait_gone(self.what, lambda: self.find(found), deadline_seconds=TOPIC_GONE_SECONDS, clock=self.clock)

    def _topics(self, found: Found) -> Topics:
        return self.cloud.topics(found["confluent/cluster"], found[MANAGER_KEY])


@dataclass(frozen=True)
class DatagenStep(Step):
    """A managed connector that fills a topic with synthetic records, by a quickstart of Confluent's."""

    cloud: ConfluentCloud
    entry: str
    topic: str
    subject: str
    """The subject that the connector registers its schema under."""
    clock: Clock = REAL

    @property
    def name(self) -> str:
        return f"confluent/connector/{self.entry}"

    @property
    def connector(self) -> str:
        """Its name in the cluster."""
        return f"datagen-{self.entry}"

    @property
    def what(self) -> str:
        return f"Datagen connector '{self.connector}'"

    @property
    def needs(self) -> tuple[str, ...]:
        return (
            "confluent/cluster",
            "confluent/schema_registry",
            "confluent/account/app_connector",
            "confluent/acls/app_connector",
            f"confluent/topic/{self.entry}",
            REGISTRY_KEY,
        )

    @property
    def lives_in(self) -> tuple[str, ...]:
        return ("confluent/cluster",)

    def find(self, found: Found) -> Connector | None:
        connectors = self.cloud.connectors(found["confluent/cluster"]).list()
        return next((each for each in connectors if each.name == self.connector), None)

    def create(self, found: Found) -> Connector:
        connectors, config = self.cloud.connectors(found["confluent/cluster"]), self._config(found)
        connectors.validate(config)
        connectors.put(config)
        return Connector(self.connector, "PROVISIONING", config=config)

    def settle(self, found: Found, it: Connector) -> Connector:
        connectors = self.cloud.connectors(found["confluent/cluster"])
        subjects = self.cloud.subjects(found["confluent/schema_registry"], found[REGISTRY_KEY])
        wait(
            self.what,
            lambda: connectors.find(self.connector),
            READY,
            deadline_seconds=CONNECTOR_SECONDS,
            clock=self.clock,
        )
        wait_there(
            f"subject '{self.subject}' of {self.what}",
            lambda: True if self.subject in subjects.list() else None,
            deadline_seconds=SCHEMA_SECONDS,
            clock=self.clock,
        )
        return it

    def differences(self, found: Found, it: Connector) -> list[str]:
        return [
            f"{setting} is {it.config.get(setting)!r} instead of {value!r}"
            for setting, value in self._config(found).items()
            if it.config.get(setting) != value
        ]

    def change(self, found: Found, it: Connector) -> Connector:
        return self.create(found)

    def delete(self, found: Found, it: Connector) -> None:
        connectors = self.cloud.connectors(found["confluent/cluster"])
        connectors.delete(self.connector)
        wait_gone(
            self.what,
            lambda: connectors.find(self.connector),
            deadline_seconds=CONNECTOR_SECONDS,
            clock=self.clock,
        )

    def _config(self, found: Found) -> dict[str, str]:
        return {
            "connector.class": "DatagenSource",
            "name": self.connector,
            "kafka.auth.mode": "SERVICE_ACCOUNT",
            "kafka.service.account.id": found["confluent/account/app_connector"].id,
            "kafka.topic": self.topic,
            "output.data.format": "AVRO",
            "quickstart": self.entry.upper(),
            "tasks.max": "1",
        }
