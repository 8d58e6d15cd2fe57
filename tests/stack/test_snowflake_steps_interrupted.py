"""A deployment's steps in Snowflake, interrupted: killed around every change, answers lost, and what leaks then."""

from __future__ import annotations

import logging
import traceback
from collections.abc import Callable
from typing import Any

import pytest
from rotated_users import Killed, Wire
from snowflake_deployments import Deployed, change, quiet, service_session

from lakehouse.core.errors import LakehouseError
from lakehouse.deploy.planner import create, delete, plan

pytest_plugins = ["snowflake_fixtures", "rotated_users", "snowflake_deployments"]
pytestmark = pytest.mark.stack


def test_killed_around_every_change_it_ends_as_if_nothing_had_happened(
    deployed: Deployed, new: Callable[..., Deployed], wire: Wire
):
    wire.counts = change
    whole, broken = deployed.state(), new()

    def ended_at_each_change(act: Callable[[], None]) -> int:
        """Run it again and again, killed at the first change that was not killed yet: before it arrives, and after.

        Returns how many changes there were.
        """
        killed: set[tuple[str, bool]] = set()
        at, arrives = 1, False
        for _ in range(200):
            try:
                with wire.fault(at, arrives=arrives):
                    act()
            except Killed:
                moment = change(wire.hit), arrives
                at, arrives = (at + 1, arrives) if moment in killed else (1, not arrives)
                killed.add(moment)
                continue
            return len({what for what, _ in killed})
        raise AssertionError(f"never done: {sorted(killed)}")

    assert ended_at_each_change(lambda: create(broken.steps(), quiet)) > 20
    assert broken.state() == whole
    with service_session(broken) as session:
        assert session.cursor().execute("select count(*) from stock_trades").fetchone() == (3,)
    assert ended_at_each_change(lambda: delete(broken.steps(), quiet, delete_data=True)) >= 9
    assert broken.state() == {}


def test_every_answer_is_lost_once_and_nothing_is_made_twice(
    deployed: Deployed, new: Callable[..., Deployed], wire: Wire
):
    whole, broken = deployed.state(), new()
    lost: set[str] = set()

    def for_the_first_time(request: Any) -> bool:
        what = change(request)
        if not what or what in lost:
            return False
        lost.add(what)
        # Each is the first, which has the fault.
        wire.sent = 0
        return True

    wire.counts = for_the_first_time
    with wire.fault(1, kills=False):
        create(broken.steps(), quiet)
        assert len(lost) > 20
        assert broken.state() == whole
        delete(broken.steps(), quiet, delete_data=True)
    assert broken.state() == {}


def test_the_private_key_is_seen_nowhere(
    new: Callable[..., Deployed], caplog: pytest.LogCaptureFixture, capfd: pytest.CaptureFixture[str], wire: Wire
):
    deployed, seen = new(), []
    wire.counts = change
    tell = lambda action: seen.append(f"{action} {action.step!r} {action.why}")  # noqa: E731
    with caplog.at_level(logging.DEBUG):
        for at in range(20, 40):
            try:
                with wire.fault(at):
                    seen.append(repr(create(deployed.steps(), tell)))
                break
            except (Killed, LakehouseError) as error:
                seen.extend(traceback.format_exception(error))
        seen.append(repr(list(plan(deployed.steps()))))
    text = "\n".join([*seen, caplog.text, *capfd.readouterr()])
    lines = deployed.key().splitlines()[1:-2]
    assert len(lines) > 20 and "snowflake/key" in text
    assert [line for line in lines if line in text] == []
