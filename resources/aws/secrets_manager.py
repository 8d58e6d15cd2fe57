"""JSON secrets in AWS Secrets Manager, and the staging labels of their versions.

Labels (AWS Secrets Manager, "Secret versions"): readers get AWSCURRENT; AWSPENDING is a version under test, and
AWSPREVIOUS the one that was current before. A label is on one version at a time; one call moves it.
"""

from __future__ import annotations

import json
import logging
import os
import time
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from functools import cached_property
from typing import TYPE_CHECKING, Any

from botocore.exceptions import BotoCoreError, ClientError, ConnectionClosedError, ReadTimeoutError
from botocore.parsers import ResponseParserError

from lakehouse.core.errors import (
    CommitConflict,
    ConfigError,
    LakehouseError,
    OutcomeUnknownError,
    UnclearState,
    Unreachable,
    translate,
)

if TYPE_CHECKING:
    from mypy_boto3_secretsmanager import SecretsManagerClient


TAG = "lakehouse:deployment"
"""Tag of an AWS resource; its value is the name of the resource's deployment."""
CURRENT, PENDING, PREVIOUS = "AWSCURRENT", "AWSPENDING", "AWSPREVIOUS"
CANDIDATE = "lakehouse-candidate"
"""Label of a version that is to become the pending one; AWS gives AWSCURRENT to a version that is written without."""
TIMEOUT_SECONDS = 10

FRESH = timedelta(minutes=10)
"""The age at which a pending version is written again before it becomes current: more than all retries of a call."""

RECOVERY_DAYS = 7
"""Time during which a deleted secret can be restored: the minimum of AWS (Secrets Manager, DeleteSecret)."""


@dataclass(frozen=True)
class SecretJson:
    """A JSON object of texts whose values are in neither its repr nor its str."""

    _values: Mapping[str, str] = field(repr=False)

    def reveal(self) -> dict[str, str]:
        """Return the values."""
        return dict(self._values)


@dataclass(frozen=True)
class Version:
    """One version of a secret, with the labels it had when it was read."""

    version_id: str
    stages: frozenset[str]
    value: SecretJson
    created_at: datetime | None = None
    """None if it was just written."""


