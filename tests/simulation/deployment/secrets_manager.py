"""AWS Secrets Manager in memory, by the methods of boto3's client that the project calls.

Source of the rules: AWS Secrets Manager, API reference (CreateSecret, PutSecretValue, UpdateSecretVersionStage,
DeleteSecret, RestoreSecret, GetSecretValue) and "Secret versions".
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import lru_cache
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from botocore.exceptions import ClientError, EndpointConnectionError, ReadTimeoutError

from resources.aws.secrets_manager import CURRENT, PREVIOUS

if TYPE_CHECKING:
    from tests.simulation.deployment.clouds import CloudWorld


def _error(name: str) -> type[ClientError]:
    return type(name, (ClientError,), {})


ERRORS = {
    name: _error(name)
    for name in (
        "ResourceExistsException",
        "ResourceNotFoundException",
        "InvalidRequestException",
        "InvalidParameterException",
    )
}


@dataclass
class Secret:
    """One secret.

    Attributes:
        tags: Its tags.
        versions: Values by version id, the oldest first.
        labels: Version ids by staging label.
        created: Creation times of the versions, in seconds since the epoch.
        deleted: When it was deleted; None if it was not.
        changed: When it was written or a label moved last.
    """

    tags: dict[str, str]
    versions: dict[str, str] = field(default_factory=dict)
    labels: dict[str, str] = field(default_factory=dict)
    created: dict[str, float] = field(default_factory=dict)
    deleted: float | None = None
    changed: float = 0
    days: float = 0

    def move(self, label: str, version_id: str, now: float) -> None:
        """Move a label to a version. The version that was current becomes the previous one."""
        before, self.changed = self.labels.get(label), now
        self.labels[label] = version_id
        if label == CURRENT and before and before != version_id:
            self.labels[PREVIOUS] = before


_parsed = lru_cache(maxsize=1000)(json.loads)


class MemorySecrets:
    """The secrets of one account and region."""

    def __init__(self) -> None:
        self.secrets: dict[str, Secret] = {}
        self.count = 0

    def value(self, name: str, label: str = CURRENT) -> dict[str, str] | None:
        """Return the value with a label; None if it cannot be read or is not a JSON object."""
        secret = self.secrets.get(name)
        if secret is None or secret.deleted is not None or label not in secret.labels:
            return None
        value = _parsed(secret.versions[secret.labels[label]])
        return value if isinstance(value, dict) else None

    def put(self, name: str, text: str, labels: tuple[str, ...], now: float) -> str:
        """Add a version, and return its id."""
        self.count += 1
        version_id = f"version-{self.count:04}"
        secret = self.secrets[name]
        secret.versions[version_id], secret.created[version_id] = text, now
        for label in labels:
            secret.move(label, version_id, now)
        return version_id


class MemorySecretsClient:
    """boto3's client of the secrets of one region, in one process of the simulation."""

    exceptions = SimpleNamespace(**ERRORS)

    meta = SimpleNamespace(events=SimpleNamespace(register=lambda event, handler: None))
    """The events of botocore, of which this client has none: its responses are never those of a proxy."""

    def __init__(self, world: CloudWorld, store: MemorySecrets):
        self._world, self._store = world, store

    def __getattr__(self, method: str) -> Callable[..., Any]:
        """Return a method of the client, which passes the scheduler."""
        act: Callable[..., Any] = getattr(self, f"do_{method}")

        def call(**arguments: Any) -> Any:
            # boto3 sends the same token when it repeats a call.
            token = {"token": f"{id(arguments)}"} if method in ("create_secret", "put_secret_value") else {}
            done: dict[str, Any] = {}

            def effect() -> Any:
                if token and done:
                    return done["result"]
                done["result"] = act(**arguments)
                return done["result"]

            def failed(reason: str) -> Exception:
                if reason == "the request was lost":
                    return EndpointConnectionError(endpoint_url="https://secretsmanager")
                return ReadTimeoutError(endpoint_url="https://secretsmanager")

            operation = f"secretsmanager {method}"
            try:
                return self._world.call(operation, effect, failed)
            except (EndpointConnectionError, ReadTimeoutError):
                if self._world.choices.happens(50):
                    raise
            return self._world.call(operation, effect, failed)

        return call

    def get_paginator(self, method: str) -> Any:
        """Return a paginator whose only page is the list."""
        assert method == "list_secrets"
        return SimpleNamespace(paginate=lambda **arguments: iter([self.list_secrets(**arguments)]))

    def do_create_secret(self, Name: str, SecretString: str, Description: str, Tags: list[dict[str, str]]) -> Any:  # noqa: N803
        secret = self._lookup(Name)
        if secret:
            raise self._refused("ResourceExistsException" if secret.deleted is None else "InvalidRequestException")
        self._store.secrets[Name] = Secret({tag["Key"]: tag["Value"] for tag in Tags})
        return {"VersionId": self._store.put(Name, SecretString, (CURRENT,), self._now)}

    def do_get_secret_value(self, SecretId: str, VersionStage: str = "", VersionId: str = "") -> Any:  # noqa: N803
        secret = self._usable(SecretId)
        version_id = VersionId or secret.labels.get(VersionStage or CURRENT, "")
        if version_id not in secret.versions:
            raise self._refused("ResourceNotFoundException")
        return {
            "VersionId": version_id,
            "VersionStages": [label for label, version in secret.labels.items() if version == version_id],
            "SecretString": secret.versions[version_id],
            "CreatedDate": datetime.fromtimestamp(secret.created[version_id], UTC),
        }

    def do_put_secret_value(self, SecretId: str, SecretString: str, VersionStages: tuple[str, ...] = (CURRENT,)) -> Any:  # noqa: N803
        self._usable(SecretId)
        version_id = self._store.put(SecretId, SecretString, tuple(VersionStages), self._now)
        return {"VersionId": version_id, "VersionStages": list(VersionStages)}

    def do_update_secret_version_stage(
        self,
        SecretId: str,
        VersionStage: str,
        MoveToVersionId: str,
        RemoveFromVersionId: str | None = None,  # noqa: N803
    ) -> Any:
        secret = self._usable(SecretId)
        if secret.labels.get(VersionStage) != RemoveFromVersionId or MoveToVersionId not in secret.versions:
            raise self._refused("InvalidParameterException")
        secret.move(VersionStage, MoveToVersionId, self._now)
        return {}

    def do_list_secret_version_ids(self, SecretId: str, IncludeDeprecated: bool) -> Any:  # noqa: N803
        return {"Versions": [{"VersionId": version} for version in self._usable(SecretId).versions]}

    def do_delete_secret(self, SecretId: str, RecoveryWindowInDays: int) -> Any:  # noqa: N803
        secret = self._usable(SecretId)
        secret.deleted, secret.days = self._now, RecoveryWindowInDays
        return {}

    def do_restore_secret(self, SecretId: str) -> Any:  # noqa: N803
        if (secret := self._lookup(SecretId)) is None:
            raise self._refused("ResourceNotFoundException")
        secret.deleted = None
        return {}

    def do_describe_secret(self, SecretId: str) -> Any:  # noqa: N803
        if (secret := self._lookup(SecretId)) is None:
            raise self._refused("ResourceNotFoundException")
        tags = [{"Key": key, "Value": value} for key, value in secret.tags.items()]
        changed = datetime.fromtimestamp(secret.changed, UTC)
        deleted = {} if secret.deleted is None else {"DeletedDate": secret.deleted}
        stages: dict[str, list[str]] = {}
        for label, version in secret.labels.items():
            stages.setdefault(version, []).append(label)
        return {"Tags": tags, "LastChangedDate": changed, "VersionIdsToStages": stages, **deleted}

    def do_list_secrets(self, Filters: list[dict[str, Any]]) -> Any:  # noqa: N803
        [values] = [condition["Values"] for condition in Filters]
        names = [name for name in list(self._store.secrets) if self._lookup(name) and name.startswith(tuple(values))]
        return {"SecretList": [{"Name": name} for name in names if self._store.secrets[name].deleted is None]}

    @property
    def _now(self) -> float:
        return self._world.true_now

    def _lookup(self, name: str) -> Secret | None:
        secret = self._store.secrets.get(name)
        if secret and secret.deleted is not None and self._now > secret.deleted + secret.days * 86_400:
            del self._store.secrets[name]
            return None
        return secret

    def _usable(self, name: str) -> Secret:
        if (secret := self._lookup(name)) is None:
            raise self._refused("ResourceNotFoundException")
        if secret.deleted is not None:
            raise self._refused("InvalidRequestException")
        return secret

    def _refused(self, code: str) -> ClientError:
        return ERRORS[code]({"Error": {"Code": code, "Message": "refused"}}, "Operation")
