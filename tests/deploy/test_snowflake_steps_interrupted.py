"""A deployment's resources in Snowflake with kills and lost responses at every change, without leaked secrets."""

from __future__ import annotations

import logging
import traceback
from collections.abc import Callable
from typing import Any

import pytest

from lakehouse.core.errors import LakehouseError
from lakehouse.deploy.planner import apply, destroy, plan
from tests.support.clouds.snowflake.deployments import Deployed, change, quiet, service_session
from tests.support.clouds.snowflake.rotated_users import Killed, Wire

pytestmark = pytest.mark.stack


def test_apply_and_destroy_killed_at_each_change_resume(unchanged: Deployed, new: Callable[..., Deployed], wire: Wire):
    wire.counts = change
    whole, broken = unchanged.state(), new()

    def ended_at_each_change(act: Callable[[], None]) -> int:
        """Repeat an action, killed once before and once after each change.

        Returns:
            The number of changes.
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

    assert ended_at_each_change(lambda: apply(broken.resources(), quiet)) > 20
    assert broken.state() == whole
    with service_session(broken) as session:
        assert session.cursor().execute("select count(*) from stock_trades").fetchone() == (3,)
    assert ended_at_each_change(lambda: destroy(broken.resources(), quiet, delete_data=True)) >= 9
    assert broken.state() == {}


def test_apply_each_response_lost_once_has_no_duplicates(unchanged: Deployed, new: Callable[..., Deployed], wire: Wire):
    whole, broken = unchanged.state(), new()
    lost: set[str] = set()

    def for_the_first_time(request: Any) -> bool:
        what = change(request)
        if not what or what in lost:
            return False
        lost.add(what)
        # Each new change counts as the first request, which has the fault.
        wire.sent = 0
        return True

    wire.counts = for_the_first_time
    with wire.fault(1, kills=False):
        apply(broken.resources(), quiet)
        assert len(lost) > 20
        assert broken.state() == whole
        destroy(broken.resources(), quiet, delete_data=True)
    assert broken.state() == {}


def test_apply_killed_output_contains_no_private_key(
    new: Callable[..., Deployed], caplog: pytest.LogCaptureFixture, capfd: pytest.CaptureFixture[str], wire: Wire
):
    deployed, outputs = new(), []
    wire.counts = change
    report = lambda change: outputs.append(f"{change} {change.resource!r} {change.reason}")  # noqa: E731
    with caplog.at_level(logging.DEBUG):
        for at in range(20, 40):
            try:
                with wire.fault(at):
                    outputs.append(repr(apply(deployed.resources(), report)))
                break
            except (Killed, LakehouseError) as error:
                outputs.extend(traceback.format_exception(error))
        outputs.append(repr(list(plan(deployed.resources()))))
    text = "\n".join([*outputs, caplog.text, *capfd.readouterr()])
    lines = deployed.key().splitlines()[1:-2]
    assert len(lines) > 20 and "snowflake/key" in text
    assert [line for line in lines if line in text] == []
