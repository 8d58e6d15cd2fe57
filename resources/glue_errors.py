"""Errors of AWS Glue: what to wait for, and what stays wrong until somebody changes it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from lakehouse.core.errors import LakehouseError, Refused, Unreachable

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


def explained(error: ClientError | BotoCoreError, region: str | None) -> LakehouseError:
    """What an error of a Glue client means for the caller."""
    from botocore.exceptions import ClientError

    where = f"region {region}" if region else "AWS"
    if isinstance(error, ClientError) and is_permanent(error):
        said = error.response["Error"]
        return Refused("AWS Glue", where, f"{error.operation_name}: {said['Code']}: {said.get('Message', '')}", CHECK)
    return Unreachable("AWS Glue", where, CHECK, error)


@contextmanager
def refusals_explained(region: str | None) -> Iterator[None]:
    """Raise Refused for a permanent error; let any other pass, since the request may have been executed."""
    from botocore.exceptions import ClientError

    try:
        yield
    except ClientError as error:
        if is_permanent(error):
            raise explained(error, region) from error
        raise
