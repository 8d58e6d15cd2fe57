"""Clients of AWS, with the environment's credentials or an IAM role that they may assume, and their errors."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from functools import cache
from typing import TYPE_CHECKING, Any

from botocore.exceptions import BotoCoreError, ClientError, ConnectionClosedError, ReadTimeoutError

from lakehouse.core.errors import LakehouseError, RequestRejected, Unreachable, translate

if TYPE_CHECKING:
    import boto3
    from botocore.loaders import JSONFileLoader
    from botocore.session import Session


SESSION_NAME = "lakehouse"
"""Name of the sessions of assumed roles, as CloudTrail shows it."""
TIMEOUT_SECONDS = 10
SENT = (ReadTimeoutError, ConnectionClosedError)
"""Errors without a response for a request that AWS has received, and may have executed."""


def boto3_client(service: str, region: str, role_arn: str, **retries: object) -> Any:
    """Return boto3's client of a service, with time-outs.

    Args:
        service: Name of the service in boto3.
        region: The region.
        role_arn: The role to assume; if empty, the default credentials of AWS clients apply.
        retries: Settings of retries (botocore, Config).
    """
    from botocore.config import Config

    config = Config(connect_timeout=TIMEOUT_SECONDS, read_timeout=TIMEOUT_SECONDS, retries=retries)
    return boto3_session(role_arn, region).client(service, config=config)


def aws_errors(
    refused: Callable[[ClientError], LakehouseError | None],
    unreachable: Callable[[Exception], LakehouseError],
    lost: Callable[[Exception], LakehouseError] | None = None,
    *,
    sent: tuple[type[Exception], ...] = SENT,
    unusable: Mapping[type[Exception], Callable[[Exception], LakehouseError]] | None = None,
    show_cause: bool = True,
) -> AbstractContextManager[None]:
    """Translate errors of botocore by what they say about the call.

    Args:
        refused: Returns the error for a response with an error of the caller; None re-raises it.
        unreachable: Returns the error for a call that AWS did not get.
        lost: Returns the error for a call that may have been executed: AWS failed (status 500 and above), or did not
            respond. By default, these are translated like the others.
        sent: Errors of botocore for calls that may have been executed.
        unusable: Returns the error for a response of an unknown form, by type.
        show_cause: False where the error of botocore may quote a secret.
    """

    def responded(error: ClientError) -> LakehouseError | None:
        status = error.response.get("ResponseMetadata", {}).get("HTTPStatusCode", 400)
        return lost(error) if lost and status >= 500 else refused(error)

    unanswered = {**dict.fromkeys(sent, lost or unreachable), BotoCoreError: unreachable}
    errors = {ClientError: responded, **unanswered, **(unusable or {})}
    return translate(errors, show_cause=show_cause, awaited="AWS")


def botocore_session(role_arn: str | None, region: str | None) -> Session:
    """Return a session whose credentials are renewed before they expire.
    The role is assumed when a client of the session first connects.

    Args:
        role_arn: The role to assume; if empty, the default credentials of AWS clients apply.
        region: The region of the session and of STS.
    """
    from botocore.config import Config
    from botocore.credentials import AssumeRoleCredentialFetcher, DeferredRefreshableCredentials
    from botocore.exceptions import NoCredentialsError

    session = _session()
    if region:
        session.set_config_variable("region", region)
    if role_arn:
        source = _session()
        config = Config(connect_timeout=TIMEOUT_SECONDS, read_timeout=TIMEOUT_SECONDS, retries={"mode": "standard"})

        def create_client(service: str, **arguments: object) -> object:
            return source.create_client(service, region_name=region, config=config, **arguments)

        def assume() -> dict[str, object]:
            credentials = source.get_credentials()
            if credentials is None:
                raise NoCredentialsError
            name = {"RoleSessionName": SESSION_NAME}
            return AssumeRoleCredentialFetcher(create_client, credentials, role_arn, name).fetch_credentials()

        # botocore has no public way to set credentials that it renews.
        session._credentials = DeferredRefreshableCredentials(assume, "assume-role")
    return session


def boto3_session(role_arn: str | None, region: str | None) -> boto3.Session:
    """Return the same as a session of boto3."""
    import boto3

    return boto3.Session(botocore_session=botocore_session(role_arn, region), region_name=region)


def _session() -> Session:
    from botocore.session import get_session

    session = get_session()
    session.get_component("data_loader").file_loader = _service_models()
    return session


@cache
def _service_models() -> JSONFileLoader:
    """Return the reader of files that all sessions share: parsing a service's model takes up to 0.1 s of CPU time."""
    from botocore.loaders import JSONFileLoader

    files = JSONFileLoader()
    files.load_file, files.exists = cache(files.load_file), cache(files.exists)
    return files


PERMANENT = frozenset(
    {
        "AccessDenied",
        "AccessDeniedException",
        "EntityTooLarge",
        "GlueEncryptionException",
        "InvalidClientTokenId",
        "InvalidInputException",
        "InvalidSignatureException",
        "ResourceNumberLimitExceededException",
        "SignatureDoesNotMatch",
        "UnrecognizedClientException",
        "ValidationException",
    }
)
"""Error codes with which AWS rejects the same request each time (AWS Glue API, Exceptions; Common errors)."""

_CHECK = "AWS_ENDPOINT_URL, the AWS credentials and their permissions (`lakehouse status`)"


def is_permanent(error: ClientError) -> bool:
    """Return whether AWS rejects the same request each time."""
    return error.response["Error"]["Code"] in PERMANENT


def glue_error(error: ClientError | BotoCoreError, region: str | None) -> LakehouseError:
    """Translate an error of a Glue client."""
    where = f"region {region}" if region else "AWS"
    if isinstance(error, ClientError) and is_permanent(error):
        response = error.response["Error"]
        refusal = f"{error.operation_name}: {response['Code']}: {response.get('Message', '')}"
        return RequestRejected("AWS Glue", where, refusal, _CHECK)
    return Unreachable("AWS Glue", where, _CHECK, error)


def translate_permanent_errors(region: str | None) -> AbstractContextManager[None]:
    """Raise RequestRejected for permanent errors; let others pass, since the request may have been executed."""
    return translate({ClientError: lambda error: glue_error(error, region) if is_permanent(error) else None})
