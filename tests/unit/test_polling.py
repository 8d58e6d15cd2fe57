"""Polling and retries: until when, with which pauses, and what comes out at the deadline."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from sleepless import Sleepless

from lakehouse.core.polling import doubling, poll, retry

pytest_plugins = ["confluent_fixtures"]


def each_in_turn(*outcomes: Any) -> Callable[[], Any]:
    """Return a function that returns, or raises, one outcome a call."""
    source = iter(outcomes)

    def following() -> Any:
        outcome = next(source)
        if isinstance(outcome, BaseException):
            raise outcome
        return outcome

    return following


def is_os_error(error: BaseException) -> bool:
    return isinstance(error, OSError)


def test_polling_ends_with_the_state_it_waits_for(sleepless: Sleepless):
    look = each_in_turn("starting", "starting", "ready")
    seen = poll(look, until=lambda state: state == "ready", pause=2, deadline_seconds=60, clock=sleepless.clock)
    assert seen == "ready" and sleepless.pauses == [2, 2]


def test_polling_returns_the_last_state_at_the_deadline(sleepless: Sleepless):
    look = each_in_turn(0, 0, 0)
    assert poll(look, pause=2, deadline_seconds=5, clock=sleepless.clock) == 0
    assert sleepless.pauses == [2, 2]


def test_polling_without_a_deadline_goes_on(sleepless: Sleepless):
    assert poll(each_in_turn(*[None] * 500, 1), pause=60, clock=sleepless.clock) == 1
    assert len(sleepless.pauses) == 500


@pytest.mark.parametrize("error", [OSError("gone"), SystemExit(3), KeyboardInterrupt()])
def test_an_error_ends_polling_at_once(error: BaseException, sleepless: Sleepless):
    with pytest.raises(type(error)) as raised:
        poll(each_in_turn(None, error), pause=1, deadline_seconds=60, clock=sleepless.clock)
    assert raised.value is error and sleepless.pauses == [1]


def test_an_action_is_repeated_after_the_errors_that_may_pass(sleepless: Sleepless):
    action = each_in_turn(OSError("busy"), OSError("busy"), None)
    assert retry(action, when=is_os_error, pause=3, deadline_seconds=60, clock=sleepless.clock) is None
    assert sleepless.pauses == [3, 3]


def test_the_last_error_is_raised_at_the_deadline(sleepless: Sleepless):
    first, last = OSError("first"), OSError("last")
    with pytest.raises(OSError) as raised:
        retry(each_in_turn(first, last), when=is_os_error, pause=3, deadline_seconds=5, clock=sleepless.clock)
    assert raised.value is last and sleepless.pauses == [3]


@pytest.mark.parametrize("error", [ValueError("wrong"), KeyboardInterrupt()])
def test_any_other_error_is_raised_at_once(error: BaseException, sleepless: Sleepless):
    with pytest.raises(type(error)) as raised:
        retry(each_in_turn(error), when=is_os_error, pause=3, deadline_seconds=60, clock=sleepless.clock)
    assert raised.value is error and sleepless.pauses == []


def test_pauses_double_up_to_the_longest(sleepless: Sleepless):
    pause = doubling(first_seconds=0.5, longest_seconds=3)
    poll(each_in_turn(*[None] * 5, 1), pause=pause, deadline_seconds=60, clock=sleepless.clock)
    assert sleepless.pauses == [0.5, 1, 2, 3, 3]
