"""Settings that hold a secret, or an address that may carry one."""

from __future__ import annotations

from typing import Any

from pydantic import Field


def hidden(default: Any = ..., description: str | None = None) -> Any:
    """Declare a field of a resource whose value appears in no representation and which Dagster's UI masks.

    Args:
        default: Value where the setting is left out; without it, the setting is required.
        description: What the setting means.
    """
    return Field(default, repr=False, description=description, json_schema_extra={"dagster__is_secret": True})
