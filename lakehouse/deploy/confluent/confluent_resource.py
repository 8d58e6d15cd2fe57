"""The base of Confluent resources: the API, names, and the waits for its asynchronous operations."""

from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import Any, TypeVar

from lakehouse.core.polling import SYSTEM_CLOCK, Clock
from lakehouse.deploy.confluent.delayed_access import retry_while_forbidden
from lakehouse.deploy.names import Names
from lakehouse.deploy.resource import Outputs, Resource, T
from lakehouse.deploy.waiting import P, wait, wait_until_deleted, wait_until_visible
from resources.confluent.confluent_cloud import ConfluentCloud

Created = TypeVar("Created")
LISTED_SECONDS = 5 * 60
"""Until a list shows what was created. Reading it earlier could lead to a second creation."""
RECOVERY_SECONDS = 5 * 60
"""Time limit until failed tasks of a connector or statement have restarted."""
DEGRADED = "DEGRADED"
"""The phase of a connector or statement that runs, but for some of its tasks."""
GRANTED_SECONDS = 180
"""Time limit until an API applies a new role. Confluent's Terraform provider sleeps for 90 seconds instead."""


@dataclass(frozen=True, repr=False)
class ConfluentResource(Resource[T]):
    """A resource in one organization."""

    cloud: ConfluentCloud
    names: Names
    clock: Clock = SYSTEM_CLOCK

    def wait_until_listed(self, outputs: Outputs, deadline_seconds: float = LISTED_SECONDS) -> T:
        """Wait until `read` finds it, and return its state.

        Raises:
            TimedOut: It is not listed at the deadline.
        """
        return wait_until_visible(
            self.label, lambda: self.read(outputs), deadline_seconds=deadline_seconds, clock=self.clock
        )

    def wait_for_phase(self, look: Callable[[], P | None], ready: Collection[str], deadline_seconds: float) -> P:
        """Wait until the phase of what `look` returns is one of `ready`, as `wait` does, but not long while it is
        DEGRADED."""
        started = wait(self.label, look, {*ready, DEGRADED}, deadline_seconds=deadline_seconds, clock=self.clock)
        if started.phase != DEGRADED:
            return started
        return wait(self.label, look, ready, deadline_seconds=RECOVERY_SECONDS, clock=self.clock)

    def wait_until_gone(self, look: Callable[[], Any], deadline_seconds: float) -> None:
        """Wait until `look` returns None, as `wait_until_deleted` does."""
        wait_until_deleted(self.label, look, deadline_seconds=deadline_seconds, clock=self.clock)

    def when_granted(self, create: Callable[[], Created]) -> Created:
        """Call `create` until the API applies the roles that it needs, as `retry_while_forbidden` does."""
        return retry_while_forbidden(self.label, create, deadline_seconds=GRANTED_SECONDS, clock=self.clock)
