"""What is left in AWS Secrets Manager when a deployment goes.

Steps of other systems make its secrets, and need them to take away what is theirs: this one comes first, so that
deletion comes to it last.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Any

from lakehouse.deploy.aws.service import AwsError
from lakehouse.deploy.aws.step import EVERY_SECONDS, GONE_SECONDS, AwsStep
from lakehouse.deploy.step import Found
from resources.confluent.waiting import wait_gone
from resources.secrets_manager import RECOVERY_DAYS, TAG

SERVICE = "secretsmanager"

LAYOUT = (
    "schema_registry_cluster/python_client",
    "schema_registry_cluster/spark/python_client",
    *(f"kafka_cluster/{account}/python_client" for account in ("app_manager", "app_consumer", "app_producer", "spark")),
    "flink",
    "tableflow",
)
"""Confluent's secrets in the kickstarter's layout. Each is asked for: the list, which has all others, lags behind by
minutes (Secrets Manager, ListSecrets)."""


@dataclass(frozen=True)
class KeptSecrets(AwsStep):
    """`aws/secrets`: what is found are their names."""

    name = "aws/secrets"

    @property
    def what(self) -> str:
        """Where they are."""
        return f"secrets under '{self.names.confluent_secrets}/' and '{self.names.snowflake_secret}'"

    def find(self, found: Found) -> tuple[str, ...] | None:
        """Their names, without those that were deleted and can only be restored."""
        return self._names() or None

    def create(self, found: Found) -> tuple[str, ...]:
        """Nothing: a secret is made by the step that knows its value."""
        return ()

    def delete(self, found: Found, it: tuple[str, ...]) -> None:
        """Delete them. For `RECOVERY_DAYS` each can be restored, as `lakehouse deploy create` does."""
        for name in it:
            if self._described(name):
                try:
                    self.service(SERVICE).find("delete_secret", SecretId=name, RecoveryWindowInDays=RECOVERY_DAYS)
                except AwsError:
                    # The client repeats a call whose answer was lost, and AWS refuses what is deleted already.
                    if self._described(name):
                        raise
        for name in it:
            wait_gone(
                f"secret '{name}'",
                partial(self._described, name),
                deadline_seconds=GONE_SECONDS,
                every_seconds=EVERY_SECONDS,
                clock=self.clock,
            )

    def _names(self) -> tuple[str, ...]:
        names = self.names
        known = {f"{names.confluent_secrets}/{path}" for path in LAYOUT} | {names.snowflake_secret}
        return tuple(name for name in sorted(known | self._listed()) if self._is_ours(name))

    def _listed(self) -> set[str]:
        path, name = f"{self.names.confluent_secrets}/", self.names.snowflake_secret
        begin = [{"Key": "name", "Values": [path, name]}]
        found = self.service(SERVICE).items("list_secrets", "SecretList", Filters=begin)
        return {each["Name"] for each in found if each["Name"].startswith(path) or each["Name"] == name}

    def _is_ours(self, name: str) -> bool:
        secret = self._described(name)
        if secret is None:
            return False
        tag = f"--secret-id {name} --tags Key={TAG},Value={self.names.deployment}"
        self.claim(
            f"secret '{name}'",
            secret.get("Tags", ()),
            f"aws secretsmanager tag-resource --region {self.names.region} {tag}",
        )
        return True

    def _described(self, name: str) -> dict[str, Any] | None:
        """What AWS knows of a secret; None when there is none, or it was deleted."""
        secret = self.service(SERVICE).find("describe_secret", SecretId=name)
        return None if secret is None or "DeletedDate" in secret else secret