@dataclass(frozen=True)
class Secrets:
    """The secrets of one AWS account and region. boto3 determines endpoints and credentials."""

    region: str
    deployment: str = ""
    """Name of the deployment, with which created secrets are tagged; not needed to read."""
    role_arn: str = ""
    """IAM role to assume; if empty, the credentials of the environment apply."""

    @cached_property
    def _client(self) -> SecretsManagerClient:
        """Boto3's client, with time-outs and retries: a token in each write makes its repetition safe."""
        from botocore.config import Config

        from resources.aws.clients import boto3_session

        for logger in ("botocore.endpoint", "botocore.parsers"):
            logging.getLogger(logger).addFilter(_without_secrets)
        config = Config(connect_timeout=TIMEOUT_SECONDS, read_timeout=TIMEOUT_SECONDS, retries={"mode": "standard"})
        client = boto3_session(self.role_arn, self.region).client("secretsmanager", config=config)
        client.meta.events.register("after-call.secrets-manager", verify)
        return client

    def read(self, name: str, stage: str = CURRENT) -> Version | None:
        """Return the version with a label, or None.

        Returns:
            The version; None if the label or the secret does not exist, or the secret was deleted.

        Raises:
            UnclearState: The secret is not a JSON object of texts.
            LakehouseError: AWS refuses the request.
            Unreachable: AWS does not respond.
        """
        return self._read(name, stage, VersionStage=stage)

    def versions(self, name: str) -> list[Version]:
        """Return all versions that AWS still has, including those without a label.

        Raises:
            UnclearState: The secret is not a JSON object of texts.
            LakehouseError: The secret does not exist, or AWS refuses the request.
            Unreachable: AWS does not respond.
        """
        ids: list[str] = []
        request = {"SecretId": name, "IncludeDeprecated": True}
        while request:
            with self._translate_errors(name):
                page = self._client.list_secret_version_ids(**request)
                ids += [version["VersionId"] for version in page["Versions"]]
            request = {**request, "NextToken": page["NextToken"]} if page.get("NextToken") else {}
        versions = (self._read(name, version_id, VersionId=version_id) for version_id in ids)
        return [version for version in versions if version]

    def create(self, name: str, value: SecretJson, *, description: str) -> None:
        """Create the secret with this value as its current version, and the deployment's tag.

        An existing secret is left unchanged. A deleted one of this deployment is restored first, because AWS reserves
        its name until it can no longer be restored. Of two commands that do so at the same time, the first one counts.

        Raises:
            UnclearState: A deleted secret of that name belongs to another deployment.
            LakehouseError: AWS refuses the request.
            OutcomeUnknownError: The response was lost.
            Unreachable: AWS does not respond.
        """
        unavailable = (self._client.exceptions.ResourceExistsException, self._client.exceptions.InvalidRequestException)
        with self._translate_errors(name, changes=True):
            try:
                self._client.create_secret(
                    Name=name,
                    SecretString=json.dumps(value.reveal()),
                    Description=description,
                    Tags=[{"Key": TAG, "Value": self.deployment}],
                )
            except unavailable:
                self._restore(name, value)

    def put_pending(self, name: str, value: SecretJson) -> Version:
        """Write a version with the label AWSPENDING, which is moved from an earlier one.

        Raises:
            LakehouseError: AWS refuses the request.
            OutcomeUnknownError: The response was lost.
            Unreachable: AWS does not respond.
        """
        with self._translate_errors(name, changes=True):
            response = self._client.put_secret_value(
                SecretId=name, SecretString=json.dumps(value.reveal()), VersionStages=[PENDING]
            )
        return Version(response["VersionId"], frozenset(response["VersionStages"]), value)

    def claim_pending(self, name: str, value: SecretJson, *, over: Version | None) -> Version:
        """Write a version and move AWSPENDING to it, unless another writer has moved the label.

        Args:
            name: Name of the secret.
            value: Its content.
            over: The version that had the label when the caller read it; None if none had it.

        Raises:
            CommitConflict: Another version has got the label.
            LakehouseError: As `put_pending`.
        """
        with self._translate_errors(name, changes=True):
            response = self._client.put_secret_value(
                SecretId=name, SecretString=json.dumps(value.reveal()), VersionStages=[CANDIDATE]
            )
        claimed = Version(response["VersionId"], frozenset({CANDIDATE, PENDING}), value)
        self._move(PENDING, name, claimed, over.version_id if over else None)
        return claimed

    def changed_at(self, name: str) -> datetime:
        """Return when the secret was changed in any way, such as by moving a label.

        Raises:
            LakehouseError: As `put_pending`.
        """
        with self._translate_errors(name):
            return self._client.describe_secret(SecretId=name)["LastChangedDate"]

    def replace(self, name: str, value: Callable[[], SecretJson], *, over: Version) -> None:
        """Write a version and make it the current one.

        Grace periods of the replaced version count from this version's creation, so a version that was written before
        the process was suspended is written again.

        Args:
            name: Name of the secret.
            value: Returns the new content as of now.
            over: The version that the caller knows as current.

        Raises:
            LakehouseError: As `put_pending` and `promote`.
        """
        is_fresh = False
        while not is_fresh:
            began = datetime.now(UTC)
            pending = self.put_pending(name, value())
            is_fresh = datetime.now(UTC) - began < FRESH
        self.promote(name, pending, over=over)

    def promote(self, name: str, pending: Version, *, over: Version) -> None:
        """Make the pending version the current one atomically; the previous one becomes AWSPREVIOUS.

        Args:
            name: Name of the secret.
            pending: The new current version.
            over: The version that was current when the caller read it.

        Raises:
            CommitConflict: Another version has become current.
            LakehouseError: AWS refuses the request.
            Unreachable: AWS does not respond.
        """
        self._move(CURRENT, name, pending, over.version_id)

    def _move(self, label: str, name: str, to: Version, over: str | None) -> None:
        """Move a label from a version, named by its id, to another one, unless it is on neither."""
        off = {"RemoveFromVersionId": over} if over else {}
        with self._translate_errors(name, changes=True):
            try:
                self._client.update_secret_version_stage(
                    SecretId=name, VersionStage=label, MoveToVersionId=to.version_id, **off
                )
            except self._client.exceptions.InvalidParameterException:
                refused = True
            else:
                refused = False
        # AWS also rejects a change that it has made already, when boto3 repeats a call whose response was lost.
        labelled = self.read(name, label) if refused else None
        if refused and (labelled is None or labelled.version_id != to.version_id):
            raise CommitConflict(
                f"Another writer changed the secret '{name}' in region {self.region} at the same time. The version "
                f"that has the label {label} now was left unchanged. Run the `lakehouse deploy` command again"
            )

    def delete(self, name: str) -> None:
        """Delete a secret with all versions. For `RECOVERY_DAYS` it can be restored, manually or by `create`.

        A missing or already deleted secret is left as it is.

        Raises:
            LakehouseError: AWS refuses the request.
            OutcomeUnknownError: The response was lost.
            Unreachable: AWS does not respond.
        """
        with self._translate_errors(name, changes=True):
            try:
                self._client.delete_secret(SecretId=name, RecoveryWindowInDays=RECOVERY_DAYS)
            except self._client.exceptions.ResourceNotFoundException:
                return
            except self._client.exceptions.InvalidRequestException:
                if not self._is_deleted(name):
                    raise

    def remedy(self, name: str, unusable: Version) -> str:
        """Return a sentence with the commands that replace an unusable version of a secret, for errors.

        Raises:
            LakehouseError: As `read`.
        """
        place = f"--region {self.region} --secret-id {name}"
        delete = (
            f"delete the secret: aws secretsmanager delete-secret {place} --recovery-window-in-days {RECOVERY_DAYS}"
        )
        previous = self.read(name, PREVIOUS) if CURRENT in unusable.stages else None
        if previous is None:
            return f"If no program needs it, {delete}"
        return (
            f"Make the previous version current again: aws secretsmanager update-secret-version-stage {place} "
            f"--version-stage {CURRENT} --move-to-version-id {previous.version_id} --remove-from-version-id "
            f"{unusable.version_id}; or, if it is not needed, {delete}"
        )

    def _is_deleted(self, name: str) -> bool:
        """Return whether the secret was deleted and can still be restored."""
        return "DeletedDate" in self._client.describe_secret(SecretId=name)

    def _restore(self, name: str, value: SecretJson) -> None:
        """Restore a secret of this deployment, if it is deleted, and make `value` its current version.

        Nothing is changed if another command has done so in the meantime.

        AWS accepts no value before the restoration. After a crash between the two, the secret has its former value,
        which the owner of a key compares with the keys that exist.
        """
        secret = self._client.describe_secret(SecretId=name)
        if "DeletedDate" not in secret:
            return
        tags = {tag["Key"]: tag["Value"] for tag in secret.get("Tags", ())}
        if tags.get(TAG) != self.deployment:
            raise UnclearState(
                f"The name of the secret '{name}' in region {self.region} is reserved by a deleted one that does not "
                f"belong to deployment '{self.deployment}' (tag {TAG}: {tags.get(TAG, 'none')}). It was left "
                "unchanged. Choose "
                f"another deployment name, or wait until AWS has purged it, {RECOVERY_DAYS} to 30 days after its "
                f"deletion"
            )
        labels = secret.get("VersionIdsToStages", {})
        former = next((version for version, stages in labels.items() if CURRENT in stages), None)
        self._client.restore_secret(SecretId=name)
        with suppress(CommitConflict):
            self._move(CURRENT, name, self.put_pending(name, value), former)

    def _read(self, name: str, version: str, **selector: str) -> Version | None:
        with self._translate_errors(name):
            try:
                response = self._client.get_secret_value(SecretId=name, **selector)
            except self._client.exceptions.ResourceNotFoundException:
                return None
            except self._client.exceptions.InvalidRequestException:
                if not self._is_deleted(name):
                    raise
                return None
        value = _parse(response.get("SecretString", ""))
        if value is None:
            raise UnclearState(
                f"The secret '{name}' ({version}) in region {self.region} is not a JSON object of texts. It was left "
                f"unchanged. Inspect it in the AWS console, and store another version or choose another name"
            )
        return Version(
            response["VersionId"], frozenset(response.get("VersionStages", ())), value, response["CreatedDate"]
        )

    def _translate_errors(self, name: str, *, changes: bool = False) -> AbstractContextManager[None]:
        """Translate errors of calls.

        Args:
            name: Name of the secret.
            changes: Whether the calls change the secret, so that a lost response leaves it in an unknown state.
        """

        def refused(error: ClientError) -> LakehouseError:
            details = error.response["Error"]
            if error.response.get("ResponseMetadata", {}).get("HTTPStatusCode", 400) >= 500:
                return lost(details["Code"])
            return LakehouseError(
                f"AWS Secrets Manager refused {error.operation_name} of '{name}' in region {self.region}: "
                f"{details['Code']}: {details.get('Message', '')} The call changed nothing. Check the AWS credentials "
                f"and their permissions"
            )

        def unusable(error: Exception) -> LakehouseError:
            problem = problem_of(error)
            if changes:
                return lost(f"its response is unusable: {problem}")
            return LakehouseError(
                f"AWS Secrets Manager in region {self.region} returned an unusable response about '{name}' "
                f"({problem}). The call changed nothing. Check AWS_ENDPOINT_URL, and whether a proxy responds "
                f"instead of AWS"
            )

        def unreachable(cause: object) -> LakehouseError:
            check = "AWS_ENDPOINT_URL, the AWS credentials and the network"
            return Unreachable("AWS Secrets Manager", f"region {self.region}", check, cause)

        def lost(cause: object) -> LakehouseError:
            if not changes:
                return unreachable(cause)
            return OutcomeUnknownError(
                f"AWS Secrets Manager in region {self.region} did not answer ({cause}), so the secret '{name}' may "
                f"have been changed or not. Run the `lakehouse deploy` command again: it reads the current state first"
            )

        # An error quotes a response that cannot be parsed, which may contain a secret.
        return translate(
            {
                ClientError: refused,
                ReadTimeoutError: lambda error: lost(type(error).__name__),
                ConnectionClosedError: lambda error: lost(type(error).__name__),
                BotoCoreError: lambda error: unreachable(type(error).__name__),
                **dict.fromkeys(UNUSABLE, unusable),
            },
            show_cause=False,
        )


