"""Fields of resources that contain a secret, or an address that may include one."""

import re
from typing import Any

from pydantic import Field
from pydantic.fields import FieldInfo

_WHOLE = "lakehouse__is_secret_as_a_whole"
_IN_ADDRESS = re.compile(r"://[^/\s@:]*:[^/\s@]+@|[;?&]token=[^;&\s]", re.IGNORECASE)
"""A password, or a token in the parameters. A user alone is no secret."""


def masked_field(default: Any = ..., description: str | None = None) -> Any:
    """Declare a field whose value is omitted from representations and masked in Dagster's UI.

    Args:
        default: Value of an omitted setting; without it, the setting is required.
        description: Description of the setting.
    """
    return Field(default, repr=False, description=description, json_schema_extra={"dagster__is_secret": True})


def secret_field(default: Any = ..., description: str | None = None) -> Any:
    """Declare a masked field whose value is a secret as a whole, which lakehouse.yaml must not contain.

    Args:
        default: Value of an omitted setting; without it, the setting is required.
        description: Description of the setting.
    """
    extra: dict[str, Any] = {"dagster__is_secret": True, _WHOLE: True}
    return Field(default, repr=False, description=description, json_schema_extra=extra)


def is_secret(field: FieldInfo, value: object) -> bool:
    """Return whether a value of a field is a secret, or an address with a password or token."""
    extra = field.json_schema_extra
    if not value or not isinstance(extra, dict) or not extra.get("dagster__is_secret"):
        return False
    return _WHOLE in extra or _IN_ADDRESS.search(str(value)) is not None
