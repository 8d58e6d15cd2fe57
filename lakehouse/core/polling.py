"""Wait for a state and retry what failed, on tenacity, by a clock that tests can replace."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar

from tenacity import RetryCallState, Retrying, retry_if_exception, retry_if_not_result, wait_exponential, wait_fixed

T = TypeVar("T")
Pause = float | Callable[[RetryCallState], float]
"""Seconds between two attempts, or how they follow from the attempts so far."""


@dataclass(frozen=True)
class Clock:
    """Seconds that only go up, and how to let some pass."""

    now: Callable[[], float] = time.monotonic
    sleep: Callable[[float], object] = time.sleep


REAL = Clock()


def doubling(first_seconds: float, longest_seconds: float) -> Callable[[RetryCallState], float]:
    """Return pauses that double from one to the next, up to the longest."""
    return wait_exponential(multiplier=first_seconds, max=longest_seconds)


def poll(
    look: Callable[[], T],
    *,
    pause: Pause,
    deadline_seconds: float | None = None,
    until: Callable[[T], bool] = bool,
    clock: Clock = REAL,
) -> T:
    """Look until what is seen satisfies `until`, or no further pause fits before the deadline.

    Args:
        look: Returns the current state.
        pause: Time between two looks.
        deadline_seconds: Time for all looks; None waits for ever.
        until: Decides whether a state is the awaited one.
        clock: Measures and passes the time.

    Returns:
        The last state, which at the deadline does not satisfy `until`.

    Raises:
        Exception: What `look` raises, at once.
    """
    attempts = _attempts(
        pause,
        deadline_seconds,
        clock,
        retry=retry_if_not_result(until),
        retry_error_callback=lambda state: state.outcome.result(),
    )
    return attempts(look)


def retry(
    action: Callable[[], T],
    *,
    when: Callable[[BaseException], bool],
    pause: Pause,
    deadline_seconds: float,
    clock: Clock = REAL,
) -> T:
    """Repeat an action while it fails in a way that may pass.

    Args:
        action: What is done; it must be safe to repeat after an error that `when` accepts.
        when: Decides whether an error is worth another attempt.
        pause: Time between two attempts.
        deadline_seconds: Time for all attempts.
        clock: Measures and passes the time.

    Returns:
        The result of the attempt that succeeded.

    Raises:
        Exception: The first error that `when` does not accept, or the last one before the deadline.
    """
    attempts = _attempts(pause, deadline_seconds, clock, retry=retry_if_exception(when), reraise=True)
    return attempts(action)


def _attempts(pause: Pause, deadline_seconds: float | None, clock: Clock, **options: Any) -> Retrying:
    began = clock.now()

    def is_last(state: RetryCallState) -> bool:
        return deadline_seconds is not None and clock.now() - began + state.upcoming_sleep > deadline_seconds

    def sleep(seconds: float) -> None:
        clock.sleep(seconds)

    wait = pause if callable(pause) else wait_fixed(pause)
    return Retrying(wait=wait, stop=is_last, sleep=sleep, **options)
