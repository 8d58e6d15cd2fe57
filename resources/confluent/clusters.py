"""Kafka clusters with their topics, access control lists and managed connectors, and the Schema Registry that Confluent
creates with the first cluster of an environment.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any
from urllib.parse import quote

from resources.confluent.api_client import ApiClient, ConfluentError, InvalidRequest, objects, shortened
from resources.confluent.collection import Collection, NamedCollection, single_match

READY = frozenset({"PROVISIONED"})


@dataclass(frozen=True)
class Cluster:
    """A Kafka cluster."""

    id: str
    name: str
    environment_id: str
    phase: str
    kafka_crn: str
    """The Confluent Resource Name that is the parent of its topics."""
    http_endpoint: str
    """The address of Kafka's REST API; empty while the cluster is provisioned."""
    bootstrap_endpoint: str
    """The bootstrap server; empty while the cluster is provisioned."""
    protected: bool
    """Whether Confluent refuses to delete the cluster."""
    detail: str = ""
    """Empty: the API has no message about the phase."""

    @property
    def crn(self) -> str:
        """The Confluent Resource Name of the cluster itself."""
        return self.kafka_crn.rpartition("/kafka=")[0]

    @staticmethod
    def of(response: dict[str, Any]) -> Cluster:
        """Parse a response."""
        spec = response["spec"]
        return Cluster(
            id=response["id"],
            name=spec["display_name"],
            environment_id=spec["environment"]["id"],
            phase=response["status"]["phase"],
            kafka_crn=response["metadata"]["resource_name"],
            http_endpoint=spec.get("http_endpoint") or "",
            bootstrap_endpoint=spec.get("kafka_bootstrap_endpoint") or "",
            protected=bool(spec.get("deletion_protection")),
        )


@dataclass(frozen=True)
class Clusters(Collection[Cluster]):
    """The Kafka clusters of one environment. Deleting one deletes all its topics."""

    environment_id: str

    label, kind, path = "Kafka cluster", Cluster, "/cmk/v2/clusters"
    is_forbidden_if_missing = True

    @property
    def query(self) -> Mapping[str, str]:
        return {"environment": self.environment_id}

    def create(self, name: str, region: str) -> Cluster:
        """Start to create a Standard cluster in one zone. `wait` until it is READY."""
        spec = {
            "display_name": name,
            "availability": "SINGLE_ZONE",
            "cloud": "AWS",
            "region": region,
            "config": {"kind": "Standard"},
            "environment": {"id": self.environment_id},
        }
        return self._create({"spec": spec})


@dataclass(frozen=True)
class SchemaRegistryCluster:
    """A Schema Registry."""

    id: str
    phase: str
    crn: str
    http_endpoint: str
    detail: str = ""

    @staticmethod
    def of(response: dict[str, Any]) -> SchemaRegistryCluster:
        """Parse a response."""
        return SchemaRegistryCluster(
            id=response["id"],
            phase=response["status"]["phase"],
            crn=response["metadata"]["resource_name"],
            http_endpoint=response["spec"].get("http_endpoint") or "",
        )


@dataclass(frozen=True)
class SchemaRegistryClusters:
    """The Schema Registry of one environment. It cannot be created or deleted separately."""

    client: ApiClient
    environment_id: str

    def find(self) -> SchemaRegistryCluster | None:
        """Return the Schema Registry; None before the environment has its first cluster.

        Raises:
            UnclearState: There are several.
        """
        query = {"environment": self.environment_id}
        registries = list(self.client.items("/srcm/v3/clusters", SchemaRegistryCluster.of, query))
        return single_match(f"the Schema Registry of {self.environment_id}", registries)


@dataclass(frozen=True)
class Subjects:
    """The subjects in a Schema Registry."""

    client: ApiClient

    def list(self) -> list[str]:
        """Return the names of the subjects."""
        return self.client.listed("/subjects", objects)


RETENTION, CLEANUP = "retention.ms", "cleanup.policy"


@dataclass(frozen=True)
class KafkaTopic:
    """A topic."""

    name: str
    partitions: int

    @staticmethod
    def of(response: dict[str, Any]) -> KafkaTopic:
        """Parse a response."""
        return KafkaTopic(response["topic_name"], response["partitions_count"])


@dataclass(frozen=True)
class Topics(NamedCollection[KafkaTopic]):
    """The topics of one cluster."""

    cluster_id: str

    kind = KafkaTopic

    @property
    def path(self) -> str:
        return f"/kafka/v3/clusters/{self.cluster_id}/topics"

    def list(self) -> list[KafkaTopic]:
        return self.client.listed(
            self.path, lambda response: [self.kind.of(topic) for topic in objects(response["data"])]
        )

    def create(
        self, name: str, partitions: int, retention_ms: int | None = None, *, compacted: bool = False
    ) -> KafkaTopic:
        """Create a topic.

        Args:
            name: The topic's name.
            partitions: The number of partitions.
            retention_ms: Retention of records in milliseconds; None for the default of the cluster.
            compacted: Whether Kafka keeps the last record of each key, instead of deleting old records.

        Raises:
            Conflict: A topic of that name exists or is still being deleted.
        """
        configs = [] if retention_ms is None else [{"name": RETENTION, "value": str(retention_ms)}]
        if compacted:
            configs.append({"name": CLEANUP, "value": "compact"})
        return self._create({"topic_name": name, "partitions_count": partitions, "configs": configs})

    def retention_ms(self, name: str) -> int:
        """Return the retention of a topic in milliseconds; -1 is forever.

        Raises:
            NotFound: The topic does not exist.
        """
        path = f"{self._one(name)}/configs/{RETENTION}"
        return self.client.send("GET", path, lambda response: int(response["value"]))

    def set_retention(self, name: str, retention_ms: int) -> None:
        """Set the retention of a topic in milliseconds. Kafka deletes older records."""
        self.client.call("PUT", f"{self._one(name)}/configs/{RETENTION}", body={"value": str(retention_ms)})


