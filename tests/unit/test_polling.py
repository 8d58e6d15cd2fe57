"""Polling and retries: deadlines, pauses and results."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from lakehouse.core.polling import doubling, poll, retry
from tests.support.sleepless import Sleepless


def outcomes_of(*outcomes: Any) -> Callable[[], Any]:
    """Return a function that returns, or raises, one outcome per call."""
    source = iter(outcomes)

    def next_outcome() -> Any:
        outcome = next(source)
        if isinstance(outcome, BaseException):
            raise outcome
        return outcome

    return next_outcome


def is_os_error(error: BaseException) -> bool:
    return isinstance(error, OSError)


def test_poll_ends_with_awaited_state(sleepless: Sleepless):
    state_of = outcomes_of("starting", "starting", "ready")
    state = poll(state_of, until=lambda state: state == "ready", pause=2, deadline_seconds=60, clock=sleepless.clock)
    assert state == "ready" and sleepless.pauses == [2, 2]


def test_poll_deadline_returns_last_state(sleepless: Sleepless):
    state_of = outcomes_of(0, 0, 0)
    assert poll(state_of, pause=2, deadline_seconds=5, clock=sleepless.clock) == 0
    assert sleepless.pauses == [2, 2]


def test_poll_without_deadline_continues(sleepless: Sleepless):
    assert poll(outcomes_of(*[None] * 500, 1), pause=60, clock=sleepless.clock) == 1
    assert len(sleepless.pauses) == 500


@pytest.mark.parametrize("error", [OSError("gone"), SystemExit(3), KeyboardInterrupt()])
def test_poll_error_is_raised_immediately(error: BaseException, sleepless: Sleepless):
    with pytest.raises(type(error)) as raised:
        poll(outcomes_of(None, error), pause=1, deadline_seconds=60, clock=sleepless.clock)
    assert raised.value is error and sleepless.pauses == [1]


def test_retry_passing_errors_are_retried(sleepless: Sleepless):
    action = outcomes_of(OSError("busy"), OSError("busy"), None)
    assert retry(action, when=is_os_error, pause=3, deadline_seconds=60, clock=sleepless.clock) is None
    assert sleepless.pauses == [3, 3]


def test_retry_deadline_raises_last_error(sleepless: Sleepless):
    first, last = OSError("first"), OSError("last")
    with pytest.raises(OSError) as raised:
        retry(outcomes_of(first, last), when=is_os_error, pause=3, deadline_seconds=5, clock=sleepless.clock)
    assert raised.value is last and sleepless.pauses == [3]


@pytest.mark.parametrize("error", [ValueError("wrong"), KeyboardInterrupt()])
def test_retry_other_error_is_raised_immediately(error: BaseException, sleepless: Sleepless):
    with pytest.raises(type(error)) as raised:
        retry(outcomes_of(error), when=is_os_error, pause=3, deadline_seconds=60, clock=sleepless.clock)
    assert raised.value is error and sleepless.pauses == []


def test_doubling_pauses_are_limited(sleepless: Sleepless):
    pause = doubling(first_seconds=0.5, longest_seconds=3)
    poll(outcomes_of(*[None] * 5, 1), pause=pause, deadline_seconds=60, clock=sleepless.clock)
    assert sleepless.pauses == [0.5, 1, 2, 3, 3]
