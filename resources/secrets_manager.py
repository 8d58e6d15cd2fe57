"""JSON secrets in AWS Secrets Manager, and the staging labels that say which version is in use.

Labels (AWS Secrets Manager, "Secret versions"): AWSCURRENT is what readers get, AWSPENDING a version that is being
tried, AWSPREVIOUS what was current before. A label is on one version at a time; one call moves it.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime
from functools import cached_property
from typing import TYPE_CHECKING, Any

from lakehouse.core.errors import CommitConflict, LakehouseError, UnclearState, Unreachable

if TYPE_CHECKING:
    from mypy_boto3_secretsmanager import SecretsManagerClient

TAG = "lakehouse:deployment"
"""The tag of an AWS resource; its value is the name of the deployment that the resource belongs to."""
CURRENT, PENDING, PREVIOUS = "AWSCURRENT", "AWSPENDING", "AWSPREVIOUS"
TIMEOUT_SECONDS = 10

RECOVERY_DAYS = 7
"""How long a deleted secret can be restored: the least that AWS takes (Secrets Manager, DeleteSecret)."""


@dataclass(frozen=True)
class SecretJson:
    """A JSON object of texts that shows itself nowhere by accident: neither repr nor str have its values."""

    _values: Mapping[str, str] = field(repr=False)

    def reveal(self) -> dict[str, str]:
        """The values, for whoever is about to use them."""
        return dict(self._values)


@dataclass(frozen=True)
class Version:
    """One version of a secret, and the labels it had when it was read."""

    version_id: str
    stages: frozenset[str]
    value: SecretJson
    created_at: datetime | None = None
    """None of one that was written just now."""


@dataclass(frozen=True)
class Secrets:
    """The secrets of one AWS account and region. Endpoints and credentials come the way boto3 takes them."""

    region: str
    deployment: str = ""
    """Whose they are: what is made here gets its tag. Who only reads need not say it."""

    @cached_property
    def _client(self) -> SecretsManagerClient:
        """boto3's client, with time-outs set. It may repeat a call: each write carries a token that makes it one."""
        import boto3
        from botocore.config import Config

        for logger in ("botocore.endpoint", "botocore.parsers"):
            logging.getLogger(logger).addFilter(_without_secrets)
        config = Config(connect_timeout=TIMEOUT_SECONDS, read_timeout=TIMEOUT_SECONDS, retries={"mode": "standard"})
        return boto3.client("secretsmanager", region_name=self.region, config=config)

    def read(self, name: str, stage: str = CURRENT) -> Version | None:
        """The version that has the label, or None when there is none, or no such secret, or the secret was deleted and
        can still be restored.

        Raises: UnclearState when the secret is not a JSON object of texts; LakehouseError when AWS refuses;
        Unreachable.
        """
        return self._read(name, stage, VersionStage=stage)

    def versions(self, name: str) -> list[Version]:
        """All versions that AWS still has, also those without a label.

        Raises: as `read`; LakehouseError also when there is no such secret.
        """
        ids: list[str] = []
        asked = {"SecretId": name, "IncludeDeprecated": True}
        while asked:
            with self._explained(name):
                page = self._client.list_secret_version_ids(**asked)
            ids += [each["VersionId"] for each in page["Versions"]]
            asked = {**asked, "NextToken": page["NextToken"]} if page.get("NextToken") else {}
        read = (self._read(name, version_id, VersionId=version_id) for version_id in ids)
        return [version for version in read if version]

    def create(self, name: str, value: SecretJson, *, description: str) -> None:
        """Create the secret with this value as its current version, and the deployment's tag.

        A secret of that name stays as it is. One of this deployment that was deleted is restored first, because its
        name is taken until AWS forgets it.

        Raises:
            UnclearState: A deleted secret of that name is not of this deployment.
            LakehouseError: AWS refuses.
            Unreachable: AWS does not answer.
        """
        unavailable = (self._client.exceptions.ResourceExistsException, self._client.exceptions.InvalidRequestException)
        with self._explained(name):
            try:
                self._client.create_secret(
                    Name=name,
                    SecretString=json.dumps(value.reveal()),
                    Description=description,
                    Tags=[{"Key": TAG, "Value": self.deployment}],
                )
            except unavailable as error:
                if self._is_deleted(name):
                    self._restore(name, value)
                elif not isinstance(error, self._client.exceptions.ResourceExistsException):
                    raise

    def put_pending(self, name: str, value: SecretJson) -> Version:
        """Write a version that nobody reads yet, in place of an earlier pending one.

        Raises: as `create`.
        """
        with self._explained(name):
            answer = self._client.put_secret_value(
                SecretId=name, SecretString=json.dumps(value.reveal()), VersionStages=[PENDING]
            )
        return Version(answer["VersionId"], frozenset(answer["VersionStages"]), value)

    def promote(self, name: str, pending: Version, *, over: Version) -> None:
        """Make the pending version the current one, in one step; the one before becomes AWSPREVIOUS.

        Parameters: `over`, the version that is current as far as the caller knows.
        Raises: CommitConflict when another version is current by now; otherwise as `create`.
        """
        with self._explained(name):
            try:
                self._client.update_secret_version_stage(
                    SecretId=name,
                    VersionStage=CURRENT,
                    MoveToVersionId=pending.version_id,
                    RemoveFromVersionId=over.version_id,
                )
            except self._client.exceptions.InvalidParameterException:
                refused = True
            else:
                refused = False
        # AWS refuses also what it did already, when boto3 repeats a call whose answer was lost.
        now = self.read(name) if refused else None
        if refused and (now is None or now.version_id != pending.version_id):
            raise CommitConflict(
                f"Somebody else changed the secret '{name}' in region {self.region} at the same time. The version that "
                f"is current now was left untouched. Run it again"
            )

    def delete(self, name: str) -> None:
        """Delete it with all versions. For `RECOVERY_DAYS` it can be restored, by hand or by `create`.

        One that is not there, or was deleted before, is left as it is.

        Raises:
            LakehouseError: AWS refuses.
            Unreachable: AWS does not answer.
        """
        with self._explained(name):
            try:
                self._client.delete_secret(SecretId=name, RecoveryWindowInDays=RECOVERY_DAYS)
            except self._client.exceptions.ResourceNotFoundException:
                return
            except self._client.exceptions.InvalidRequestException:
                if not self._is_deleted(name):
                    raise

    def _is_deleted(self, name: str) -> bool:
        """Whether the secret was deleted and can still be restored."""
        return "DeletedDate" in self._client.describe_secret(SecretId=name)

    def _restore(self, name: str, value: SecretJson) -> None:
        """Restore a deleted secret of this deployment and make `value` its current version.

        AWS takes no value before the restoration. Interrupted between the two, the secret has its former value, which
        whoever keeps a key there compares with the keys that exist.
        """
        tags = {tag["Key"]: tag["Value"] for tag in self._client.describe_secret(SecretId=name).get("Tags", ())}
        if tags.get(TAG) != self.deployment:
            raise UnclearState(
                f"The name of the secret '{name}' in region {self.region} is taken by a deleted one that is not of "
                f"deployment '{self.deployment}' (tag {TAG}: {tags.get(TAG, 'none')}). It was left untouched. Choose "
                f"another deployment name, or wait until AWS has forgotten it, {RECOVERY_DAYS} to 30 days after its "
                f"deletion"
            )
        self._client.restore_secret(SecretId=name)
        self._client.put_secret_value(SecretId=name, SecretString=json.dumps(value.reveal()))

    def _read(self, name: str, version: str, **which: str) -> Version | None:
        with self._explained(name):
            try:
                answer = self._client.get_secret_value(SecretId=name, **which)
            except self._client.exceptions.ResourceNotFoundException:
                return None
            except self._client.exceptions.InvalidRequestException:
                if not self._is_deleted(name):
                    raise
                return None
        value = _parsed(answer.get("SecretString", ""))
        if value is None:
            raise UnclearState(
                f"The secret '{name}' ({version}) in region {self.region} is not a JSON object of texts. It was left "
                f"untouched. Look at it in the AWS console, and put another version or choose another name"
            )
        return Version(answer["VersionId"], frozenset(answer.get("VersionStages", ())), value, answer["CreatedDate"])

    @contextmanager
    def _explained(self, name: str) -> Iterator[None]:
        from botocore.exceptions import BotoCoreError, ClientError

        try:
            yield
        except ClientError as error:
            said = error.response["Error"]
            raise LakehouseError(
                f"AWS Secrets Manager refused {error.operation_name} of '{name}' in region {self.region}: "
                f"{said['Code']}: {said.get('Message', '')} The call changed nothing. Check the AWS credentials and "
                f"their permissions"
            ) from error
        except BotoCoreError as error:
            check = "AWS_ENDPOINT_URL, the AWS credentials and the network"
            raise Unreachable("AWS Secrets Manager", f"region {self.region}", check, type(error).__name__) from None


def _without_secrets(record: logging.LogRecord) -> bool:
    """A filter: at level DEBUG botocore logs whole requests and answers."""
    return "SecretString" not in record.getMessage()


def _parsed(text: str) -> SecretJson | None:
    try:
        values: Any = json.loads(text)
    except ValueError:
        return None
    texts = isinstance(values, dict) and all(isinstance(value, str) for value in values.values())
    return SecretJson(values) if texts else None
