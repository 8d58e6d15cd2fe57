"""Translation of AWS Glue's errors to transient and permanent ones."""

from contextlib import AbstractContextManager

from botocore.exceptions import BotoCoreError, ClientError

from lakehouse.core.errors import LakehouseError, RequestRejected, Unreachable, translate

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

CHECK = "AWS_ENDPOINT_URL, the AWS credentials and their permissions (`lakehouse status`)"


def is_permanent(error: ClientError) -> bool:
    """Return whether AWS rejects the same request each time."""
    return error.response["Error"]["Code"] in PERMANENT


def to_error(error: ClientError | BotoCoreError, region: str | None) -> LakehouseError:
    """Translate an error of a Glue client."""
    where = f"region {region}" if region else "AWS"
    if isinstance(error, ClientError) and is_permanent(error):
        response = error.response["Error"]
        refusal = f"{error.operation_name}: {response['Code']}: {response.get('Message', '')}"
        return RequestRejected("AWS Glue", where, refusal, CHECK)
    return Unreachable("AWS Glue", where, CHECK, error)


def translate_permanent_errors(region: str | None) -> AbstractContextManager[None]:
    """Raise RequestRejected for permanent errors; let others pass, since the request may have been executed."""
    return translate({ClientError: lambda error: to_error(error, region) if is_permanent(error) else None})
