"""Fields of resources that contain a secret, or an address that may include one."""

from __future__ import annotations

from typing import Any

from pydantic import Field


def masked_field(default: Any = ..., description: str | None = None) -> Any:
    """Declare a field whose value is omitted from representations and masked in Dagster's UI.

    Args:
        default: Value of an omitted setting; without it, the setting is required.
        description: Description of the setting.
    """
    return Field(default, repr=False, description=description, json_schema_extra={"dagster__is_secret": True})
