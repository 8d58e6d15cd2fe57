"""Whether Snowflake is let in where a deployment's volume and integrations lead."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any

from lakehouse.core.polling import REAL, Clock
from lakehouse.deploy.snowflake.session import Administrator
from lakehouse.deploy.step import Found, Step
from resources.confluent.waiting import wait

VERIFIED_WITHIN_SECONDS = 120
"""IAM tells its own servers of a new role within seconds, mostly; AWS promises no time."""

UNREMARKABLE = ("PASSED", "SKIPPED", "", None)
"""What the SYSTEM$VERIFY functions say of what is no reason for a refusal."""


@dataclass(frozen=True)
class Verification:
    """What Snowflake says of its way into AWS, for `wait`."""

    phase: str
    detail: str


@dataclass(frozen=True)
class Verified(Step):
    """Snowflake may assume our IAM role. AWS takes a while until all of it knows a new role."""

    name: str
    administrator: Administrator
    what: str
    question: str
    """The statement that asks Snowflake."""
    needs: tuple[str, ...] = ()
    clock: Clock = field(default=REAL, repr=False)

    def find(self, found: Found) -> Verification:
        """What Snowflake says now. Never None: what stands on it can be taken away when it is broken, too."""
        [row] = self.administrator.rows(self.question)
        said: dict[str, Any] = json.loads(next(iter(row.values())))
        # The reasons are in fields of their own: errorMessage, or one for each thing that was tried.
        reasons = [f"{key}: {value}" for key, value in said.items() if key != "success" and value not in UNREMARKABLE]
        return Verification("verified", "") if said["success"] else Verification("refused", "; ".join(reasons))

    def create(self, found: Found) -> Verification:
        """There is nothing to make."""
        return self.find(found)

    def settle(self, found: Found, it: Verification) -> Verification:
        """Ask until Snowflake is let in.

        Raises: resources.confluent.waiting.TimedOut with what it said last.
        """
        if it.phase == "verified":
            return it
        return wait(
            self.what,
            lambda: self.find(found),
            ("verified",),
            deadline_seconds=VERIFIED_WITHIN_SECONDS,
            clock=self.clock,
        )

    def differences(self, found: Found, it: Verification) -> list[str]:
        """That it is refused."""
        return [] if it.phase == "verified" else [f"is refused: {it.detail}"]

    def change(self, found: Found, it: Verification) -> Verification:
        """There is nothing to change: `settle` waits."""
        return it

    def delete(self, found: Found, it: Verification) -> None:
        """Nothing: `kept` says why."""

    def kept(self, found: Found, it: Verification) -> str:
        """Always."""
        return "goes with what it is about"