@dataclass(frozen=True)
class Acl:
    """A rule that allows `principal` (`User:sa-…`) an `operation` on one resource."""

    principal: str
    operation: str
    resource_type: str
    resource_name: str
    pattern_type: str = "LITERAL"
    host: str = "*"
    permission: str = "ALLOW"

    @staticmethod
    def of(response: dict[str, Any]) -> Acl:
        """Parse a response."""
        return Acl(**{name: response[name] for name in Acl.__dataclass_fields__})


@dataclass(frozen=True)
class Acls:
    """The access control lists of one cluster."""

    client: ApiClient
    cluster_id: str

    def list(self, principal: str) -> list[Acl]:
        """Return the rules of one principal.

        A list of all principals would be useless: it names accounts by numbers that other APIs do not use.
        """
        query = {"principal": principal}
        return self.client.listed(
            self._path, lambda response: [Acl.of(acl) for acl in objects(response["data"])], query
        )

    def create(self, acl: Acl) -> None:
        """Create a rule; do nothing if it exists."""
        self.client.call("POST", self._path, body=asdict(acl))

    def delete(self, acl: Acl) -> None:
        """Delete exactly one rule: a filter with fewer fields would match other rules too."""
        self.client.delete(self._path, asdict(acl))

    @property
    def _path(self) -> str:
        return f"/kafka/v3/clusters/{self.cluster_id}/acls"


CONNECTOR_READY = frozenset({"RUNNING"})


@dataclass(frozen=True)
class Task:
    """A task of a connector. `detail` is the reason of its failure, without credentials."""

    id: int
    phase: str
    detail: str = ""


@dataclass(frozen=True)
class Connector:
    """A connector. `detail` is the reason of its failure, without credentials; only `list` sets `config`."""

    name: str
    phase: str
    detail: str = ""
    config: Mapping[str, str] = field(default_factory=dict, repr=False)
    tasks: tuple[Task, ...] = ()

    @property
    def failures(self) -> list[str]:
        """The reasons why it or some of its tasks failed; empty if nothing did."""
        failed = [task for task in self.tasks if task.phase == "FAILED"]
        reasons = [self.detail, *(f"task {task.id}: {task.detail or task.phase}" for task in failed)]
        return [reason for reason in reasons if reason]

    @staticmethod
    def of(status: dict[str, Any], config: Mapping[str, str] | None = None) -> Connector:
        """Parse a response of `/status`."""
        state = status["connector"]
        tasks = tuple(
            Task(task["id"], task["state"], shortened(task.get("msg") or "")) for task in status.get("tasks") or ()
        )
        return Connector(status["name"], state["state"], shortened(state.get("trace") or ""), config or {}, tasks)


@dataclass(frozen=True)
class Connectors:
    """The connectors of one cluster."""

    client: ApiClient
    environment_id: str
    cluster_id: str

    def list(self) -> list[Connector]:
        """Return all connectors with their states and configurations."""

        def connectors(response: dict[str, Any]) -> list[Connector]:
            return [Connector.of(one["status"], one["info"]["config"]) for one in response.values()]

        return self.client.listed(f"{self._path}/connectors", connectors, {"expand": "info,status,id"})

    def find(self, name: str) -> Connector | None:
        """Return the connector with a name, without its configuration; None if it does not exist."""
        return self.client.find(f"{self._one(name)}/status", Connector.of)

    def validate(self, config: dict[str, str]) -> None:
        """Validate a configuration on the API, without effect."""
        plugin = quote(config["connector.class"], safe="")

        def faults(response: dict[str, Any]) -> list[str] | None:
            return response["error_count"] and [
                f"{setting['value']['name']}: {'; '.join(setting['value']['errors'])}"
                for setting in response["configs"]
                if setting["value"].get("errors")
            ]

        path = f"{self._path}/connector-plugins/{plugin}/config/validate"
        if faulty := self.client.send("PUT", path, faults, body=config):
            raise InvalidRequest(
                f"Confluent Cloud does not accept the configuration of connector '{config['name']}': "
                f"{', '.join(faulty)}. The connector was left unchanged. Correct the settings and run the command again"
            )

    def put(self, config: dict[str, str]) -> None:
        """Create the connector `config["name"]`, or replace its configuration. `wait` until it is READY."""
        self.client.call("PUT", f"{self._one(config['name'])}/config", body=config)

    def delete(self, name: str) -> None:
        """Delete a connector."""
        response = self.client.delete(self._one(name))
        if isinstance(response, dict) and response.get("error"):
            raise ConfluentError(
                f"Confluent Cloud did not delete connector '{name}': {response['error']}. It is unchanged. Run the "
                f"command again, or delete it in the Cloud Console"
            )

    @property
    def _path(self) -> str:
        return f"/connect/v1/environments/{self.environment_id}/clusters/{self.cluster_id}"

    def _one(self, name: str) -> str:
        return f"{self._path}/connectors/{quote(name, safe='')}"
