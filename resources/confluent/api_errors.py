"""Errors of the APIs of Confluent Cloud, and their derivation from responses."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from typing import Any

from lakehouse.core.errors import LakehouseError, TransientError

TEXT_LIMIT = 300
"""Maximum number of characters that a message quotes of a response other than JSON."""

TOPIC_ERROR = "40002"
"""Kafka's code, with status 400, for a topic that exists or is being deleted. Other APIs return 409."""

ROLES = (
    ("/tableflow/v1/catalog-integrations", "ResourceOwner or Assigner on the provider integration"),
    (
        "/tableflow/",
        "CloudClusterAdmin on the Kafka cluster, and ResourceOwner or Assigner on the provider integration",
    ),
    ("/iam/v2/role-bindings", "OrganizationAdmin, or an administrator's role on the resource of the binding"),
    ("/iam/", "OrganizationAdmin or AccountAdmin on the organization"),
    ("/org/", "OrganizationAdmin on the organization"),
    ("/sql/", "FlinkDeveloper on the environment, and Assigner on the statement's principal"),
    ("/fcpm/", "FlinkAdmin or EnvironmentAdmin on the environment"),
    ("/kafka/", "CloudClusterAdmin on the Kafka cluster"),
    ("/connect/", "CloudClusterAdmin on the Kafka cluster"),
    ("/subjects", "DeveloperRead on the subjects"),
    ("/", "EnvironmentAdmin on the environment"),
)
"""Role that allows a call, by prefix of its path, longest prefix first."""


class ConfluentError(LakehouseError):
    """Confluent Cloud refused a call or sent an unusable response."""


class NotFound(ConfluentError):
    """The object does not exist: 404, or 403 to a GET, which Confluent returns for deleted objects."""


class Forbidden(ConfluentError):
    """The API does not accept the key, or its owner lacks a role."""


class Conflict(ConfluentError):
    """An object of that name exists, or the object is still in use."""


class InvalidRequest(ConfluentError):
    """The API does not accept the request."""


class RateLimited(ConfluentError, TransientError):
    """The rate limit still applied at the deadline."""


@dataclass(frozen=True)
class ErrorMessage:
    """The error in a response: the API's code and its message."""

    code: str
    detail: str

    def __str__(self) -> str:
        return ": ".join(part for part in (self.code, self.detail) if part)


def error_message(content_type: str, text: str) -> ErrorMessage:
    """Parse a response in any of the APIs' four error formats.

    Args:
        content_type: The response's Content-Type.
        text: The response's body. A body that does not have its declared type is read as text.
    """
    if "json" in content_type:
        try:
            document = json.loads(text)
        except ValueError:
            document = None
        if isinstance(document, dict):
            return _error_in_json(document)
    title = re.search(r"<title>(.*?)</title>", text, re.DOTALL | re.IGNORECASE)
    plain = title.group(1) if title else re.sub(r"<[^>]*>", " ", text)
    return ErrorMessage("", " ".join(plain.split())[:TEXT_LIMIT])


def _error_in_json(document: dict[str, Any]) -> ErrorMessage:
    listed = document.get("errors")
    if errors := [error for error in listed if isinstance(error, dict)] if isinstance(listed, list) else []:
        details = "; ".join(str(error.get("detail") or error.get("title") or "") for error in errors)
        return ErrorMessage(str(errors[0].get("code") or ""), details)
    inner = document["error"] if isinstance(document.get("error"), dict) else document
    code = inner.get("error_code") or inner.get("code") or ""
    return ErrorMessage(str(code), str(inner.get("message") or ""))


def refusal(
    call: str, method: str, path: str, key: str, status: int, text: ErrorMessage, listing: bool
) -> ConfluentError:
    """Return the error of a response that refuses a call.

    Args:
        call: API, method and address, for messages.
        method: The HTTP method.
        path: The path below the API's address.
        key: The id of the key.
        status: The HTTP status.
        text: The error in the response.
        listing: Whether the call reads a list, for which 403 does not mean that an object was deleted.
    """
    response = f"{status} {text}".strip()
    effect = "" if method == "GET" else "The call changed nothing"
    if status == 401 or "invalid api key" in str(text).lower():
        return Forbidden(
            f"{call} does not accept the key {key} ({response})",
            effect,
            "Check that it is a key of this API and was not deleted; a new key is accepted after some minutes",
        )
    if status == 404 or (status == 403 and method == "GET" and not listing):
        return NotFound(f"{call} found no object that is visible to the key {key} ({response})", effect)
    if status == 403:
        role = next(role for prefix, role in ROLES if path.startswith(prefix))
        return Forbidden(
            f"{call} refused the key {key} ({response})",
            effect,
            f"Grant the key's owner the role {role}, unless the object of the call was deleted",
        )
    if status == 409 or (text.code == TOPIC_ERROR and re.search("already exists|marked for deletion", text.detail)):
        return Conflict(
            f"{call} conflicts with an existing object ({response})",
            effect,
            "Look up the object that has the name or uses this one",
        )
    if status in (400, 402, 422):
        remedy = "Correct the setting in lakehouse.yaml and run the command again"
        return InvalidRequest(f"{call} did not accept the request ({response})", effect, remedy)
    return ConfluentError(
        f"{call} got an unexpected response ({response})",
        remedy="Check its effect in the Cloud Console",
    )