def _without_secrets(record: logging.LogRecord) -> bool:
    """Return whether a log record contains no secret: at level DEBUG botocore logs whole requests and responses."""
    return "SecretString" not in record.getMessage()


def _parse(text: str) -> SecretJson | None:
    try:
        values: Any = json.loads(text)
    except (ValueError, RecursionError):
        return None
    is_valid = isinstance(values, dict) and all(isinstance(value, str) for value in values.values())
    return SecretJson(values) if is_valid else None


FIELDS: Mapping[str, Mapping[str, type]] = {
    "DescribeSecret": {"LastChangedDate": datetime},
    "GetSecretValue": {"VersionId": str, "CreatedDate": datetime},
    "ListSecretVersionIds": {"Versions": list},
    "PutSecretValue": {"VersionId": str, "VersionStages": list},
}
"""The fields that a response must have besides its `Name`, by operation (AWS Secrets Manager API, Actions)."""


class UnusableResponse(Exception):
    """A successful response lacks a field. The message has names of fields, and no values."""


UNUSABLE = (UnusableResponse, ResponseParserError, AttributeError, LookupError, TypeError, ValueError)
"""Errors for a response of an unknown form. botocore raises those of Python for JSON of another structure."""


def verify(http_response: Any, parsed: Mapping[str, Any], model: Any, **others: Any) -> None:
    """Verify a parsed response, as a handler of botocore's event `after-call`.

    Raises:
        UnusableResponse: It lacks a field, or a field has another type.
    """
    if http_response.status_code >= 300:
        return
    required = {"Name": str, **FIELDS.get(model.name, {})}
    if missing := [name for name, kind in required.items() if not isinstance(parsed.get(name), kind)]:
        raise UnusableResponse(f"no valid {' and '.join(missing)}")


