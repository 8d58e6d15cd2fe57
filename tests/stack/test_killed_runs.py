"""A run that is killed: Dagster notices, frees its slot and runs it again, and nothing is lost or doubled."""

import os
import signal
import time

import dagster as dg
import pytest
from dagster_stack import DAGSTER, dagster_of
from support import Stream

from lakehouse.local import dagster, probe, process
from lakehouse.local import stack as local_stack

BATCH, BATCHES = 500, 5
HEALED_SECONDS = 180
"""How long it may take from a run's death until the table holds everything."""

LAUNCH = """mutation ($job: ExecutionParams!) { launchRun(executionParams: $job) {
    ... on LaunchRunSuccess { run { runId } } ... on PythonError { message } } }"""


@pytest.fixture(scope="module")
def stream(stack, resources, tmp_path_factory):
    """A topic whose records take many batches, in a Dagster of its own."""
    stream = Stream(resources, settings={"max_records_per_batch": BATCH})
    stream.schema()
    with dagster_of(stream, stack, tmp_path_factory.mktemp("killed")):
        yield stream


@pytest.fixture(scope="module")
def instance(stack, stream):
    """What Dagster has on record."""
    with dg.DagsterInstance.from_config(str(dagster.home_folder(stack))) as instance:
        yield instance


def wait_for(what, seconds):
    """What a function returns once it is true."""
    deadline = time.monotonic() + seconds
    while not (found := what()):
        assert time.monotonic() < deadline, f"not within {seconds} s: {what.__doc__ or what.__name__}"
        time.sleep(0.1)
    return found


def launch(stream):
    """Start a run of the table's asset, as the UI does; returns its id."""
    selector = {
        "repositoryLocationName": dagster.LOCATION,
        "repositoryName": "__repository__",
        "jobName": "__ASSET_JOB",
        "assetSelection": [{"path": ["iceberg", stream.name]}],
    }
    url = f"{os.environ['LAKEHOUSE_UI_URL']}/graphql"
    answer = probe.request_json(url, {"query": LAUNCH, "variables": {"job": {"selector": selector, "mode": "default"}}})
    return answer["data"]["launchRun"]["run"]["runId"]


def worker(instance, run_id):
    """The process number of a run's worker."""
    events = [log.dagster_event for log in instance.all_logs(run_id, of_type=dg.DagsterEventType.ENGINE_EVENT)]
    pids = [event.engine_event_data.metadata["pid"].value for event in events if "pid" in event.engine_event_data.metadata]
    return int(pids[-1])


@pytest.mark.parametrize("also", [(), ("dagster-daemon",), DAGSTER], ids=["worker", "daemon", "everything"])
def test_a_killed_run_heals_by_itself(stack, stream, instance, also):
    before = len(stream.rows())
    stream.produce_trades(range(BATCH * BATCHES))
    run_id = launch(stream)

    def in_the_middle_of_a_batch():
        table = stream.table()
        published = table and table.current_snapshot() and len(stream.rows()) > before
        return published and any(ref.startswith("ingest_") for ref in table.metadata.refs)

    wait_for(in_the_middle_of_a_batch, 180)
    os.kill(worker(instance, run_id), signal.SIGKILL)
    for name in also:
        for one in process.running(stack)[name].processes:
            one.kill()
    died = time.monotonic()
    assert before < len(stream.rows()) < before + BATCH * BATCHES
    local_stack.up(stack, DAGSTER)

    def everything_is_in():
        return len(stream.rows()) >= before + BATCH * BATCHES

    try:
        wait_for(everything_is_in, HEALED_SECONDS)
    finally:
        print("HEALED", time.monotonic() - died)
        for r in instance.get_runs():
            print(r.run_id[:8], r.status, r.tags)
            for log in instance.all_logs(r.run_id):
                if log.dagster_event: print("   ", round(log.timestamp - time.time(), 1), log.dagster_event.event_type_value, log.message[:120])
    assert instance.get_run_by_id(run_id).status == dg.DagsterRunStatus.FAILURE
    assert stream.rows() == stream.expected_rows()
