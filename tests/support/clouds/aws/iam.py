"""The evaluation of IAM policies, as far as the policies of this project need it.

Source: AWS IAM, "Policy evaluation logic", "IAM JSON policy elements" (Action, Resource, Principal, Condition
operators). An unknown element raises, because ignoring it would lead to a wrong decision.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Literal

Decision = Literal["allowed", "explicitDeny", "implicitDeny"]
"""Values of `EvalDecision` of SimulatePrincipalPolicy."""

Policy = Mapping[str, Any]
ELEMENTS = {"Sid", "Effect", "Principal", "Action", "Resource", "Condition"}


def decide(
    policies: Iterable[Policy],
    action: str,
    resource: str,
    context: Mapping[str, str] | None = None,
    principal: str | None = None,
) -> Decision:
    """Return the decision on one request in one account: a Deny precedes any Allow, and neither is a Deny.

    Args:
        policies: Policies of the identity and of the resource.
        action: Requested action.
        resource: ARN of the resource.
        context: Condition keys of the request.
        principal: ARN of the caller, for policies with principals.

    Raises:
        ValueError: A policy has an unknown element, operator or variable.
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
        any(_is_like(pattern.lower(), action.lower()) for pattern in listed(statement["Action"]))
        # A trust policy has no Resource: it applies to its role.
        and any(arn_like(pattern, resource) for pattern in listed(statement.get("Resource", "*")))
        and ("Principal" not in statement or _names_caller(statement["Principal"], principal))
        and _is_met(statement.get("Condition", {}), context)
    )


def _names_caller(element: str | Mapping[str, Any], principal: str | None) -> bool:
    """Return whether a Principal element names the caller, the role or account of the caller, or everybody."""
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


def _is_met(condition: Mapping[str, Mapping[str, Any]], context: Mapping[str, str]) -> bool:
    """Return whether each key of each operator matches one of its values. A missing key does not match."""
    values_by_key = {key.lower(): value for key, value in context.items()}
    for operator, keys in condition.items():
        if operator not in OPERATORS:
            raise ValueError(f"Condition operator {operator} is not known")
        for key, values in keys.items():
            value = values_by_key.get(key.lower())
            if value is None or not any(OPERATORS[operator](_literal(v), value) for v in listed(values)):
                return False
    return True


def _literal(value: Any) -> str:
    if "${" in str(value):
        raise ValueError(f"Policy variables are not known: {value}")
    return str(value).lower() if isinstance(value, bool) else str(value)


def arn_like(pattern: str, arn: str) -> bool:
    """Return whether an ARN matches a pattern.

    Each part is matched alone: a wildcard matches no colon, except in the last part of the pattern.
    """
    parts = pattern.split(":", 5)
    values = arn.split(":", len(parts) - 1)
    return len(values) == len(parts) and all(map(_is_like, parts, values))


def _is_like(pattern: str, value: str) -> bool:
    regex = "".join({"*": ".*", "?": "."}.get(character, re.escape(character)) for character in pattern)
    return re.fullmatch(regex, value, re.DOTALL) is not None


def listed(value: Any) -> list[Any]:
    """Return an element as a list; policies allow one value in place of a list."""
    return list(value) if isinstance(value, list | tuple) else [value]


OPERATORS: dict[str, Callable[[str, str], bool]] = {
    "StringEquals": str.__eq__,
    "StringLike": _is_like,
    "Bool": lambda wanted, value: wanted.lower() == value.lower(),
    "ArnLike": arn_like,
}
