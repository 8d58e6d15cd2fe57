"""Compare IAM policy documents by their meaning."""

from typing import Any

from lakehouse.deploy.aws.iam.policies import Policy


def same(one: Policy | None, other: Policy | None) -> bool:
    """Return whether two documents mean the same: IAM reorders lists, and returns a list of one as a value.

    Source: AWS IAM, "Grammar of the IAM JSON policy language".
    """
    return bool(_plain(one) == _plain(other))


def _plain(element: Any) -> Any:
    if isinstance(element, dict):
        return {key: _plain(value) for key, value in element.items()}
    if isinstance(element, list):
        plain = sorted((_plain(value) for value in element), key=repr)
        return plain[0] if len(plain) == 1 else plain
    return element
