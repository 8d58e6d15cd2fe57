"""Waiting: for a phase, for a disappearance, and for a new key to be known."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import pytest
from sleepless import Sleepless

from lakehouse.core.errors import OutcomeUnknownError, Unreachable
from resources.confluent.errors import Refused
from resources.confluent.waiting import Failed, TimedOut, wait, wait_accepted, wait_gone, wait_there, when_allowed

pytest_plugins = ["confluent_fixtures"]


@dataclass
class Thing:
    phase: str
    detail: str = ""


def looks(*phases: str | None | Exception) -> Callable[[], Any]:
    """What is seen, look by look; the last goes on for ever."""

    def seen() -> Iterator[Any]:
        yield from phases
        while True:
            yield phases[-1]

    source = seen()

    def look() -> Any:
        phase = next(source)
        if isinstance(phase, Exception):
            raise phase
        return phase and Thing(phase, "because")

    return look


def test_it_looks_until_it_is_ready(sleepless: Sleepless):
    look = looks(None, "PROVISIONING", "PROVISIONED")
    assert wait("it", look, {"PROVISIONED"}, deadline_seconds=60, clock=sleepless.clock).phase == "PROVISIONED"
    assert sleepless.pauses == [10, 10]


def test_it_does_not_wait_for_what_is_ready(sleepless: Sleepless):
    wait("it", looks("RUNNING"), {"RUNNING", "COMPLETED"}, deadline_seconds=0, clock=sleepless.clock)
    assert sleepless.pauses == []


def test_a_phase_nobody_heard_of_is_waited_out_and_named(sleepless: Sleepless):
    look = looks("DREAMING", "PROVISIONED")
    assert wait("it", look, {"PROVISIONED"}, deadline_seconds=60, clock=sleepless.clock)
    with pytest.raises(TimedOut, match=r"cluster lkc-1 is not PROVISIONED after 60 seconds; last seen: DREAMING"):
        wait("cluster lkc-1", looks("DREAMING"), {"PROVISIONED"}, deadline_seconds=60, clock=sleepless.clock)


def test_the_deadline_is_kept(sleepless: Sleepless):
    with pytest.raises(TimedOut, match="last seen: not to be seen"):
        wait("it", looks(None), {"READY"}, deadline_seconds=65, every_seconds=20, clock=sleepless.clock)
    assert sleepless.pauses == [20, 20, 20]


def test_a_failure_ends_it_with_its_reason(sleepless: Sleepless):
    with pytest.raises(Failed, match=r"it is FAILED \(because\)"):
        wait("it", looks("PENDING", "FAILED"), {"RUNNING"}, deadline_seconds=60, clock=sleepless.clock)
    assert sleepless.pauses == [10]


def test_an_outage_does_not_end_it(sleepless: Sleepless):
    outage = Unreachable("Confluent Cloud", "there", "the network")
    look = looks("PENDING", outage, outage, "RUNNING")
    assert wait("it", look, {"RUNNING"}, deadline_seconds=60, clock=sleepless.clock)
    with pytest.raises(TimedOut, match="Confluent Cloud does not answer"):
        wait("it", looks("PENDING", outage), {"RUNNING"}, deadline_seconds=60, clock=sleepless.clock)


def test_a_refusal_ends_it(sleepless: Sleepless):
    with pytest.raises(Refused):
        wait("it", looks("PENDING", Refused("no")), {"RUNNING"}, deadline_seconds=60, clock=sleepless.clock)


def test_it_looks_until_it_is_gone(sleepless: Sleepless):
    wait_gone("it", looks("DELETING", "DELETING", None), deadline_seconds=60, clock=sleepless.clock)
    assert sleepless.pauses == [10, 10]
    with pytest.raises(TimedOut, match="it is still there after 60 seconds; last seen: DELETING"):
        wait_gone("it", looks("DELETING"), deadline_seconds=60, clock=sleepless.clock)


def test_a_key_must_be_taken_twice_in_a_row(sleepless: Sleepless):
    no = Refused("401")
    wait_accepted("key", looks(no, "yes", no, "yes", "yes", no), deadline_seconds=60, clock=sleepless.clock)
    assert len(sleepless.pauses) == 4
    with pytest.raises(TimedOut, match="key is not accepted yet after 60 seconds; last seen: 401"):
        wait_accepted("key", looks("yes", no), deadline_seconds=60, clock=sleepless.clock)


def test_a_change_of_unknown_outcome_is_not_a_refusal(sleepless: Sleepless):
    with pytest.raises(OutcomeUnknownError):
        wait_accepted("key", looks(OutcomeUnknownError("lost")), deadline_seconds=60, clock=sleepless.clock)


def test_it_looks_until_it_is_there(sleepless: Sleepless):
    assert wait_there("it", looks(None, None, "NEW"), deadline_seconds=60, clock=sleepless.clock).phase == "NEW"
    assert sleepless.pauses == [10, 10]
    with pytest.raises(TimedOut, match="it is not there after 60 seconds"):
        wait_there("it", looks(None), deadline_seconds=60, clock=sleepless.clock)


def test_what_is_refused_is_tried_until_it_is_allowed(sleepless: Sleepless):
    no = Refused("no role")
    assert when_allowed("it", looks(no, no, "MADE"), deadline_seconds=60, clock=sleepless.clock).phase == "MADE"
    assert sleepless.pauses == [10, 10]
    with pytest.raises(Refused) as refused:
        when_allowed("it", looks(no), deadline_seconds=60, clock=sleepless.clock)
    assert set(refused.value.__notes__) == {"it was tried for 60 seconds"}
    with pytest.raises(OutcomeUnknownError):
        when_allowed("it", looks(OutcomeUnknownError("lost"), "MADE"), deadline_seconds=60, clock=sleepless.clock)
