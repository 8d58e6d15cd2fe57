"""The job `stream` in its own Dagster: its sensor starts it, starts it again after a kill, and a user ends it."""

import os
import time

import dagster as dg
import psutil
import pytest
from dagster_graphql import DagsterGraphQLClient

from assets.streaming.job import JOB
from lakehouse.local.dagster import dagster_servers, ui_login
from lakehouse.local.home import Credentials
from tests.support.faults import oracle
from tests.support.processes.dagster_stack import dagster_of
from tests.support.topics import Stream

pytestmark = pytest.mark.long

TIMEOUT_SECONDS = 300
"""The time limit of a step on a busy machine."""


def wait_until(condition):
    deadline = time.monotonic() + TIMEOUT_SECONDS
    while not (result := condition()):
        assert time.monotonic() < deadline, f"not after {TIMEOUT_SECONDS} s: {condition.__name__}"
        time.sleep(0.2)
    return result


def worker_of(instance, run):
    logs = instance.all_logs(run.run_id, of_type=dg.DagsterEventType.ENGINE_EVENT)
    pids = [log.dagster_event.engine_event_data.metadata.get("pid") for log in logs]
    return next(psutil.Process(int(pid.value)) for pid in pids if pid)


def test_continuous_topic_is_ingested_after_killed_run(stack, resources, tmp_path):
    stream = Stream(resources, settings={"continuous": True})
    stream.produce_trades(range(100))

    with (
        dagster_of(stream, stack, tmp_path),
        dg.DagsterInstance.from_config(str(dagster_servers.home_folder(stack))) as instance,
    ):

        def snowflake_has(rows):
            def has_rows():
                state = resources.snowflake.table_state(stream.namespace, stream.topic.table)
                return state and state.row_count == rows

            return has_rows

        def runs_with(status):
            def run_with_status():
                return instance.get_runs(dg.RunsFilter(job_name=JOB, statuses=[status]))

            return run_with_status

        def is_materialized():
            return instance.get_latest_materialization_event(dg.AssetKey([stream.name, "snowflake"]))

        wait_until(snowflake_has(100))
        [first] = wait_until(runs_with(dg.DagsterRunStatus.STARTED))
        wait_until(is_materialized)
        worker_of(instance, first).kill()
        stream.produce_trades(range(100, 150))
        wait_until(snowflake_has(150))
        assert instance.get_run_by_id(first.run_id).status == dg.DagsterRunStatus.FAILURE

        [second] = wait_until(runs_with(dg.DagsterRunStatus.STARTED))
        host, port = os.environ["LAKEHOUSE_UI_URL"].removeprefix("http://").split(":")
        logged_in = ui_login.bearer(Credentials.of(stack).ui_token)
        DagsterGraphQLClient(host, port_number=int(port), headers=logged_in).terminate_run(second.run_id)
        assert wait_until(runs_with(dg.DagsterRunStatus.CANCELED))[0].run_id == second.run_id

        table = stream.table()
        assert not [ref for ref in table.metadata.refs if ref.startswith("ingest_")]
        oracle.judge(stream)
        # Automation may request checks and the first runs of nightly assets, but none that the stream makes.
        requested = {
            key.path[1]
            for run in instance.get_runs()
            for key in run.asset_selection or ()
            if key.path[0] == stream.name
        }
        assert requested <= {"ledger", "maintenance"}
