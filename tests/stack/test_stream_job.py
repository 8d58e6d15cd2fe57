"""The job `stream` in a Dagster of its own: started by its sensor, again when it was killed, and ended by a person."""

import os
import time

import dagster as dg
import oracle
import psutil
import pytest
from dagster_graphql import DagsterGraphQLClient
from dagster_stack import dagster_of
from support import Stream

from assets.streaming.job import JOB
from lakehouse.local import dagster, ui_login
from lakehouse.local.credentials import Credentials

pytestmark = pytest.mark.long

PATIENCE_SECONDS = 300
"""How long one step may take on a busy machine."""


def wait_until(met):
    deadline = time.monotonic() + PATIENCE_SECONDS
    while not (found := met()):
        assert time.monotonic() < deadline, f"not after {PATIENCE_SECONDS} s: {met.__name__}"
        time.sleep(0.2)
    return found


def worker_of(instance, run):
    logs = instance.all_logs(run.run_id, of_type=dg.DagsterEventType.ENGINE_EVENT)
    pids = [log.dagster_event.engine_event_data.metadata.get("pid") for log in logs]
    return next(psutil.Process(int(pid.value)) for pid in pids if pid)


def test_a_continuous_topic_is_taken_by_itself_whoever_kills_the_run(stack, resources, tmp_path):
    stream = Stream(resources, settings={"continuous": True})
    stream.produce_trades(range(100))

    with dagster_of(stream, stack, tmp_path), dg.DagsterInstance.from_config(str(dagster.home_folder(stack))) as there:

        def shown(rows):
            def so_many_rows_in_snowflake():
                state = resources.snowflake.table_state(stream.namespace, stream.topic.table)
                return state and state.row_count == rows

            return so_many_rows_in_snowflake

        def of(status):
            def a_run_with_that_status():
                return there.get_runs(dg.RunsFilter(job_name=JOB, statuses=[status]))

            return a_run_with_that_status

        def reported():
            return there.get_latest_materialization_event(dg.AssetKey(["snowflake", stream.name]))

        wait_until(shown(100))
        [first] = wait_until(of(dg.DagsterRunStatus.STARTED))
        wait_until(reported)
        worker_of(there, first).kill()
        stream.produce_trades(range(100, 150))
        wait_until(shown(150))
        assert there.get_run_by_id(first.run_id).status == dg.DagsterRunStatus.FAILURE

        [second] = wait_until(of(dg.DagsterRunStatus.STARTED))
        host, port = os.environ["LAKEHOUSE_UI_URL"].removeprefix("http://").split(":")
        logged_in = ui_login.bearer(Credentials.of(stack).ui_token)
        DagsterGraphQLClient(host, port_number=int(port), headers=logged_in).terminate_run(second.run_id)
        assert wait_until(of(dg.DagsterRunStatus.CANCELED))[0].run_id == second.run_id

        table = stream.table()
        assert not [ref for ref in table.metadata.refs if ref.startswith("ingest_")]
        oracle.judge(stream)
        # Whatever the automation was told, it ran checks, and none of the assets.
        assert not [key for run in there.get_runs() for key in run.asset_selection or ()]
