"""What automation asks for, tick by tick: no update is lost, no failure is repeated for ever."""

import dagster as dg
import pytest

from assets.automation import on_upstream_change, with_the_asset

KAFKA, ICEBERG, GLUE, SNOWFLAKE = (dg.AssetKey([system, "t"]) for system in ("kafka", "iceberg", "glue", "snowflake"))


class Ticks:
    """A chain as assets/topic.py builds it, a daemon's memory, and runs that do what they are told."""

    def __init__(self, check_condition=None):
        self.fails = False
        self.instance = dg.DagsterInstance.ephemeral()
        self.cursor = None
        self.defs = self._definitions(check_condition)

    def _definitions(self, check_condition):
        @dg.asset(key=KAFKA)
        def kafka(): ...

        @dg.asset(key=ICEBERG, deps=[KAFKA], automation_condition=on_upstream_change())
        def iceberg():
            if self.fails:
                raise dg.Failure("as told")

        @dg.asset(key=GLUE, deps=[ICEBERG], automation_condition=on_upstream_change())
        def glue(): ...

        @dg.asset(key=SNOWFLAKE, deps=[GLUE], automation_condition=on_upstream_change())
        def snowflake(): ...

        @dg.asset_check(asset=GLUE, name="points", blocking=True, automation_condition=check_condition)
        def points():
            return dg.AssetCheckResult(passed=True)

        return dg.Definitions(assets=[kafka, iceberg, glue, snowflake], asset_checks=[points])

    def topic_moves(self):
        self.instance.report_runless_asset_event(dg.AssetMaterialization(KAFKA))

    def tick(self):
        """One evaluation; returns the assets requested."""
        result = dg.evaluate_automation_conditions(self.defs, self.instance, cursor=self.cursor)
        self.cursor = result.cursor
        return [key for key in (ICEBERG, GLUE, SNOWFLAKE) if result.get_num_requested(key)]

    def run(self, assets):
        """Run assets, and their checks, as one run, which plans them, as the daemon's do."""
        job = dg.define_asset_job("run", dg.AssetSelection.assets(*assets))
        defs = dg.Definitions(assets=self.defs.assets, asset_checks=self.defs.asset_checks, jobs=[job])
        defs.resolve_job_def("run").execute_in_process(
            instance=self.instance, raise_on_error=False, asset_selection=list(assets)
        )


def test_one_movement_of_the_topic_runs_the_whole_chain_once():
    ticks = Ticks(with_the_asset())
    assert ticks.tick() == []
    ticks.topic_moves()
    asked = ticks.tick()
    assert asked == [ICEBERG, GLUE, SNOWFLAKE]
    ticks.run(asked)
    assert ticks.tick() == []


def test_a_topic_that_had_data_before_the_first_deployment_is_ingested():
    ticks = Ticks(with_the_asset())
    ticks.topic_moves()
    assert ticks.tick() == [ICEBERG, GLUE, SNOWFLAKE]


@pytest.mark.parametrize("order", ["move run", "run move", "tick move run", "tick run move", "move tick run"])
def test_a_movement_at_any_time_after_the_request_is_not_lost(order):
    ticks = Ticks(with_the_asset())
    ticks.topic_moves()
    asked, asked_again = ticks.tick(), []
    for what in order.split():
        match what:
            case "move":
                ticks.topic_moves()
            case "run":
                ticks.run(asked)
            case "tick":
                asked_again += ticks.tick()
    asked_again += ticks.tick()
    assert ICEBERG in asked_again


def test_a_failed_run_is_tried_once_more_and_then_left():
    ticks = Ticks(with_the_asset())
    ticks.fails = True
    ticks.topic_moves()
    ticks.run(ticks.tick())
    again = ticks.tick()
    assert ICEBERG in again
    ticks.run([ICEBERG])
    assert [ICEBERG in ticks.tick() for _ in range(4)] == [False] * 4


def test_a_blocking_check_that_runs_with_its_asset_lets_the_chain_go_on():
    ticks = Ticks(with_the_asset())
    for _ in range(3):
        ticks.topic_moves()
        asked = ticks.tick()
        assert SNOWFLAKE in asked
        ticks.run(asked)
