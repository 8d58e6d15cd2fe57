"""Topics and access control lists of one cluster, through Kafka's REST API."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any
from urllib.parse import quote

from resources.confluent.plane import Plane

RETENTION = "retention.ms"


@dataclass(frozen=True)
class Topic:
    """A topic."""

    name: str
    partitions: int

    @staticmethod
    def of(answer: dict[str, Any]) -> Topic:
        """Read an answer."""
        return Topic(answer["topic_name"], answer["partitions_count"])


@dataclass(frozen=True)
class Topics:
    """The topics of one cluster."""

    plane: Plane
    cluster_id: str

    def list(self) -> list[Topic]:
        """All that the key may see."""
        return [Topic.of(answer) for answer in self.plane.listed(self._path)["data"]]

    def find(self, name: str) -> Topic | None:
        """By name."""
        answer = self.plane.find(f"{self._path}/{quote(name, safe='')}")
        return answer and Topic.of(answer)

    def create(self, name: str, partitions: int, retention_ms: int | None = None) -> Topic:
        """Make one.

        Parameters: how long records are kept, in milliseconds; None leaves it to the cluster.
        Raises: Conflict when there is one of that name, or one that is still being deleted.
        """
        configs = [] if retention_ms is None else [{"name": RETENTION, "value": str(retention_ms)}]
        body = {"topic_name": name, "partitions_count": partitions, "configs": configs}
        return Topic.of(self.plane.call("POST", self._path, body=body))

    def retention_ms(self, name: str) -> int:
        """How long records of a topic are kept, in milliseconds; -1 is for ever.

        Raises: Gone when there is no such topic.
        """
        return int(self.plane.call("GET", f"{self._path}/{quote(name, safe='')}/configs/{RETENTION}")["value"])

    def set_retention(self, name: str, retention_ms: int) -> None:
        """Keep records so long. Older ones go when it becomes shorter."""
        path = f"{self._path}/{quote(name, safe='')}/configs/{RETENTION}"
        self.plane.call("PUT", path, body={"value": str(retention_ms)})

    def delete(self, name: str) -> None:
        """Begin to delete it: `wait_gone`."""
        self.plane.delete(f"{self._path}/{quote(name, safe='')}")

    @property
    def _path(self) -> str:
        return f"/kafka/v3/clusters/{self.cluster_id}/topics"


@dataclass(frozen=True)
class Acl:
    """That `principal` (`User:sa-…`) may do `operation` on one thing."""

    principal: str
    operation: str
    resource_type: str
    resource_name: str
    pattern_type: str = "LITERAL"
    host: str = "*"
    permission: str = "ALLOW"

    @staticmethod
    def of(answer: dict[str, Any]) -> Acl:
        """Read an answer."""
        return Acl(**{name: answer[name] for name in Acl.__dataclass_fields__})


@dataclass(frozen=True)
class Acls:
    """The access control lists of one cluster."""

    plane: Plane
    cluster_id: str

    def list(self, principal: str) -> list[Acl]:
        """One principal's. Asked about everybody, Kafka names accounts by numbers that no other plane knows."""
        return [Acl.of(answer) for answer in self.plane.listed(self._path, {"principal": principal})["data"]]

    def create(self, acl: Acl) -> None:
        """Add it; nothing changes if it is there."""
        self.plane.call("POST", self._path, body=asdict(acl))

    def delete(self, acl: Acl) -> None:
        """Remove exactly this one: a filter with fewer fields would take others along."""
        self.plane.delete(self._path, asdict(acl))

    @property
    def _path(self) -> str:
        return f"/kafka/v3/clusters/{self.cluster_id}/acls"