def problem_of(error: Exception) -> str:
    """Return the problem of an unusable response as a phrase that quotes none of it: it may have a secret."""
    return str(error) if isinstance(error, UnusableResponse) else type(error).__name__


MAX_AGE_SECONDS = 300
"""Secrets are read again after this time, so that long-lived processes use a rotated key. The old one remains valid for
days."""

cache: dict[tuple[str, str, str], tuple[float, Mapping[str, str]]] = {}
"""Time and fields of the last reading, by region, name and role."""


def read_secret_fields(name: str, *fields: str, role_arn: str = "") -> Mapping[str, str]:
    """Return the fields of a secret in the region AWS_REGION.

    Args:
        name: Name of the secret.
        fields: Fields that are required.
        role_arn: IAM role to assume; if empty, the credentials of the environment apply.

    Raises:
        ConfigError: AWS_REGION is not set, the secret does not exist, or one of the fields is missing or empty.
        LakehouseError: AWS refuses the request.
        Unreachable: AWS does not respond.
    """
    region = os.environ.get("AWS_REGION") or os.environ.get("AWS_DEFAULT_REGION")
    if not region:
        raise ConfigError(
            f"The secret '{name}' cannot be read without a region. No login was attempted. Set AWS_REGION to the "
            f"region of the secret"
        )
    read_at, values = cache.get((region, name, role_arn), (0.0, {}))
    if not values or time.monotonic() - read_at > MAX_AGE_SECONDS:
        version = Secrets(region, role_arn=role_arn).read(name)
        if version is None:
            raise ConfigError(
                f"There is no secret '{name}' in region {region}. No login was attempted. Correct `secret` in "
                f"lakehouse.yaml, or AWS_REGION; if it was deleted, restore it: aws secretsmanager restore-secret "
                f"--region {region} --secret-id {name}"
            )
        values = version.value.reveal()
        cache[region, name, role_arn] = (time.monotonic(), values)
    if missing := [field for field in fields if not values.get(field)]:
        raise ConfigError(
            f"The secret '{name}' in region {region} has no {', '.join(missing)}. No login was attempted. Use the "
            f"secret that `lakehouse deploy create` created for this system"
        )
    return values
