"""JSON secrets in AWS Secrets Manager, as running processes read them.

Labels (AWS Secrets Manager, "Secret versions"): readers get AWSCURRENT; AWSPENDING is a version under test, and
AWSPREVIOUS the one that was current before. A label is on one version at a time; one call moves it.

botocore parses all calls and ignores what a response lacks: without a verification, the page of a proxy counts as a
change that was made.
"""

from __future__ import annotations

import json
import logging
import os
import time
from collections.abc import Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from datetime import datetime
from functools import cached_property
from typing import TYPE_CHECKING, Any

from botocore.exceptions import ClientError
from botocore.parsers import ResponseParserError

from lakehouse.core.errors import ConfigError, LakehouseError, OutcomeUnknownError, UnclearState, Unreachable
from resources.aws.clients import aws_errors, boto3_client

if TYPE_CHECKING:
    from mypy_boto3_secretsmanager import SecretsManagerClient

CURRENT, PENDING, PREVIOUS = "AWSCURRENT", "AWSPENDING", "AWSPREVIOUS"
MAX_AGE_SECONDS = 300
"""Secrets are read again after this time, so that long-lived processes use a rotated key. The old one remains valid for
days."""

cache: dict[tuple[str, str, str], tuple[float, Mapping[str, str]]] = {}
"""Time and fields of the last reading, by region, name and role."""

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


def read_secret_fields(name: str, *fields: str, role_arn: str = "") -> Mapping[str, str]:
    """Return the fields of a secret in the region AWS_REGION.

    Args:
        name: Name of the secret.
        fields: Fields that are required.
        role_arn: IAM role to assume; if empty, the credentials of the environment apply.
    """
    region = os.environ.get("AWS_REGION") or os.environ.get("AWS_DEFAULT_REGION")
    if not region:
        raise ConfigError(
            f"The secret '{name}' cannot be read without a region. No login was attempted. Set AWS_REGION to the "
            f"region of the secret"
        )
    read_at, values = cache.get((region, name, role_arn), (0.0, {}))
    if not values or time.monotonic() - read_at > MAX_AGE_SECONDS:
        version = SecretReader(region, role_arn=role_arn).read(name)
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
class SecretReader:
    """The secrets of one AWS account and region. boto3 determines endpoints and credentials."""

    region: str
    role_arn: str = field(default="", kw_only=True)
    """IAM role to assume; if empty, the credentials of the environment apply."""

    @cached_property
    def _client(self) -> SecretsManagerClient:
        """Boto3's client, with time-outs and retries: a token in each write makes its repetition safe."""
        for logger in ("botocore.endpoint", "botocore.parsers"):
            logging.getLogger(logger).addFilter(_without_secrets)
        client = boto3_client("secretsmanager", self.region, self.role_arn, mode="standard")
        client.meta.events.register("after-call.secrets-manager", _verify)
        return client

    def read(self, name: str, stage: str = CURRENT) -> Version | None:
        """Return the version with a label; None if the label or the secret does not exist, or the secret was deleted.

        Raises:
            UnclearState: The secret is not a JSON object of texts.
        """
        return self._read(name, stage, VersionStage=stage)

    def _read(self, name: str, version: str, **selector: str) -> Version | None:
        with self._errors(name):
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

    def _is_deleted(self, name: str) -> bool:
        """Return whether the secret was deleted and can still be restored."""
        return "DeletedDate" in self._client.describe_secret(SecretId=name)

    def _errors(self, name: str, *, changes: bool = False) -> AbstractContextManager[None]:
        """Translate the errors of calls about a secret.

        Args:
            name: Name of the secret.
            changes: Whether the calls change the secret, so that a lost response leaves it in an unknown state.
        """
        errors = _Errors(self.region, name, changes)
        return aws_errors(
            errors.refused,
            errors.unreachable,
            errors.lost,
            unusable=dict.fromkeys(UNUSABLE, errors.unusable),
            # An error quotes a response that cannot be parsed, which may contain a secret.
            show_cause=False,
        )


@dataclass(frozen=True)
class _Errors:
    """The errors of calls about one secret."""

    region: str
    name: str
    changes: bool

    def refused(self, error: ClientError) -> LakehouseError:
        details = error.response["Error"]
        return LakehouseError(
            f"AWS Secrets Manager refused {error.operation_name} of '{self.name}' in region {self.region}: "
            f"{details['Code']}: {details.get('Message', '')} The call changed nothing. Check the AWS credentials "
            f"and their permissions"
        )

    def unusable(self, error: Exception) -> LakehouseError:
        # The problem quotes none of the response: it may have a secret.
        problem = str(error) if isinstance(error, UnusableResponse) else type(error).__name__
        if self.changes:
            return self._outcome_unknown(f"its response is unusable: {problem}")
        return LakehouseError(
            f"AWS Secrets Manager in region {self.region} returned an unusable response about '{self.name}' "
            f"({problem}). The call changed nothing. Check AWS_ENDPOINT_URL, and whether a proxy responds "
            f"instead of AWS"
        )

    def unreachable(self, error: Exception) -> LakehouseError:
        check = "AWS_ENDPOINT_URL, the AWS credentials and the network"
        return Unreachable("AWS Secrets Manager", f"region {self.region}", check, _cause(error))

    def lost(self, error: Exception) -> LakehouseError:
        return self._outcome_unknown(_cause(error)) if self.changes else self.unreachable(error)

    def _outcome_unknown(self, cause: str) -> LakehouseError:
        return OutcomeUnknownError(
            f"AWS Secrets Manager in region {self.region} did not answer ({cause}), so the secret '{self.name}' may "
            f"have been changed or not. Run the `lakehouse deploy` command again: it reads the current state first"
        )


def _cause(error: Exception) -> str:
    return error.response["Error"]["Code"] if isinstance(error, ClientError) else type(error).__name__


def _verify(http_response: Any, parsed: Mapping[str, Any], model: Any, **others: Any) -> None:
    """Verify a parsed response, as a handler of botocore's event `after-call`."""
    if http_response.status_code >= 300:
        return
    required = {"Name": str, **FIELDS.get(model.name, {})}
    if missing := [name for name, kind in required.items() if not isinstance(parsed.get(name), kind)]:
        raise UnusableResponse(f"no valid {' and '.join(missing)}")


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
