"""What AWS decides by a set of IAM policies, as far as this project's policies go.

Source: AWS IAM, "Policy evaluation logic", "IAM JSON policy elements" (Action, Resource, Principal, Condition
operators). What it does not know raises: an element that is passed over would decide wrongly.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Literal

Decision = Literal["allowed", "explicitDeny", "implicitDeny"]
"""As SimulatePrincipalPolicy names them (`EvalDecision`)."""

Policy = Mapping[str, Any]
ELEMENTS = {"Sid", "Effect", "Principal", "Action", "Resource", "Condition"}


def decide(
    policies: Iterable[Policy],
    action: str,
    resource: str,
    context: Mapping[str, str] | None = None,
    principal: str | None = None,
) -> Decision:
    """The decision on one request, in one account: a Deny before any Allow, and neither is a Deny.

    Parameters: `policies` of the identity and of the resource alike; `context` are the condition keys that the request
    has; `principal` is the ARN of who asks, for policies that name principals.
    Raises: ValueError for an element, operator or variable that is not known here.
    """
    matching = [
        statement["Effect"]
        for policy in policies
        for statement in listed(policy["Statement"])
        if _applies(statement, action, resource, context or {}, principal)
    ]
    if "Deny" in matching:
        return "explicitDeny"
    return "allowed" if "Allow" in matching else "implicitDeny"


def _applies(statement: Policy, action: str, resource: str, context: Mapping[str, str], principal: str | None) -> bool:
    if unknown := statement.keys() - ELEMENTS:
        raise ValueError(f"Elements that are not known: {', '.join(sorted(unknown))}")
    return (
        any(_like(pattern.lower(), action.lower()) for pattern in listed(statement["Action"]))
        # A trust policy has no Resource: it is the role's that it is attached to.
        and any(arn_like(pattern, resource) for pattern in listed(statement.get("Resource", "*")))
        and ("Principal" not in statement or _named(statement["Principal"], principal))
        and _holds(statement.get("Condition", {}), context)
    )


def _named(element: str | Mapping[str, Any], principal: str | None) -> bool:
    """Whether a Principal element names who asks: itself, its role, its account, or everybody."""
    if element == "*":
        return True
    if principal is None:
        return False
    session = re.fullmatch(r"arn:aws:sts::(\d{12}):assumed-role/([^/]+)/.+", principal)
    account = principal.split(":")[4] if principal.startswith("arn:") else ""
    names = {"*", principal, account, f"arn:aws:iam::{account}:root"}
    if session:
        names.add(f"arn:aws:iam::{session[1]}:role/{session[2]}")
    if unknown := element.keys() - {"AWS", "Service"}:
        raise ValueError(f"Principals that are not known: {', '.join(sorted(unknown))}")
    return not names.isdisjoint(listed(element.get("AWS", []))) or principal in listed(element.get("Service", []))


def _holds(condition: Mapping[str, Mapping[str, Any]], context: Mapping[str, str]) -> bool:
    """All operators and all their keys have to hold, each for one of its values. A key that is not there does not."""
    has = {key.lower(): value for key, value in context.items()}
    for operator, keys in condition.items():
        if operator not in OPERATORS:
            raise ValueError(f"Condition operator {operator} is not known")
        for key, values in keys.items():
            value = has.get(key.lower())
            if value is None or not any(OPERATORS[operator](_literal(v), value) for v in listed(values)):
                return False
    return True


def _literal(value: Any) -> str:
    if "${" in str(value):
        raise ValueError(f"Policy variables are not known: {value}")
    return str(value).lower() if isinstance(value, bool) else str(value)


def arn_like(pattern: str, arn: str) -> bool:
    """Whether an ARN matches a pattern: part by part, so that a wildcard does not reach past a colon, but in the last.

    A `*` at the end of a pattern takes all that follows.
    """
    parts = pattern.split(":", 5)
    values = arn.split(":", len(parts) - 1)
    return len(values) == len(parts) and all(map(_like, parts, values))


def _like(pattern: str, value: str) -> bool:
    regex = "".join({"*": ".*", "?": "."}.get(character, re.escape(character)) for character in pattern)
    return re.fullmatch(regex, value, re.DOTALL) is not None


def listed(value: Any) -> list[Any]:
    """An element that may be written as one value or as a list, as a list."""
    return list(value) if isinstance(value, list | tuple) else [value]


OPERATORS: dict[str, Callable[[str, str], bool]] = {
    "StringEquals": str.__eq__,
    "StringLike": _like,
    "Bool": lambda wanted, value: wanted.lower() == value.lower(),
    "ArnLike": arn_like,
}
