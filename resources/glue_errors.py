"""Errors of AWS Glue: what to wait for, and what stays wrong until somebody changes it."""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import TYPE_CHECKING

from lakehouse.core.errors import LakehouseError, Refused, Unreachable, translate

if TYPE_CHECKING:
    from botocore.exceptions import BotoCoreError, ClientError

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
"""Error codes that the same request gets each time (AWS Glue API, Exceptions; Common errors)."""

CHECK = "AWS_ENDPOINT_URL, the AWS credentials and their permissions (`lakehouse status`)"


def is_permanent(error: ClientError) -> bool:
    """Whether the same request is refused each time."""
    return error.response["Error"]["Code"] in PERMANENT


def error_of(error: ClientError | BotoCoreError, region: str | None) -> LakehouseError:
    """Return what an error of a Glue client means for the caller."""
    from botocore.exceptions import ClientError

    where = f"region {region}" if region else "AWS"
    if isinstance(error, ClientError) and is_permanent(error):
        answer = error.response["Error"]
        refusal = f"{error.operation_name}: {answer['Code']}: {answer.get('Message', '')}"
        return Refused("AWS Glue", where, refusal, CHECK)
    return Unreachable("AWS Glue", where, CHECK, error)


def refusals_explained(region: str | None) -> AbstractContextManager[None]:
    """Raise Refused for a permanent error; let any other pass, since the request may have been executed."""
    from botocore.exceptions import ClientError

    return translate({ClientError: lambda error: error_of(error, region) if is_permanent(error) else None})
