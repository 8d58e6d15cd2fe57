"""Rotate the keys of a deployment: Confluent's API keys and the key pair of Snowflake's service user."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from lakehouse.core.polling import SYSTEM_CLOCK, Clock
from lakehouse.deploy.confluent import key_rotation
from lakehouse.deploy.confluent.api_keys import RotationKeyResource
from lakehouse.deploy.resource import Outputs, Resource
from lakehouse.deploy.snowflake.access import ServiceUserKey

GRACE_DAYS = 1.0
"""Days for which a replaced key stays valid: longer than any run, which Dagster ends after two hours."""


@dataclass(frozen=True)
class Policy:
    """Ages at which keys are replaced, and replaced keys are deleted."""

    day_count: float = 30
    """The age in days at which a key is replaced."""
    retained: int = 2
    """Number of valid Confluent keys for each account and API."""
    grace_days: float = GRACE_DAYS
    """Days for which a replaced key stays valid."""


def recorded_outputs(resources: Sequence[Resource[Any]]) -> Outputs:
    """Return the recorded states of what the account that replaces keys may not read."""
    [key] = [resource for resource in resources if isinstance(resource, RotationKeyResource)]
    return key.recorded_outputs()


def rotate(
    resources: Sequence[Resource[Any]], policy: Policy, clock: Clock = SYSTEM_CLOCK, known: Outputs | None = None
) -> Iterator[str]:
    """Replace keys that are old enough, finish interrupted rotations, and retire keys after their grace period.

    Args:
        resources: A deployment.
        policy: When keys are replaced and deleted.
        clock: Measures how long a new key is waited for.
        known: The recorded outputs; None reads all, which only an administrator may.

    Yields:
        What was done, a line for each key.
    """
    for rotated in key_rotation.rotate(
        resources,
        day_count=policy.day_count,
        retained=policy.retained,
        grace_days=policy.grace_days,
        known=known,
        clock=clock,
    ):
        new = "a new key" if rotated.is_new else "the key stays"
        deleted = f", deleted: {', '.join(rotated.deleted)}" if rotated.deleted else ""
        yield f"{rotated.address}: {new}, {rotated.key_id}{deleted}"
    for resource in resources:
        if isinstance(resource, ServiceUserKey):
            user = resource.user()
            user.rotate(policy.grace_days, policy.day_count)
            # Afterwards, when an interrupted rotation is finished.
            keys = user.retire(policy.grace_days)
            until = f", the one before until {keys.old_key_until:%Y-%m-%d %H:%M}" if keys.old_key_until else ""
            yield f"{resource.address}: {keys.fingerprint} in {keys.active}{until}"
