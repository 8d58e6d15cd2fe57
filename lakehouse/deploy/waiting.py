"""Waiting for asynchronous operations of the clouds: a phase, a deletion, what a list shows with a delay."""

from collections.abc import Callable, Collection
from typing import Any, Protocol, TypeVar

from lakehouse.core.errors import LakehouseError, TransientError, Unreachable
from lakehouse.core.polling import SYSTEM_CLOCK, Clock, poll

FAILED = frozenset({"FAILED", "FAILING"})
HALTED = frozenset({"PAUSED", "STOPPED", "SUSPENDED"})
"""Phases that an object does not leave until somebody resumes it. An operator may have chosen them."""
EVERY_SECONDS = 10.0


class Failed(LakehouseError):
    """The object reached a phase that it does not leave by itself."""


class TimedOut(TransientError):
    """The deadline passed; the operation may continue in the cloud."""


class Phased(Protocol):
    """An object with a phase and a message about it, which may be empty."""

    @property
    def phase(self) -> str: ...
    @property
    def detail(self) -> str: ...


P = TypeVar("P", bound=Phased)
T = TypeVar("T")


def wait(
    what: str,
    look: Callable[[], P | None],
    ready: Collection[str],
    *,
    deadline_seconds: float,
    every_seconds: float = EVERY_SECONDS,
    failed: Collection[str] = FAILED,
    clock: Clock = SYSTEM_CLOCK,
) -> P:
    """Wait until the phase is one of `ready`. Unknown phases count as not ready.

    Args:
        what: The object, for messages.
        look: Returns the object; None while it is not visible.
        ready: The phases to wait for.
        deadline_seconds: Maximum time to wait.
        every_seconds: Time between two calls.
        failed: Phases from which the object does not recover. No wait ends one of `HALTED` either.
        clock: Measures the time, and pauses between calls.

    Returns:
        The object in its last state.
    """

    def missing(current: P | None) -> str | None:
        if current is None:
            return "not visible"
        state = state_of(current)
        if current.phase in HALTED:
            raise Failed(
                f"{what} is {state}. It was left unchanged. Resume it in the Cloud Console and run the command again"
            )
        if current.phase in failed:
            raise Failed(
                f"{what} is {state}. It was left unchanged. Remove the cause, delete it and run the command again"
            )
        return None if current.phase in ready else state

    state = f"not {' or '.join(sorted(ready))}"
    current = wait_until(look, missing, what, state, deadline_seconds, every_seconds, clock)
    assert current is not None
    return current


def state_of(current: Phased) -> str:
    """Return the phase of an object, with the message about it."""
    return f"{current.phase} ({current.detail})" if current.detail else current.phase


def unready(current: Phased, ready: Collection[str]) -> str:
    """Return the state of an object as a phrase; empty if its phase is one of `ready`."""
    return "" if current.phase in ready else f"is {state_of(current)}"


def wait_until_deleted(
    what: str,
    look: Callable[[], Any],
    *,
    deadline_seconds: float,
    every_seconds: float = EVERY_SECONDS,
    clock: Clock = SYSTEM_CLOCK,
) -> None:
    """Wait until `look` returns None."""

    def missing(current: Any) -> str | None:
        return None if current is None else getattr(current, "phase", "not deleted")

    wait_until(look, missing, what, "not deleted", deadline_seconds, every_seconds, clock)


def wait_until_visible(
    what: str, look: Callable[[], T | None], *, deadline_seconds: float, clock: Clock = SYSTEM_CLOCK
) -> T:
    """Wait until `look` returns an object: lists may show new objects with a delay."""

    def missing(current: T | None) -> str | None:
        return "not visible" if current is None else None

    current = wait_until(look, missing, what, "not visible", deadline_seconds, EVERY_SECONDS, clock)
    assert current is not None
    return current


def wait_until(
    look: Callable[[], T],
    missing: Callable[[T], str | None],
    what: str,
    state: str,
    deadline_seconds: float,
    every_seconds: float,
    clock: Clock,
) -> T | None:
    """Call `look` until `missing` returns None for its result, which is returned.

    An outage does not end the wait, because the operation continues.

    Args:
        look: Returns the current state.
        missing: Returns what a state lacks, for the message; None for the expected state.
        what: The object, for messages.
        state: What the object is until then, for messages.
        deadline_seconds: Maximum time to wait.
        every_seconds: Time between two calls.
        clock: Measures the time, and pauses between calls.
    """

    def observe() -> tuple[T | None, str | None]:
        try:
            current = look()
            return current, missing(current)
        except Unreachable as error:
            return None, str(error)

    current, last = poll(
        observe,
        until=lambda observation: observation[1] is None,
        pause=every_seconds,
        deadline_seconds=deadline_seconds,
        clock=clock,
    )
    if last is not None:
        raise TimedOut(
            f"{what} is {state} after {deadline_seconds:.0f} seconds; last state: {last}. The operation may still "
            f"finish. Run the command again to continue to wait"
        )
    return current
