"""Credentials of systems in AWS Secrets Manager, in the layout that `lakehouse deploy` writes."""

import os
import time
from collections.abc import Mapping

from lakehouse.core.errors import ConfigError
from resources.aws.secrets_manager import Secrets

MAX_AGE_SECONDS = 300
"""Secrets are read again after this time, so that long-lived processes use a rotated key. The old one remains valid for
days."""

cache: dict[tuple[str, str, str], tuple[float, Mapping[str, str]]] = {}
"""Time and fields of the last reading, by region, name and role."""


def read_secret_fields(name: str, *fields: str, role_arn: str = "") -> Mapping[str, str]:
    """Return the fields of a secret in the region AWS_REGION.

    Args:
        name: Name of the secret.
        fields: Fields that are required.
        role_arn: IAM role to assume; if empty, the credentials of the environment apply.

    Raises:
        ConfigError: AWS_REGION is not set, the secret does not exist, or one of the fields is missing or empty.
        LakehouseError: AWS refuses the request.
        Unreachable: AWS does not respond.
    """
    region = os.environ.get("AWS_REGION") or os.environ.get("AWS_DEFAULT_REGION")
    if not region:
        raise ConfigError(
            f"The secret '{name}' cannot be read without a region. No login was attempted. Set AWS_REGION to the "
            f"region of the secret"
        )
    read_at, values = cache.get((region, name, role_arn), (0.0, {}))
    if not values or time.monotonic() - read_at > MAX_AGE_SECONDS:
        version = Secrets(region, role_arn=role_arn).read(name)
        if version is None:
            raise ConfigError(
                f"There is no secret '{name}' in region {region}. No login was attempted. Correct `secret` in "
                f"lakehouse.yaml, or AWS_REGION; if it was deleted, restore it: aws secretsmanager restore-secret "
                f"--region {region} --secret-id {name}"
            )
        values = version.value.reveal()
        cache[region, name, role_arn] = (time.monotonic(), values)
    if missing := [field for field in fields if not values.get(field)]:
        raise ConfigError(
            f"The secret '{name}' in region {region} has no {', '.join(missing)}. No login was attempted. Use the "
            f"secret that `lakehouse deploy create` created for this system"
        )
    return values
