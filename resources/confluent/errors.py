"""What a plane of Confluent Cloud says when it does not do what it was asked, as types."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from typing import Any

from lakehouse.core.errors import LakehouseError, TransientError

TEXT_LIMIT = 300
"""Characters of an answer that is not JSON which go into a message."""

TOPIC_ERROR = "40002"
"""Kafka's code for a topic that exists or is being deleted, with status 400 where other planes say 409."""

ROLES = (
    ("/tableflow/v1/catalog-integrations", "ResourceOwner or Assigner on the provider integration"),
    (
        "/tableflow/",
        "CloudClusterAdmin on the Kafka cluster, and ResourceOwner or Assigner on the provider integration",
    ),
    ("/iam/v2/role-bindings", "OrganizationAdmin, or an administrator's role on what the binding is about"),
    ("/iam/", "OrganizationAdmin or AccountAdmin on the organization"),
    ("/org/", "OrganizationAdmin on the organization"),
    ("/sql/", "FlinkDeveloper on the environment, and Assigner on the statement's principal"),
    ("/fcpm/", "FlinkAdmin or EnvironmentAdmin on the environment"),
    ("/kafka/", "CloudClusterAdmin on the Kafka cluster"),
    ("/connect/", "CloudClusterAdmin on the Kafka cluster"),
    ("/subjects", "DeveloperRead on the subjects"),
    ("/", "EnvironmentAdmin on the environment"),
)
"""By the beginning of a path, most special first: the role that allows it."""


class ConfluentError(LakehouseError):
    """Confluent Cloud refused a call, or gave an answer that cannot be used."""


class Gone(ConfluentError):
    """It is not there (any more): 404, or the 403 that is given for what was deleted."""


class Refused(ConfluentError):
    """The key is not known, or its owner lacks a role."""


class Conflict(ConfluentError):
    """There is one of that name already, or something still needs it."""


class Rejected(ConfluentError):
    """What was sent is not acceptable."""


class Limited(ConfluentError, TransientError):
    """Too many calls: still so at the deadline."""


@dataclass(frozen=True)
class Complaint:
    """The words of an answer that is not a success: the plane's own code, and its sentence."""

    code: str
    detail: str

    def __str__(self) -> str:
        return ": ".join(part for part in (self.code, self.detail) if part)


def complaint(content_type: str, text: str) -> Complaint:
    """Read any of the four shapes in which planes complain.

    Parameters: the answer's Content-Type and body. A body that is not what its type says is taken as text.
    """
    if "json" in content_type:
        try:
            said = json.loads(text)
        except ValueError:
            said = None
        if isinstance(said, dict):
            return _json_complaint(said)
    title = re.search(r"<title>(.*?)</title>", text, re.DOTALL | re.IGNORECASE)
    plain = title.group(1) if title else re.sub(r"<[^>]*>", " ", text)
    return Complaint("", " ".join(plain.split())[:TEXT_LIMIT])


def _json_complaint(said: dict[str, Any]) -> Complaint:
    if errors := said.get("errors"):
        details = "; ".join(str(error.get("detail") or error.get("title") or "") for error in errors)
        return Complaint(str(errors[0].get("code") or ""), details)
    inner = said["error"] if isinstance(said.get("error"), dict) else said
    code = inner.get("error_code") or inner.get("code") or ""
    return Complaint(str(code), str(inner.get("message") or ""))


def refusal(call: str, method: str, path: str, key: str, status: int, said: Complaint, listing: bool) -> ConfluentError:
    """The error that a refusal is.

    Parameters: `call` names plane, method and address; `path` is without the plane's address; `key` is the id of the
    key that was used; `status` is HTTP's; `listing` says that a list was asked for, where a 403 does not mean gone.
    """
    answer = f"{status} {said}".strip()
    effect = "" if method == "GET" else "Nothing was changed"
    if status == 401 or "invalid api key" in str(said).lower():
        return Refused(
            f"{call} does not know the key {key} ({answer})",
            effect,
            "Check that it is a key of this plane, that it was not deleted, and that a new one had its minutes to"
            " spread",
        )
    if status == 404 or (status == 403 and method in ("GET", "DELETE") and not listing):
        return Gone(f"{call} found nothing there, or nothing that key {key} may see ({answer})", effect)
    if status == 403:
        role = next(role for prefix, role in ROLES if path.startswith(prefix))
        return Refused(
            f"{call} refused the key {key} ({answer})",
            effect,
            f"Grant the key's owner the role {role}, unless what the call is about was deleted",
        )
    if status == 409 or (said.code == TOPIC_ERROR and re.search("already exists|marked for deletion", said.detail)):
        return Conflict(
            f"{call} conflicts with what is there ({answer})", effect, "Look up what has the name, or what uses it"
        )
    if status in (400, 402, 422):
        return Rejected(f"{call} did not accept what was sent ({answer})", effect, "Correct it and run it again")
    return ConfluentError(
        f"{call} gave an answer that is not understood ({answer})", remedy="Look up what it changed, if any"
    )
