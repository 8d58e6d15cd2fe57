"""The base of Confluent resources: the API, names, and the wait until a list contains a new object."""

from __future__ import annotations

from dataclasses import dataclass

from lakehouse.core.polling import SYSTEM_CLOCK, Clock
from lakehouse.deploy.names import Names
from lakehouse.deploy.resource import Outputs, Resource, T
from resources.confluent.confluent_cloud import ConfluentCloud
from resources.confluent.waiting import wait_until_visible

LISTED_SECONDS = 5 * 60
"""Until a list shows what was created. Reading it earlier could lead to a second creation."""
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
