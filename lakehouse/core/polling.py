"""Poll for a state and retry actions, with tenacity and a replaceable clock."""

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar

from tenacity import RetryCallState, Retrying, retry_if_exception, retry_if_not_result, wait_exponential, wait_fixed

T = TypeVar("T")
Pause = float | Callable[[RetryCallState], float]
"""Seconds between two attempts, or a function of the attempts so far."""


@dataclass(frozen=True)
class Clock:
    """A monotonic clock, in seconds.

    The functions of `time` are looked up at each call, like everywhere else, so that a process has one clock.
    """

    now: Callable[[], float] = lambda: time.monotonic()
    sleep: Callable[[float], object] = lambda seconds: time.sleep(seconds)


SYSTEM_CLOCK = Clock()


def doubling(
    first_seconds: float,
    longest_seconds: float,
    requested: Callable[[BaseException], float | None] = lambda error: None,
) -> Callable[[RetryCallState], float]:
    """Return pauses that double from one to the next, up to the longest.

    Args:
        requested: Returns the pause that an error requests instead; None if it requests none.
    """
    wait = wait_exponential(multiplier=first_seconds, max=longest_seconds)

    def pause(state: RetryCallState) -> float:
        error = state.outcome.exception() if state.outcome else None
        seconds = requested(error) if error else None
        return wait(state) if seconds is None else seconds

    return pause


def poll(
    look: Callable[[], T],
    *,
    pause: Pause,
    deadline_seconds: float | None = None,
    until: Callable[[T], bool] = bool,
    clock: Clock = SYSTEM_CLOCK,
) -> T:
    """Look up a state until it satisfies `until`, or no further pause fits before the deadline.

    Args:
        deadline_seconds: Time for all lookups; None for no limit.
        until: Whether a state is the expected one.

    Returns:
        The last state; after the deadline it does not satisfy `until`.

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
    clock: Clock = SYSTEM_CLOCK,
) -> T:
    """Repeat an action while its errors are retryable.

    Args:
        action: Must be safe to repeat after an error that `when` accepts.
        when: Whether an error is retryable.

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
