"""One AWS service: calls with retries while it is busy, and errors with remedies."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import boto3
from botocore.config import Config
from botocore.exceptions import ClientError, ConnectionError, HTTPClientError, WaiterError
from botocore.parsers import ResponseParserError

from lakehouse.core.errors import LakehouseError, OutcomeUnknownError, Unreachable
from lakehouse.deploy.aws.iam_actions import actions
from resources.aws.clients import aws_errors

CONNECT_SECONDS, READ_SECONDS = 10, 60

DENIED = frozenset({"AccessDenied", "AccessDeniedException", "403"})
NOT_KNOWN = frozenset(
    {
        "ExpiredToken",
        "ExpiredTokenException",
        "InvalidAccessKeyId",
        "InvalidClientTokenId",
        "SignatureDoesNotMatch",
        "UnrecognizedClientException",
    }
)
"""Error codes for credentials that are wrong or expired."""

ABSENT = frozenset(
    {
        "NoSuchBucket",
        "NoSuchTagSet",
        "NoSuchBucketPolicy",
        "NoSuchLifecycleConfiguration",
        "NoSuchPublicAccessBlockConfiguration",
        "OwnershipControlsNotFoundError",
        "ServerSideEncryptionConfigurationNotFoundError",
        "NoSuchEntity",
        "EntityNotFoundException",
        "ResourceNotFoundException",
    }
)
READING = ("get_", "list_", "head_", "describe_", "simulate_")

Response = dict[str, Any]
"""The response of boto3 to a call, or a part of it."""


class AwsError(LakehouseError):
    """AWS refused a call, with its error code."""

    def __init__(self, message: str, code: str):
        super().__init__(message)
        self.code = code


class Absent(AwsError):
    """The object of the call does not exist."""


@dataclass(frozen=True)
class Aws:
    """The services of AWS in one region, with one session."""

    session: boto3.Session
    region: str
    _services: dict[str, Service] = field(default_factory=dict, init=False, repr=False, compare=False)

    def service(self, name: str) -> Service:
        """Return a service by its name in boto3. Each client is created once, which takes a while."""
        return self._services.setdefault(name, Service(self.session, name, self.region))


@dataclass(frozen=True)
class Service:
    """A service by its name in boto3, in one region. boto3 finds endpoints and credentials."""

    session: boto3.Session
    name: str
    region: str
    read_seconds: int = READ_SECONDS

    @cached_property
    def _client(self) -> Any:
        config = Config(connect_timeout=CONNECT_SECONDS, read_timeout=self.read_seconds, retries={"mode": "standard"})
        return self.session.client(self.name, region_name=self.region, config=config)

    def call(self, method: str, **parameters: Any) -> Response:
        """Call a method of the client.

        AWS may refuse a creation because of the resource that it created itself: botocore repeats calls whose responses
        were lost.

        Raises:
            Absent: The resource does not exist.
            AwsError: AWS refuses the call.
            OutcomeUnknownError: The response to a creation was lost.
        """
        with self._translated_errors(method):
            response: Response = getattr(self._client, method)(**parameters)
            return response

    def find(self, method: str, **parameters: Any) -> Response | None:
        """Call a method of the client, and return None if the resource does not exist."""
        try:
            return self.call(method, **parameters)
        except Absent:
            return None

    def items(self, method: str, key: str, **parameters: Any) -> Iterator[Any]:
        """Yield the items under `key` of all pages of a list."""
        pages = iter(self._client.get_paginator(method).paginate(**parameters))
        while True:
            with self._translated_errors(method):
                page = next(pages, None)
            if page is None:
                return
            yield from page.get(key, ())

    def wait(self, waiter: str, **parameters: Any) -> None:
        """Wait until a new resource is visible, by one of botocore's waiters."""
        try:
            self._client.get_waiter(waiter).wait(**parameters, WaiterConfig={"Delay": 2, "MaxAttempts": 20})
        except WaiterError as error:
            resource = ", ".join(str(value) for value in parameters.values())
            raise LakehouseError(
                f"AWS {self.name} created {resource}, but does not list it ({error}). It was left unchanged. Run the "
                f"command again"
            ) from error

    def _translated_errors(self, method: str) -> AbstractContextManager[None]:
        def without_response(error: Exception) -> LakehouseError:
            cause = error if isinstance(error, ClientError) else type(error).__name__
            return self._without_response(method, cause)

        def without_request(error: Exception) -> LakehouseError:
            return LakehouseError(
                f"AWS {self.name} cannot be called ({error}). The call changed nothing. Check AWS_PROFILE and the AWS "
                f"credentials: `aws sts get-caller-identity`"
            )

        sent = ConnectionError, HTTPClientError, ResponseParserError
        return aws_errors(self._refused, without_request, without_response, sent=sent)

    def _without_response(self, method: str, cause: object) -> LakehouseError:
        where = f"region {self.region}"
        if method.startswith(READING):
            return Unreachable(f"AWS {self.name}", where, "AWS_ENDPOINT_URL, the network and AWS's health", cause)
        # Only a creation must not be repeated unseen.
        kind = OutcomeUnknownError if method.startswith("create_") else LakehouseError
        return kind(
            f"AWS {self.name} did not answer {method} in {where} ({cause}). It may have been executed or not. Run "
            f"the command again: it reads the current state first"
        )

    def _refused(self, error: Any) -> AwsError:
        # Servers that imitate another service of AWS respond in its format.
        details, operation = error.response.get("Error", {}), error.operation_name
        code, refused = (
            details.get("Code", "no error code"),
            f"AWS {self.name} refused {operation} in region {self.region}",
        )
        message = f"{code}: {details.get('Message', '')}".strip()
        if code in ABSENT:
            return Absent(
                f"{refused}: it does not exist ({message}). The call changed nothing. Run the command again", code
            )
        if code in NOT_KNOWN:
            return AwsError(
                f"{refused}: the AWS credentials are invalid or expired ({message}). The call changed nothing. Sign in "
                f"again (`aws sso login`), or correct AWS_PROFILE or AWS_ACCESS_KEY_ID",
                code,
            )
        if code in DENIED:
            missing = " and ".join(actions(self.name, operation))
            return AwsError(
                f"{refused} ({message}). The call changed nothing. Grant {missing} to the AWS user or role in use "
                f"(`aws sts get-caller-identity`), unless a policy of the organization or of the resource denies it",
                code,
            )
        return AwsError(
            f"{refused} ({message}). The call changed nothing. Remove the cause and run the command again", code
        )
