"""The secrets of a deployment in AWS Secrets Manager, as far as their deletion.

Resources in other clouds create the secrets, and need them until they are deleted themselves. This resource comes first
in the list, so it is deleted last.
"""

from dataclasses import dataclass
from functools import partial

from lakehouse.deploy.aws.aws_resource import AwsResource
from lakehouse.deploy.aws.aws_service import AwsError, Response
from lakehouse.deploy.resource import Outputs
from resources.aws.secrets_manager import RECOVERY_DAYS, TAG

SERVICE = "secretsmanager"


@dataclass(frozen=True, repr=False)
class DeploymentSecrets(AwsResource[tuple[str, ...]]):
    """The resource `aws/secrets`. Its state is the names of the secrets."""

    address = "aws/secrets"

    @property
    def label(self) -> str:
        """The paths of the secrets."""
        return f"secrets under '{self.names.confluent_secrets}/' and '{self.names.snowflake_secret}'"

    def read(self, outputs: Outputs) -> tuple[str, ...] | None:
        """List the names of the secrets, without deleted ones that can still be restored."""
        return self._names() or None

    def create(self, outputs: Outputs) -> tuple[str, ...]:
        """Do nothing: the resource that has a secret's value creates it."""
        return ()

    def delete(self, outputs: Outputs, current: tuple[str, ...]) -> None:
        """Delete the secrets. For `RECOVERY_DAYS`, each can be restored, as `lakehouse deploy create` does."""
        for name in current:
            if self._described(name):
                try:
                    self.service(SERVICE).find("delete_secret", SecretId=name, RecoveryWindowInDays=RECOVERY_DAYS)
                except AwsError:
                    # The client repeats a call whose response was lost, and AWS refuses to delete a deleted secret.
                    if self._described(name):
                        raise
        for name in current:
            self.wait_until_gone(f"secret '{name}'", partial(self._described, name))

    def _names(self) -> tuple[str, ...]:
        # The known secrets are looked up by name, because the list, which has all others, lags behind by minutes
        # (Secrets Manager, ListSecrets).
        known = {*self.names.secrets}
        return tuple(name for name in sorted(known | self._listed()) if self._is_owned(name))

    def _listed(self) -> set[str]:
        path, name = f"{self.names.confluent_secrets}/", self.names.snowflake_secret
        begin = [{"Key": "name", "Values": [path, name]}]
        secrets = self.service(SERVICE).items("list_secrets", "SecretList", Filters=begin)
        return {secret["Name"] for secret in secrets if secret["Name"].startswith(path) or secret["Name"] == name}

    def _is_owned(self, name: str) -> bool:
        secret = self._described(name)
        if secret is None:
            return False
        tag = f"--secret-id {name} --tags Key={TAG},Value={self.names.deployment}"
        self.require_ownership(
            f"secret '{name}'",
            secret.get("Tags", ()),
            f"aws secretsmanager tag-resource --region {self.names.region} {tag}",
        )
        return True

    def _described(self, name: str) -> Response | None:
        """Return the description of a secret in AWS; None if it does not exist or was deleted."""
        secret = self.service(SERVICE).find("describe_secret", SecretId=name)
        return None if secret is None or "DeletedDate" in secret else secret
