"""API keys: which account may use which plane. A secret is shown once, in the answer that makes it."""

from __future__ import annotations

import datetime as dt
from dataclasses import dataclass, field
from typing import Any

from resources.confluent.plane import Key, Plane


@dataclass(frozen=True)
class Scope:
    """What a key is for, as the API's object reference."""

    id: str
    kind: str
    api_version: str | None = None
    environment: str | None = None

    @staticmethod
    def cluster(cluster_id: str) -> Scope:
        """A Kafka cluster (`lkc-…`) or a Schema Registry (`lsrc-…`)."""
        return Scope(cluster_id, "Cluster")

    @staticmethod
    def flink(region_id: str, environment_id: str) -> Scope:
        """Flink in one region (`aws.us-east-1`) of an environment."""
        return Scope(region_id, "Region", "fcpm/v2", environment_id)

    @staticmethod
    def tableflow() -> Scope:
        """Tableflow."""
        return Scope("tableflow", "Tableflow", "tableflow/v1")


@dataclass(frozen=True)
class ApiKey:
    """A key. `secret` is None but in the answer that made it."""

    id: str
    name: str
    owner_id: str
    scope_id: str
    environment_id: str | None
    created_at: dt.datetime
    secret: str | None = field(default=None, repr=False)

    @property
    def key(self) -> Key:
        """For a plane.

        Raises: ValueError for a key that was looked up, not made.
        """
        if self.secret is None:
            raise ValueError(f"the secret of API key {self.id} is not known: it is shown only when a key is made")
        return Key(self.id, self.secret)

    def is_for(self, scope: Scope) -> bool:
        """Whether that is what it opens."""
        return self.scope_id == scope.id and scope.environment in (None, self.environment_id)

    @staticmethod
    def of(answer: dict[str, Any]) -> ApiKey:
        """Read an answer."""
        spec = answer["spec"]
        resource = spec.get("resource") or {}
        return ApiKey(
            id=answer["id"],
            name=spec.get("display_name", ""),
            owner_id=spec["owner"]["id"],
            scope_id=resource.get("id", ""),
            environment_id=resource.get("environment"),
            created_at=dt.datetime.fromisoformat(answer["metadata"]["created_at"]),
            secret=spec.get("secret") or None,
        )


@dataclass(frozen=True)
class ApiKeys:
    """The API keys of an organization."""

    plane: Plane

    def list(self, owner_id: str, scope: Scope | None = None) -> list[ApiKey]:
        """One account's keys, for one thing or for all, the oldest first."""
        query = {"spec.owner": owner_id, "spec.resource": scope and scope.id}
        keys = [ApiKey.of(answer) for answer in self.plane.items("/iam/v2/api-keys", query)]
        mine = [each for each in keys if scope is None or each.is_for(scope)]
        return sorted(mine, key=lambda each: each.created_at)

    def find(self, key_id: str) -> ApiKey | None:
        """By id, without its secret."""
        answer = self.plane.find(f"/iam/v2/api-keys/{key_id}")
        return answer and ApiKey.of(answer)

    def create(self, name: str, description: str, owner_id: str, scope: Scope) -> ApiKey:
        """Make one. Its secret is in what this returns and nowhere else; planes learn of the key within minutes."""
        resource = {
            "id": scope.id,
            "kind": scope.kind,
            "api_version": scope.api_version,
            "environment": scope.environment,
        }
        spec = {
            "display_name": name,
            "description": description,
            "owner": {"id": owner_id, "kind": "ServiceAccount"},
            "resource": {part: value for part, value in resource.items() if value is not None},
        }
        return ApiKey.of(self.plane.call("POST", "/iam/v2/api-keys", body={"spec": spec}))

    def delete(self, key_id: str) -> None:
        """Delete it: whoever uses it is refused from now on."""
        self.plane.delete(f"/iam/v2/api-keys/{key_id}")
