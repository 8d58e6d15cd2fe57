"""New keys for a deployment: Confluent's API keys and the key pair of Snowflake's service user."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from lakehouse.core.polling import REAL, Clock
from lakehouse.deploy.confluent import rotation as confluent_keys
from lakehouse.deploy.snowflake import keys as snowflake_keys
from lakehouse.deploy.snowflake.steps import Key
from lakehouse.deploy.step import Step

GRACE_DAYS = 1.0
"""A replaced key goes on for so long: longer than any run (Dagster ends one after two hours)."""


@dataclass(frozen=True)
class Policy:
    """How old a key becomes, in days; how many of Confluent's keys are retained; how long a replaced one goes on."""

    day_count: float = 30
    retained: int = 2
    grace_days: float = GRACE_DAYS


def rotate(steps: Sequence[Step], policy: Policy, clock: Clock = REAL) -> Iterator[str]:
    """Replace what is old enough, finish what was begun, retire what is out of its grace; says what was done.

    Parameters: `clock` is by which a new key is waited for.
    Raises: UnclearState when it cannot be told which key is in use; LakehouseError; Unreachable.
    """
    for done in confluent_keys.rotate(
        steps, day_count=policy.day_count, retained=policy.retained, grace_days=policy.grace_days, clock=clock
    ):
        new = "a new key" if done.is_new else "the key stays"
        gone = f", deleted: {', '.join(done.deleted)}" if done.deleted else ""
        yield f"{done.step}: {new}, {done.key_id}{gone}"
    for step in steps:
        if isinstance(step, Key):
            user = step.user()
            snowflake_keys.rotate(user, policy.grace_days, policy.day_count)
            # After it: what was not finished is finished by then.
            keys = snowflake_keys.retire(user, policy.grace_days)
            until = f", the one before until {keys.old_key_until:%Y-%m-%d %H:%M}" if keys.old_key_until else ""
            yield f"{step.name}: {keys.fingerprint} in {keys.active}{until}"
