"""Flink: regions, compute pools, and SQL statements."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from resources.confluent.plane import Plane, the_one

READY = frozenset({"PROVISIONED"})


@dataclass(frozen=True)
class Region:
    """Where Flink runs. Statements are sent to `http_endpoint`."""

    id: str
    http_endpoint: str


@dataclass(frozen=True)
class Regions:
    """The regions in which Confluent offers Flink."""

    plane: Plane

    def find(self, region: str, cloud: str = "AWS") -> Region | None:
        """By the cloud's own name of the region."""
        answers = self.plane.items("/fcpm/v2/regions", {"cloud": cloud, "region_name": region})
        return the_one(f"Flink region '{region}'", [Region(each["id"], each["http_endpoint"]) for each in answers])


@dataclass(frozen=True)
class ComputePool:
    """What statements run on."""

    id: str
    name: str
    phase: str
    detail: str = ""

    @staticmethod
    def of(answer: dict[str, Any]) -> ComputePool:
        """Read an answer."""
        return ComputePool(answer["id"], answer["spec"]["display_name"], answer["status"]["phase"])


@dataclass(frozen=True)
class ComputePools:
    """The compute pools of one environment."""

    plane: Plane
    environment_id: str

    def list(self) -> list[ComputePool]:
        """All that the key may see."""
        answers = self.plane.items("/fcpm/v2/compute-pools", {"environment": self.environment_id})
        return [ComputePool.of(answer) for answer in answers]

    def find(self, name: str) -> ComputePool | None:
        """By display name.

        Raises: UnclearState when several have it.
        """
        return the_one(f"compute pool '{name}'", [each for each in self.list() if each.name == name])

    def get(self, pool_id: str) -> ComputePool | None:
        """By id; None when it is gone."""
        answer = self.plane.find(f"/fcpm/v2/compute-pools/{pool_id}", {"environment": self.environment_id})
        return answer and ComputePool.of(answer)

    def create(self, name: str, region: str, max_cfu: int, cloud: str = "AWS") -> ComputePool:
        """Begin to make one of at most so many Confluent Flink Units: `wait` for READY."""
        spec = {
            "display_name": name,
            "cloud": cloud,
            "region": region,
            "max_cfu": max_cfu,
            "default_pool": False,
            "environment": {"id": self.environment_id},
        }
        return ComputePool.of(self.plane.call("POST", "/fcpm/v2/compute-pools", body={"spec": spec}))

    def delete(self, pool_id: str) -> None:
        """Begin to delete it: `wait_gone`."""
        self.plane.delete(f"/fcpm/v2/compute-pools/{pool_id}", {"environment": self.environment_id})


@dataclass(frozen=True)
class Statement:
    """A SQL statement that was sent. A query that never ends is RUNNING, one that has ended is COMPLETED."""

    name: str
    sql: str
    phase: str
    detail: str

    @staticmethod
    def of(answer: dict[str, Any]) -> Statement:
        """Read an answer."""
        status = answer["status"]
        return Statement(answer["name"], answer["spec"]["statement"], status["phase"], status.get("detail") or "")


@dataclass(frozen=True)
class Statements:
    """The statements of one environment. The plane is Flink's of one region."""

    plane: Plane
    organization_id: str
    environment_id: str

    def list(self) -> list[Statement]:
        """All that the key may see."""
        return [Statement.of(answer) for answer in self.plane.items(self._path)]

    def find(self, name: str) -> Statement | None:
        """By name."""
        answer = self.plane.find(f"{self._path}/{name}")
        return answer and Statement.of(answer)

    def create(self, name: str, sql: str, *, pool_id: str, principal_id: str, catalog: str, database: str) -> Statement:
        """Send one: `wait` for RUNNING or COMPLETED.

        Parameters: `name` of at most 100 of `[a-z0-9.-]`; `principal_id` (`sa-…`) in whose right it runs; `catalog` is
        the environment's display name, `database` the cluster's.
        Raises: Conflict when there is one of that name.
        """
        spec = {
            "statement": sql,
            "properties": {"sql.current-catalog": catalog, "sql.current-database": database},
            "compute_pool_id": pool_id,
            "principal": principal_id,
        }
        return Statement.of(self.plane.call("POST", self._path, body={"name": name, "spec": spec}))

    def delete(self, name: str) -> None:
        """Begin to stop and delete it: `wait_gone`. The topic and the schemas it made stay."""
        self.plane.delete(f"{self._path}/{name}")

    @property
    def _path(self) -> str:
        return f"/sql/v1/organizations/{self.organization_id}/environments/{self.environment_id}/statements"
