"""Whether two policy documents say the same."""

from __future__ import annotations

from typing import Any

from lakehouse.deploy.aws.policies import Policy


def same(one: Policy | None, other: Policy | None) -> bool:
    """Whether they do, however they are written: IAM gives lists back in another order, and a list of one as a value.

    Source: AWS IAM, "Grammar of the IAM JSON policy language".
    """
    return _plain(one) == _plain(other)


def _plain(element: Any) -> Any:
    if isinstance(element, dict):
        return {key: _plain(value) for key, value in element.items()}
    if isinstance(element, list):
        plain = sorted((_plain(value) for value in element), key=repr)
        return plain[0] if len(plain) == 1 else plain
    return element
