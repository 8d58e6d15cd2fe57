"""Waiting for what Confluent Cloud does behind an answer: a phase, a disappearance, a key that has spread."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar

from lakehouse.errors import Unreachable
from resources.confluent.errors import ConfluentError, Unsure

FAILED = frozenset({"FAILED", "FAILING"})
EVERY_SECONDS = 10.0


@dataclass(frozen=True)
class Clock:
    """Seconds that only go up, and how to let some pass."""

    now: Callable[[], float] = time.monotonic
    sleep: Callable[[float], None] = time.sleep


REAL = Clock()


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
    for seen, last in _looks(look, deadline_seconds, every_seconds, clock):
        if seen is None:
            continue
        if seen.phase in ready:
            return seen
        if seen.phase in failed:
            raise Failed(
                f"{what} is {seen.phase}{f' ({seen.detail})' if seen.detail else ''}. It was left as it is. Remove the"
                f" cause, delete it and run this again"
            )
        last.append(f"{seen.phase} ({seen.detail})" if seen.detail else seen.phase)
    raise TimedOut(_late(what, f"not {' or '.join(sorted(ready))}", deadline_seconds, last))


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
    for seen, last in _looks(look, deadline_seconds, every_seconds, clock):
        if seen is None:
            return
        last.append(getattr(seen, "phase", "there"))
    raise TimedOut(_late(what, "still there", deadline_seconds, last))


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

    def taken() -> bool | ConfluentError:
        try:
            ask()
        except Unsure:
            raise
        except ConfluentError as error:
            return error
        return True

    count = 0
    for seen, last in _looks(taken, deadline_seconds, every_seconds, clock):
        count = count + 1 if seen is True else 0
        if count == in_a_row:
            return
        if seen is not True:
            last.append(str(seen))
    raise TimedOut(_late(what, "not accepted yet", deadline_seconds, last))


def _looks(look: Callable[[], Any], deadline_seconds: float, every_seconds: float, clock: Clock):
    """What is seen, again and again until the deadline, with the list of what was seen before. An outage in between is
    no reason to give up what goes on without us."""
    began, last = clock.now(), ["never seen"]
    while True:
        try:
            yield look(), last
        except Unreachable as error:
            last.append(str(error))
        if clock.now() - began + every_seconds > deadline_seconds:
            return
        clock.sleep(every_seconds)


def _late(what: str, state: str, deadline_seconds: float, last: list[str]) -> str:
    return (
        f"{what} is {state} after {deadline_seconds:.0f} seconds; last seen: {last[-1]}. It was left as it is and may"
        f" still come. Run this again to go on waiting"
    )
