"""Topics and access control lists of one cluster, through Kafka's REST API."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any
from urllib.parse import quote

from resources.confluent.api_client import ApiClient, objects

RETENTION, CLEANUP = "retention.ms", "cleanup.policy"


@dataclass(frozen=True)
class Topic:
    """A topic."""

    name: str
    partitions: int

    @staticmethod
    def of(response: dict[str, Any]) -> Topic:
        """Parse a response."""
        return Topic(response["topic_name"], response["partitions_count"])


@dataclass(frozen=True)
class Topics:
    """The topics of one cluster."""

    client: ApiClient
    cluster_id: str

    def list(self) -> list[Topic]:
        """Return the topics that are visible to the key."""
        return self.client.listed(self._path, lambda response: [Topic.of(topic) for topic in objects(response["data"])])

    def find(self, name: str) -> Topic | None:
        """Return the topic with a name, or None."""
        return self.client.find(f"{self._path}/{quote(name, safe='')}", Topic.of)

    def create(self, name: str, partitions: int, retention_ms: int | None = None, *, compacted: bool = False) -> Topic:
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
        body = {"topic_name": name, "partitions_count": partitions, "configs": configs}
        return self.client.send("POST", self._path, Topic.of, body=body)

    def retention_ms(self, name: str) -> int:
        """Return the retention of a topic in milliseconds; -1 is forever.

        Raises:
            NotFound: The topic does not exist.
        """
        path = f"{self._path}/{quote(name, safe='')}/configs/{RETENTION}"
        return self.client.send("GET", path, lambda response: int(response["value"]))

    def set_retention(self, name: str, retention_ms: int) -> None:
        """Set the retention of a topic in milliseconds. Kafka deletes older records."""
        path = f"{self._path}/{quote(name, safe='')}/configs/{RETENTION}"
        self.client.call("PUT", path, body={"value": str(retention_ms)})

    def delete(self, name: str) -> None:
        """Start to delete a topic. Wait with `wait_until_deleted`."""
        self.client.delete(f"{self._path}/{quote(name, safe='')}")

    @property
    def _path(self) -> str:
        return f"/kafka/v3/clusters/{self.cluster_id}/topics"


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
