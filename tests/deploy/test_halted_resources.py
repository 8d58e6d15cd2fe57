"""Plan and creation of a deployment whose connectors, statements or tables are paused, stopped or being deleted."""

from __future__ import annotations

import re
from collections.abc import Callable

import pytest

from lakehouse.deploy.planner import plan
from lakehouse.deploy.waiting import Failed, TimedOut
from tests.support.clouds.confluent.deployment import SMALL, Lake, actions, inventory

pytestmark = pytest.mark.stack


def pause_connector(lake: Lake) -> None:
    [connector] = lake.vendor.state.connectors.values()
    connector["status"]["connector"]["state"] = "PAUSED"


def fail_connector(lake: Lake) -> None:
    [connector] = lake.vendor.state.connectors.values()
    connector["status"]["connector"] |= {"state": "FAILED", "trace": "out of memory"}


def run_connector(lake: Lake) -> None:
    [connector] = lake.vendor.state.connectors.values()
    connector["status"]["connector"]["state"] = "RUNNING"


def stop_statement(lake: Lake) -> None:
    [statement] = lake.vendor.state.statements.values()
    statement["spec"]["stopped"], statement["status"]["phase"] = True, "STOPPED"


def pause_tableflow(lake: Lake) -> None:
    lake.vendor.state.tableflow_topics[next(iter(lake.vendor.state.tableflow_topics))]["status"]["phase"] = "PAUSED"


def suspend_tableflow(lake: Lake) -> None:
    table = next(iter(lake.vendor.state.tableflow_topics.values()))
    table["spec"]["suspended"], table["status"]["error_message"] = True, "record 7 is not valid"


@pytest.mark.parametrize(
    ("halt", "address", "state", "remedy"),
    [
        (pause_connector, "confluent/connector/stock_trades", "PAUSED", "Resume it"),
        (fail_connector, "confluent/connector/stock_trades", "FAILED (out of memory)", "Remove the cause"),
        (stop_statement, "confluent/statement/totals", "STOPPED", "Resume it"),
        (pause_tableflow, "confluent/tableflow/stock_trades", "PAUSED", "Resume it"),
        (suspend_tableflow, "confluent/tableflow/stock_trades", "SUSPENDED (record 7 is not valid)", "Resume it"),
    ],
)
def test_halted_resource_is_planned_and_stops_create_at_once(
    lake: Lake, halt: Callable[[Lake], None], address: str, state: str, remedy: str
):
    lake.create()
    halt(lake)
    before = inventory(lake.vendor)
    [planned] = [change for change in plan(lake.resources) if change.resource.address == address]
    assert (planned.action, planned.reason) == ("no-op", f"is {state}")
    lake.sleepless.pauses.clear()
    with pytest.raises(Failed, match=rf"is {re.escape(state)}.* left unchanged\. {remedy}") as stopped:
        lake.create()
    assert address in str(stopped.value.__notes__)
    # Each API has to accept its key twice in a row.
    assert sum(lake.sleepless.pauses) < 300 and inventory(lake.vendor) == before


def test_create_statement_being_deleted_is_started_again(lake: Lake):
    lake.create()
    before = inventory(lake.vendor)
    [(key, statement)] = lake.vendor.state.statements.items()
    statement["status"]["phase"] = "DELETING"
    lake.vendor.state.vanish(lake.vendor.state.statements, key)
    assert actions(lake) == {"confluent/statement/totals": "it is DELETING"}
    lake.create()
    assert inventory(lake.vendor) == before and actions(lake) == {}


def test_details_of_sensitive_table_are_hidden(lake: Lake):
    lake.topics = lake.topics | {"stock_trades": lake.topics["stock_trades"] | {"sensitive": ["userid"]}}
    lake.create()
    suspend_tableflow(lake)
    state = "is SUSPENDED (withheld: it may quote values of sensitive columns)"
    assert [change.reason for change in plan(lake.resources) if "SUSPENDED" in change.reason] == [state]
    with pytest.raises(Failed) as stopped:
        lake.create()
    assert state in str(stopped.value) and "record 7" not in repr(lake.reported)


def test_details_of_sensitive_connector_and_statement_are_hidden(lake: Lake):
    lake.topics = SMALL | {"stock_trades": SMALL["stock_trades"] | {"engine": "spark", "sensitive": ["userid"]}}
    lake.create()
    fail_connector(lake)
    stop_statement(lake)
    [statement] = lake.vendor.state.statements.values()
    statement["status"]["detail"] = "cannot cast 'User_7' to INT"
    reasons = {change.resource.address: change.reason for change in plan(lake.resources)}
    withheld = "(withheld: it may quote values of sensitive columns)"
    assert reasons["confluent/connector/stock_trades"] == f"is FAILED {withheld}"
    assert reasons["confluent/statement/totals"] == f"is STOPPED {withheld}"
    for resume in (run_connector, lambda lake: None):
        with pytest.raises(Failed, match=re.escape(withheld)):
            lake.create()
        resume(lake)
    statement["status"]["phase"] = "FAILED"
    assert actions(lake) == {"confluent/statement/totals": f"it is FAILED {withheld}"}


def test_create_stops_soon_at_what_stays_degraded(lake: Lake):
    lake.topics = SMALL
    lake.create()
    [connector] = lake.vendor.state.connectors.values()
    connector["status"]["connector"]["state"] = "DEGRADED"
    connector["status"]["tasks"] = [{"id": 0, "state": "FAILED", "worker_id": "w", "msg": "out of memory"}]
    [statement] = lake.vendor.state.statements.values()
    statement["status"] |= {"phase": "DEGRADED", "detail": "too slow"}
    reasons = [change.reason for change in plan(lake.resources)]
    for state in ("DEGRADED (task 0: out of memory)", "DEGRADED (too slow)"):
        assert f"is {state}" in reasons
        lake.sleepless.pauses.clear()
        with pytest.raises(TimedOut, match=f"last state: {re.escape(state)}"):
            lake.create()
        assert sum(lake.sleepless.pauses) < 600
        run_connector(lake)
    assert "is RUNNING (task 0: out of memory)" in [change.reason for change in plan(lake.resources)]


def test_details_of_failure_have_no_secrets(lake: Lake):
    lake.create()
    [statement] = lake.vendor.state.statements.values()
    statement["status"] |= {"phase": "FAILED", "detail": "sasl.password=hunter2 is wrong"}
    for catalog in lake.vendor.state.catalogs.values():
        catalog["status"] |= {"phase": "FAILED", "error_message": "client_secret: hunter2 is wrong"}
    reasons = [change.reason for change in plan(lake.resources) if "FAILED" in change.reason]
    assert len(reasons) == 2 and "hunter2" not in str(reasons)
