"""Flink: regions, compute pools, and SQL statements."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from resources.confluent.api_client import ApiClient, shortened
from resources.confluent.collection import Collection, NamedCollection, single_match

READY = frozenset({"PROVISIONED"})


@dataclass(frozen=True)
class Region:
    """A region of Flink, whose statements are sent to `http_endpoint`."""

    id: str
    http_endpoint: str

    @staticmethod
    def of(response: dict[str, Any]) -> Region:
        """Parse a response."""
        return Region(response["id"], response["http_endpoint"])


@dataclass(frozen=True)
class Regions:
    """The regions in which Confluent offers Flink."""

    client: ApiClient

    def find(self, region: str) -> Region | None:
        """Return the region of AWS with this name; None if Confluent does not offer Flink in it."""
        query = {"cloud": "AWS", "region_name": region}
        return single_match(f"Flink region '{region}'", list(self.client.items("/fcpm/v2/regions", Region.of, query)))


@dataclass(frozen=True)
class ComputePool:
    """A compute pool, on which statements run."""

    id: str
    name: str
    phase: str
    detail: str = ""

    @staticmethod
    def of(response: dict[str, Any]) -> ComputePool:
        """Parse a response."""
        return ComputePool(response["id"], response["spec"]["display_name"], response["status"]["phase"])


@dataclass(frozen=True)
class ComputePools(Collection[ComputePool]):
    """The compute pools of one environment."""

    environment_id: str

    label, kind, path = "compute pool", ComputePool, "/fcpm/v2/compute-pools"
    is_forbidden_if_missing = True

    @property
    def query(self) -> Mapping[str, str]:
        return {"environment": self.environment_id}

    def create(self, name: str, region: str, max_cfu: int) -> ComputePool:
        """Start to create a compute pool with at most `max_cfu` Confluent Flink Units. `wait` until it is READY."""
        spec = {
            "display_name": name,
            "cloud": "AWS",
            "region": region,
            "max_cfu": max_cfu,
            "default_pool": False,
            "environment": {"id": self.environment_id},
        }
        return self._create({"spec": spec})


@dataclass(frozen=True)
class Statement:
    """A submitted SQL statement. The phase of an unbounded query is RUNNING, that of a finished one COMPLETED.

    `detail` is the reason of its phase, without credentials. `principal_id` is the account with whose roles it runs;
    empty if the API does not show it.
    """

    name: str
    sql: str
    phase: str
    detail: str
    principal_id: str = ""

    @staticmethod
    def of(response: dict[str, Any]) -> Statement:
        """Parse a response."""
        spec, status = response["spec"], response["status"]
        return Statement(
            name=response["name"],
            sql=spec["statement"],
            phase=status["phase"],
            detail=shortened(status.get("detail") or ""),
            principal_id=spec.get("principal") or "",
        )


@dataclass(frozen=True)
class Statements(NamedCollection[Statement]):
    """The statements of one environment. The client is that of Flink in one region.

    Deleting one stops it. Its topic and schemas are kept.
    """

    organization_id: str
    environment_id: str

    kind = Statement

    @property
    def path(self) -> str:
        return f"/sql/v1/organizations/{self.organization_id}/environments/{self.environment_id}/statements"

    def create(self, name: str, sql: str, *, pool_id: str, principal_id: str, catalog: str, database: str) -> Statement:
        """Submit a statement. `wait` until it is RUNNING or COMPLETED.

        Args:
            name: At most 100 characters of `[a-z0-9.-]`.
            sql: The statement.
            pool_id: The compute pool.
            principal_id: The service account (`sa-…`) with whose roles it runs.
            catalog: The display name of the environment.
            database: The display name of the cluster.

        Raises:
            Conflict: A statement of that name exists.
        """
        spec = {
            "statement": sql,
            "properties": {"sql.current-catalog": catalog, "sql.current-database": database},
            "compute_pool_id": pool_id,
            "principal": principal_id,
        }
        return self._create({"name": name, "spec": spec})
