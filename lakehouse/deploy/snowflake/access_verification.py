"""Verification that AWS and the REST catalog grant Snowflake access."""

from dataclasses import dataclass
from typing import Any

from lakehouse.core.polling import SYSTEM_CLOCK, Clock
from lakehouse.deploy.resource import Outputs, Resource, Undeletable, Updatable
from lakehouse.deploy.snowflake.objects import SnowflakeResource
from lakehouse.deploy.waiting import wait
from resources.snowflake.snowflake_responses import Row, UnknownForm, json_object, single_value, value_of

VERIFIED_WITHIN_SECONDS = 120
"""A new IAM role is usually effective within seconds; AWS documents no limit."""

UNREMARKABLE = ("PASSED", "SKIPPED", "", None)
"""Values in responses of the SYSTEM$VERIFY functions that are no reason for a refusal."""


@dataclass(frozen=True)
class Verification:
    """Snowflake's response about its access, for `wait`."""

    phase: str
    detail: str


@dataclass(frozen=True, kw_only=True, repr=False)
class AccessVerification(SnowflakeResource[Verification], Updatable[Verification], Undeletable[Verification]):
    """Snowflake's access to AWS by the deployment's IAM role. A new role is effective after some delay."""

    retained_because = "is deleted with the objects that it verifies"
    label: str
    question: str
    """The statement that verifies access."""
    after: tuple[Resource[Any], ...]
    """The resources that are verified."""
    clock: Clock = SYSTEM_CLOCK

    def read(self, outputs: Outputs) -> Verification:
        """Run the statement. The result is never None, so that dependents can be deleted without access."""
        return self.administrator.read(self.question, _verification)

    def create(self, outputs: Outputs) -> Verification:
        """Run the statement: there is nothing to create."""
        return self.read(outputs)

    def wait_until_ready(self, outputs: Outputs, current: Verification) -> Verification:
        """Repeat the statement until Snowflake has access.

        Raises:
            TimedOut: It does not; the message has Snowflake's last response.
        """
        if current.phase == "verified":
            return current
        return wait(
            self.label,
            lambda: self.read(outputs),
            ("verified",),
            deadline_seconds=VERIFIED_WITHIN_SECONDS,
            clock=self.clock,
        )

    def diff(self, outputs: Outputs, current: Verification) -> list[str]:
        """Name a refusal."""
        return [] if current.phase == "verified" else [f"is refused: {current.detail}"]

    def update(self, outputs: Outputs, current: Verification) -> Verification:
        """Change nothing: `wait_until_ready` waits."""
        return current


def _verification(rows: list[Row]) -> Verification:
    response = json_object(single_value(rows, str))
    success = value_of(response, "success")
    if not isinstance(success, bool):
        raise UnknownForm(f"has a success of type {type(success).__name__} instead of true or false")
    # The reasons are in fields of their own: errorMessage, or one for each attempt.
    reasons = [f"{key}: {value}" for key, value in response.items() if key != "success" and value not in UNREMARKABLE]
    return Verification("verified", "") if success else Verification("refused", "; ".join(reasons))
