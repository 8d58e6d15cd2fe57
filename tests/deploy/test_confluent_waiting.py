"""Waiting for a phase, for a deletion, and until a new key is accepted."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import pytest

from lakehouse.core.errors import OutcomeUnknownError, Unreachable
from lakehouse.deploy.confluent.confluent_resource import retry_while_forbidden, wait_until_accepted
from lakehouse.deploy.waiting import Failed, TimedOut, wait, wait_until_deleted, wait_until_visible
from resources.confluent.api_client import Forbidden
from tests.support.sleepless import Sleepless


@dataclass
class Thing:
    phase: str
    detail: str = ""


def looks(*phases: str | None | Exception) -> Callable[[], Any]:
    """Return a function that returns the phases one by one, and then always the last one."""

    def observations() -> Iterator[Any]:
        yield from phases
        while True:
            yield phases[-1]

    source = observations()

    def look() -> Any:
        phase = next(source)
        if isinstance(phase, Exception):
            raise phase
        return phase and Thing(phase, "because")

    return look


def test_wait_polls_until_ready(sleepless: Sleepless):
    look = looks(None, "PROVISIONING", "PROVISIONED")
    assert wait("it", look, {"PROVISIONED"}, deadline_seconds=60, clock=sleepless.clock).phase == "PROVISIONED"
    assert sleepless.pauses == [10, 10]


def test_wait_ready_resource_returns_at_once(sleepless: Sleepless):
    wait("it", looks("RUNNING"), {"RUNNING", "COMPLETED"}, deadline_seconds=0, clock=sleepless.clock)
    assert sleepless.pauses == []


def test_wait_unknown_phase_continues_until_deadline(sleepless: Sleepless):
    look = looks("DREAMING", "PROVISIONED")
    assert wait("it", look, {"PROVISIONED"}, deadline_seconds=60, clock=sleepless.clock)
    with pytest.raises(TimedOut, match=r"cluster lkc-1 is not PROVISIONED after 60 seconds; last state: DREAMING"):
        wait("cluster lkc-1", looks("DREAMING"), {"PROVISIONED"}, deadline_seconds=60, clock=sleepless.clock)


def test_wait_deadline_is_kept(sleepless: Sleepless):
    with pytest.raises(TimedOut, match="last state: not visible"):
        wait("it", looks(None), {"READY"}, deadline_seconds=65, every_seconds=20, clock=sleepless.clock)
    assert sleepless.pauses == [20, 20, 20]


def test_wait_failed_phase_raises_with_reason(sleepless: Sleepless):
    with pytest.raises(Failed, match=r"it is FAILED \(because\)"):
        wait("it", looks("PENDING", "FAILED"), {"RUNNING"}, deadline_seconds=60, clock=sleepless.clock)
    assert sleepless.pauses == [10]


def test_wait_outage_continues(sleepless: Sleepless):
    outage = Unreachable("Confluent Cloud", "there", "the network")
    look = looks("PENDING", outage, outage, "RUNNING")
    assert wait("it", look, {"RUNNING"}, deadline_seconds=60, clock=sleepless.clock)
    with pytest.raises(TimedOut, match="Confluent Cloud does not answer"):
        wait("it", looks("PENDING", outage), {"RUNNING"}, deadline_seconds=60, clock=sleepless.clock)


def test_wait_refusal_raises(sleepless: Sleepless):
    with pytest.raises(Forbidden):
        wait("it", looks("PENDING", Forbidden("no")), {"RUNNING"}, deadline_seconds=60, clock=sleepless.clock)


def test_wait_until_deleted_polls(sleepless: Sleepless):
    wait_until_deleted("it", looks("DELETING", "DELETING", None), deadline_seconds=60, clock=sleepless.clock)
    assert sleepless.pauses == [10, 10]
    with pytest.raises(TimedOut, match="it is not deleted after 60 seconds; last state: DELETING"):
        wait_until_deleted("it", looks("DELETING"), deadline_seconds=60, clock=sleepless.clock)


def test_wait_until_accepted_needs_two_successes_in_a_row(sleepless: Sleepless):
    no = Forbidden("401")
    wait_until_accepted("key", looks(no, "yes", no, "yes", "yes", no), deadline_seconds=60, clock=sleepless.clock)
    assert len(sleepless.pauses) == 4
    with pytest.raises(TimedOut, match="key is not accepted yet after 60 seconds; last state: 401"):
        wait_until_accepted("key", looks("yes", no), deadline_seconds=60, clock=sleepless.clock)


def test_wait_until_accepted_unknown_outcome_raises(sleepless: Sleepless):
    with pytest.raises(OutcomeUnknownError):
        wait_until_accepted("key", looks(OutcomeUnknownError("lost")), deadline_seconds=60, clock=sleepless.clock)


def test_wait_visible_polls_until_created(sleepless: Sleepless):
    assert wait_until_visible("it", looks(None, None, "NEW"), deadline_seconds=60, clock=sleepless.clock).phase == "NEW"
    assert sleepless.pauses == [10, 10]
    with pytest.raises(TimedOut, match="it is not visible after 60 seconds"):
        wait_until_visible("it", looks(None), deadline_seconds=60, clock=sleepless.clock)


def test_retry_while_forbidden_repeats_until_allowed(sleepless: Sleepless):
    no = Forbidden("no role")
    assert (
        retry_while_forbidden("it", looks(no, no, "MADE"), deadline_seconds=60, clock=sleepless.clock).phase == "MADE"
    )
    assert sleepless.pauses == [10, 10]
    with pytest.raises(Forbidden) as refused:
        retry_while_forbidden("it", looks(no), deadline_seconds=60, clock=sleepless.clock)
    assert set(refused.value.__notes__) == {"it was retried for 60 seconds"}
    with pytest.raises(OutcomeUnknownError):
        retry_while_forbidden(
            "it", looks(OutcomeUnknownError("lost"), "MADE"), deadline_seconds=60, clock=sleepless.clock
        )
