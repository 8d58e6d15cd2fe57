"""Responses of AWS Secrets Manager whose form is verified. All of its calls are parsed by botocore, which ignores what
a response lacks: without a verification, the page of a proxy counts as a change that was made.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from botocore.parsers import ResponseParserError

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
