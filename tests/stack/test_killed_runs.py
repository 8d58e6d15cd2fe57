"""A run that is killed: Dagster notices, frees its slot and runs it again; nothing is lost or doubled."""

import os
import signal
import time

import dagster as dg
import pytest
from dagster_stack import DAGSTER, dagster_of
from support import Stream

from lakehouse.local import dagster, process
from lakehouse.local import stack as local_stack

FINISHED = (dg.DagsterRunStatus.SUCCESS, dg.DagsterRunStatus.FAILURE, dg.DagsterRunStatus.CANCELED)
BATCH, RECORDS = 500, 6_000
PATIENCE_SECONDS = 180
"""How long each step may take on a machine with other work; a stuck run would stay for hours."""
UNFINISHED = dg.RunsFilter(statuses=[*set(dg.DagsterRunStatus) - {*FINISHED}])


@pytest.fixture
def stream(stack, resources, tmp_path):
    """A topic whose records take many batches, in a Dagster of its own, which starts on them by itself."""
    stream = Stream(resources, settings={"max_records_per_batch": BATCH})
    stream.produce_trades(range(RECORDS))
    with dagster_of(stream, stack, tmp_path):
        yield stream


@pytest.fixture
def instance(stack, stream):
    """What Dagster has on record."""
    with dg.DagsterInstance.from_config(str(dagster.home_folder(stack))) as instance:
        yield instance


def wait_until(met):
    deadline = time.monotonic() + PATIENCE_SECONDS
    while not met():
        assert time.monotonic() < deadline, f"not after {PATIENCE_SECONDS} s: {met.__name__}"
        time.sleep(0.1)


def published(table):
    """How many rows readers see."""
    return int(table.current_snapshot().summary["total-records"]) if table and table.current_snapshot() else 0


def writer(instance, stream):
    """The run that has the table's slot, and the process number of its worker."""
    [run_id] = instance.event_log_storage.get_concurrency_info(f"iceberg_{stream.topic.table}").active_run_ids
    logs = instance.all_logs(run_id, of_type=dg.DagsterEventType.ENGINE_EVENT)
    pids = [log.dagster_event.engine_event_data.metadata.get("pid") for log in logs]
    return run_id, next(int(pid.value) for pid in pids if pid)


def test_a_run_killed_in_a_batch_heals_without_anybody(stack, stream, instance):
    killed = []
    # With the worker dies: nothing else; who would start it again; who would notice, too.
    for name, with_it in {"worker": (), "daemon": ("dagster-daemon",), "all": DAGSTER}.items():
        before = published(stream.table())

        def in_the_middle_of_a_batch(before=before):
            table = stream.table()
            return published(table) > before and any(ref.startswith("ingest_") for ref in table.metadata.refs)

        wait_until(in_the_middle_of_a_batch)
        run_id, worker = writer(instance, stream)
        for server in with_it:
            for member in process.running(stack)[server].processes:
                member.kill()
        if name != "all":
            os.kill(worker, signal.SIGKILL)
        print(name, time.ctime())
        killed.append(run_id)
        assert before < published(stream.table()) < RECORDS
        local_stack.up(stack, DAGSTER)
        print("up", time.ctime())

    def everything_in_and_quiet():
        return published(stream.table()) == RECORDS and not instance.get_runs(filters=UNFINISHED)

    try:
        wait_until(everything_in_and_quiet)
        print("quiet", time.ctime())
    finally:
        for r in reversed(instance.get_runs()):
            print(r.run_id[:8], r.status, r.tags)
            for log in instance.all_logs(r.run_id):
                if log.dagster_event and "PLANNED" not in log.dagster_event.event_type_value:
                    print(
                        "   ",
                        time.ctime(log.timestamp),
                        log.dagster_event.event_type_value,
                        log.dagster_event.step_key,
                        log.dagster_event.message[:200],
                    )
    assert stream.rows() == stream.expected_rows()
    assert {instance.get_run_by_id(run_id).status for run_id in killed} == {dg.DagsterRunStatus.FAILURE}
