"""A secret in AWS Secrets Manager as the credentials of a system, in the layout that `lakehouse deploy` writes."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping

from lakehouse.core.errors import ConfigError
from resources.secrets_manager import Secrets

FRESH_SECONDS = 300
"""Read again after this long, so that long-lived processes find a rotated key. The old one goes on for days."""

_read: dict[tuple[str, str], tuple[float, Mapping[str, str]]] = {}


def values(name: str, *fields: str) -> Mapping[str, str]:
    """The fields of a secret, in the region of AWS_REGION.

    Raises: ConfigError when there is no such secret, or it lacks one of the fields; LakehouseError when AWS refuses;
    Unreachable.
    """
    region = os.environ.get("AWS_REGION") or os.environ.get("AWS_DEFAULT_REGION") or ""
    at, found = _read.get((region, name), (0.0, {}))
    if not found or time.monotonic() - at > FRESH_SECONDS:
        version = Secrets(region).read(name)
        if version is None:
            raise ConfigError(
                f"There is no secret '{name}' in region {region}. Nothing was changed. Correct `secret` in "
                f"lakehouse.yaml, or AWS_REGION; if it was deleted, restore it: aws secretsmanager restore-secret "
                f"--region {region} --secret-id {name}"
            )
        found = version.value.reveal()
        _read[region, name] = (time.monotonic(), found)
    if missing := [field for field in fields if field not in found]:
        raise ConfigError(
            f"The secret '{name}' in region {region} has no {', '.join(missing)}. Nothing was changed. Use the secret "
            f"that `lakehouse deploy create` made for this system"
        )
    return found
