"""The base of Confluent resources: the API, names, and the waits for its asynchronous operations.

The APIs of Confluent Cloud apply new roles and keys with a delay.
"""

from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import Any, TypeVar

from lakehouse.core.polling import SYSTEM_CLOCK, Clock, retry
from lakehouse.deploy.names import Names
from lakehouse.deploy.resource import Outputs, Resource, T
from lakehouse.deploy.waiting import EVERY_SECONDS, P, wait, wait_until, wait_until_deleted, wait_until_visible
from resources.confluent.api_client import ConfluentError, Forbidden
from resources.confluent.confluent_cloud import ConfluentCloud

Created = TypeVar("Created")


def retry_while_forbidden(
    what: str, do: Callable[[], Created], *, deadline_seconds: float, clock: Clock = SYSTEM_CLOCK
) -> Created:
    """Call `do`, with retries while it is refused: new roles take effect with a delay."""

    def is_refused(error: BaseException) -> bool:
        return isinstance(error, Forbidden)

    try:
        return retry(do, when=is_refused, pause=EVERY_SECONDS, deadline_seconds=deadline_seconds, clock=clock)
    except Forbidden as error:
        error.add_note(f"{what} was retried for {deadline_seconds:.0f} seconds")
        raise


def wait_until_accepted(
    what: str,
    use_key: Callable[[], Any],
    *,
    deadline_seconds: float,
    in_a_row: int = 2,
    clock: Clock = SYSTEM_CLOCK,
) -> None:
    """Repeat a request with a new key until it succeeds `in_a_row` times: an API's servers accept a key one by one."""
    accepted = 0

    def refusal() -> str | None:
        nonlocal accepted
        try:
            use_key()
        except ConfluentError as error:
            accepted = 0
            return str(error)
        accepted += 1
        return None if accepted == in_a_row else f"accepted {accepted} of {in_a_row} times in a row"

    wait_until(refusal, lambda error: error, what, "not accepted yet", deadline_seconds, EVERY_SECONDS, clock)


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
        """Wait until `read` finds it, and return its state."""
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
