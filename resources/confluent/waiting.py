"""Waiting for what Confluent Cloud does behind an answer: a phase, a disappearance, a key that has spread."""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Any, Protocol, TypeVar

from lakehouse.core.errors import Unreachable
from lakehouse.core.polling import REAL, Clock, poll, retry
from resources.confluent.errors import ConfluentError, Refused

FAILED = frozenset({"FAILED", "FAILING"})
EVERY_SECONDS = 10.0


class Failed(ConfluentError):
    """It came to a phase from which it does not recover."""


class TimedOut(ConfluentError):
    """The deadline came first; what was begun goes on without us."""


class Phased(Protocol):
    """What has a phase, and a sentence about it (empty when there is none)."""

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
    clock: Clock = REAL,
) -> P:
    """Look until the phase is one of `ready`. A phase nobody heard of is waited out like any other.

    Parameters: `what` names it in messages; `look` gives it, or None while it is not to be seen.
    Returns: what was seen last.
    Raises: Failed, TimedOut with the last phase, and what `look` raises.
    """
    seen: P | None = None

    def missing() -> str | None:
        nonlocal seen
        seen = look()
        if seen is None:
            return "not to be seen"
        described = f"{seen.phase} ({seen.detail})" if seen.detail else seen.phase
        if seen.phase in failed:
            raise Failed(f"{what} is {described}. It was left as it is. Remove the cause, delete it and run this again")
        return None if seen.phase in ready else described

    _until(missing, what, f"not {' or '.join(sorted(ready))}", deadline_seconds, every_seconds, clock)
    assert seen is not None
    return seen


def wait_gone(
    what: str,
    look: Callable[[], Any],
    *,
    deadline_seconds: float,
    every_seconds: float = EVERY_SECONDS,
    clock: Clock = REAL,
) -> None:
    """Look until `look` gives None.

    Raises: TimedOut, and what `look` raises.
    """

    def missing() -> str | None:
        seen = look()
        return None if seen is None else getattr(seen, "phase", "there")

    _until(missing, what, "still there", deadline_seconds, every_seconds, clock)


def wait_there(
    what: str,
    look: Callable[[], T | None],
    *,
    deadline_seconds: float,
    every_seconds: float = EVERY_SECONDS,
    clock: Clock = REAL,
) -> T:
    """Look until `look` gives something: lists show new things late.

    Raises: TimedOut, and what `look` raises.
    """
    seen: T | None = None

    def missing() -> str | None:
        nonlocal seen
        seen = look()
        return "not to be seen" if seen is None else None

    _until(missing, what, "not there", deadline_seconds, every_seconds, clock)
    assert seen is not None
    return seen


def when_allowed(
    what: str,
    do: Callable[[], T],
    *,
    deadline_seconds: float,
    every_seconds: float = EVERY_SECONDS,
    clock: Clock = REAL,
) -> T:
    """Do it; as long as it is refused, again: planes learn of a role late.

    Raises: Refused, as it is at the deadline, and whatever else `do` raises.
    """

    def is_refused(error: BaseException) -> bool:
        return isinstance(error, Refused)

    try:
        return retry(do, when=is_refused, pause=every_seconds, deadline_seconds=deadline_seconds, clock=clock)
    except Refused as error:
        error.add_note(f"{what} was tried for {deadline_seconds:.0f} seconds")
        raise


def wait_accepted(
    what: str,
    ask: Callable[[], Any],
    *,
    deadline_seconds: float,
    in_a_row: int = 2,
    every_seconds: float = EVERY_SECONDS,
    clock: Clock = REAL,
) -> None:
    """Ask with a new key until it is taken so many times in a row: planes learn of a key one server after the other.

    Raises: TimedOut with the last refusal.
    """
    taken = 0

    def missing() -> str | None:
        nonlocal taken
        try:
            ask()
        except ConfluentError as error:
            taken = 0
            return str(error)
        taken += 1
        return None if taken == in_a_row else f"accepted {taken} of {in_a_row} times in a row"

    _until(missing, what, "not accepted yet", deadline_seconds, every_seconds, clock)


def _until(
    missing: Callable[[], str | None],
    what: str,
    state: str,
    deadline_seconds: float,
    every_seconds: float,
    clock: Clock,
) -> None:
    """Ask what is missing until nothing is. An outage in between is no reason to give up what goes on without us."""

    def missing_or_outage() -> str | None:
        try:
            return missing()
        except Unreachable as error:
            return str(error)

    last = poll(
        missing_or_outage,
        until=lambda missing: missing is None,
        pause=every_seconds,
        deadline_seconds=deadline_seconds,
        clock=clock,
    )
    if last is not None:
        raise TimedOut(
            f"{what} is {state} after {deadline_seconds:.0f} seconds; last seen: {last}. It was left as it is and may"
            f" still come. Run this again to go on waiting"
        )
