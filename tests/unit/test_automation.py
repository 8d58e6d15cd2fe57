"""Automation conditions, tick by tick: no update is lost, and no failure is retried forever."""

from datetime import UTC, datetime

import dagster as dg
import pytest

from assets.entry import hourly_until_passed, on_upstream_change, when_missing, with_the_asset

SYSTEMS = ("kafka", "iceberg", "glue", "snowflake", "ledger")
KAFKA, ICEBERG, GLUE, SNOWFLAKE, LEDGER = (dg.AssetKey(["t", system]) for system in SYSTEMS)
CHAIN = [ICEBERG, GLUE, SNOWFLAKE]
"""The assets that each change of the topic updates."""


class Ticks:
    """An asset chain as assets/topics/topic_chain.py builds it, with the cursor of the daemon and failing runs."""

    def __init__(self, check_condition=None):
        self.fails = False
        self.ledger_fails = self.ticks_during_run = False
        self.instance = dg.DagsterInstance.ephemeral()
        self.cursor = None
        self.defs = self._definitions(check_condition)

    def _definitions(self, check_condition):
        @dg.asset(key=KAFKA)
        def kafka(): ...

        @dg.asset(key=ICEBERG, deps=[KAFKA], automation_condition=on_upstream_change())
        def iceberg():
            if self.ticks_during_run:
                self.tick()
            if self.fails:
                raise dg.Failure("on demand")

        @dg.asset(key=GLUE, deps=[ICEBERG], automation_condition=on_upstream_change())
        def glue(): ...

        @dg.asset(key=SNOWFLAKE, deps=[GLUE], automation_condition=on_upstream_change())
        def snowflake(): ...

        @dg.asset(key=LEDGER, deps=[ICEBERG], automation_condition=when_missing())
        def ledger():
            if self.ticks_during_run:
                self.tick()
            if self.ledger_fails:
                raise dg.Failure("on demand")

        @dg.asset_check(asset=GLUE, name="points", blocking=True, automation_condition=check_condition)
        def points():
            return dg.AssetCheckResult(passed=True)

        return dg.Definitions(assets=[kafka, iceberg, glue, snowflake, ledger], asset_checks=[points])

    def add_records(self):
        self.instance.report_runless_asset_event(dg.AssetMaterialization(KAFKA))

    def tick(self):
        """Evaluate the conditions once and return the requested assets."""
        result = dg.evaluate_automation_conditions(self.defs, self.instance, cursor=self.cursor)
        self.cursor = result.cursor
        return [key for key in [*CHAIN, LEDGER] if result.get_num_requested(key)]

    def run(self, assets):
        """Run assets and their checks in one run that plans them, as the daemon does."""
        job = dg.define_asset_job("run", dg.AssetSelection.assets(*assets))
        defs = dg.Definitions(assets=self.defs.assets, asset_checks=self.defs.asset_checks, jobs=[job])
        defs.resolve_job_def("run").execute_in_process(
            instance=self.instance, raise_on_error=False, asset_selection=list(assets)
        )


def test_topic_update_runs_whole_chain_once():
    ticks = Ticks(with_the_asset())
    assert ticks.tick() == []
    ticks.add_records()
    requested = ticks.tick()
    assert requested == [*CHAIN, LEDGER]
    ticks.run(requested)
    assert ticks.tick() == []
    ticks.add_records()
    assert ticks.tick() == CHAIN


def test_topic_with_data_before_deployment_is_ingested():
    ticks = Ticks(with_the_asset())
    ticks.add_records()
    assert ticks.tick() == [*CHAIN, LEDGER]


def test_ledger_of_table_before_deployment_runs_once():
    ticks = Ticks(with_the_asset())
    for key in (KAFKA, *CHAIN):
        ticks.instance.report_runless_asset_event(dg.AssetMaterialization(key))
    assert ticks.tick().count(LEDGER) == 1
    ticks.run([LEDGER])
    assert [LEDGER in ticks.tick() for _ in range(4)] == [False] * 4


def test_first_run_of_ledger_is_requested_once_during_ticks():
    ticks = Ticks(with_the_asset())
    ticks.ticks_during_run = True
    ticks.add_records()
    ticks.run(ticks.tick())
    assert [LEDGER in ticks.tick() for _ in range(4)] == [False] * 4


def test_failed_first_run_of_ledger_is_left_to_the_night():
    ticks = Ticks(with_the_asset())
    ticks.ledger_fails = True
    ticks.add_records()
    ticks.run(ticks.tick())
    assert [LEDGER in ticks.tick() for _ in range(4)] == [False] * 4


@pytest.mark.parametrize("order", ["move run", "run move", "tick move run", "tick run move", "move tick run"])
def test_topic_update_after_request_is_not_lost(order):
    ticks = Ticks(with_the_asset())
    ticks.add_records()
    requested, requested_later = ticks.tick(), []
    for step in order.split():
        match step:
            case "move":
                ticks.add_records()
            case "run":
                ticks.run(requested)
            case "tick":
                requested_later += ticks.tick()
    requested_later += ticks.tick()
    assert ICEBERG in requested_later


def test_failed_run_is_retried_once():
    ticks = Ticks(with_the_asset())
    ticks.fails = True
    ticks.add_records()
    ticks.run(ticks.tick())
    again = ticks.tick()
    assert ICEBERG in again
    ticks.run([ICEBERG])
    assert [ICEBERG in ticks.tick() for _ in range(4)] == [False] * 4


def test_blocking_check_run_with_asset_does_not_block_chain():
    ticks = Ticks(with_the_asset())
    for _ in range(3):
        ticks.add_records()
        requested = ticks.tick()
        assert SNOWFLAKE in requested
        ticks.run(requested)


def test_hourly_check_is_not_repeated_for_an_idle_table():
    verdicts = [True, False, True]

    @dg.asset
    def table(): ...

    @dg.asset_check(asset=table, name="counts", automation_condition=hourly_until_passed())
    def counts():
        return dg.AssetCheckResult(passed=verdicts.pop(0))

    check, cursor = dg.AssetCheckKey(table.key, "counts"), None
    job = dg.define_asset_job("check", dg.AssetSelection.checks(check))
    defs = dg.Definitions([table], asset_checks=[counts], jobs=[job])
    requested = []
    with dg.DagsterInstance.ephemeral() as instance:
        for hour, has_records in enumerate([True, False, False, True, False, False, False]):
            if has_records:
                instance.report_runless_asset_event(dg.AssetMaterialization(table.key))
            at = datetime(2026, 7, 1, hour, 20, tzinfo=UTC)
            result = dg.evaluate_automation_conditions(defs, instance, cursor=cursor, evaluation_time=at)
            cursor = result.cursor
            if result.total_requested:
                requested.append(hour)
                defs.resolve_job_def("check").execute_in_process(instance=instance)
    # The first tick has no earlier one. The check of hour 3 fails, and is repeated.
    assert requested == [1, 3, 4]
