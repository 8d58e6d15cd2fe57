"""New roles and keys: the APIs of Confluent Cloud apply them with a delay."""

from collections.abc import Callable
from typing import Any, TypeVar

from lakehouse.core.polling import SYSTEM_CLOCK, Clock, retry
from lakehouse.deploy.waiting import EVERY_SECONDS, wait_until
from resources.confluent.api_errors import ConfluentError, Forbidden

T = TypeVar("T")


def retry_while_forbidden(what: str, do: Callable[[], T], *, deadline_seconds: float, clock: Clock = SYSTEM_CLOCK) -> T:
    """Call `do`, with retries while it is refused: new roles take effect with a delay.

    Raises:
        Forbidden: The call was still refused at the deadline.
        LakehouseError: `do` failed otherwise.
    """

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
    """Repeat a request with a new key until it succeeds `in_a_row` times: an API's servers accept a key one by one.

    Raises:
        TimedOut: The deadline passed; the message has the last error.
    """
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
