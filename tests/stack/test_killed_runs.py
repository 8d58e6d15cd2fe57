"""A run that is killed: Dagster notices, frees its slot and runs it again; nothing is lost or doubled."""

import time
from contextlib import suppress

import dagster as dg
import psutil
import pytest
from dagster_stack import DAGSTER, dagster_of
from support import Stream

from lakehouse.local import dagster, process
from lakehouse.local import stack as local_stack

pytestmark = pytest.mark.long

BATCH, RECORDS = 500, 4_000
DIES_TOO = {"nothing": (), "who starts runs": ("dagster-daemon",), "who would notice": DAGSTER}
"""What is killed together with a run's worker."""
PATIENCE_SECONDS = 300
"""How long one step may take on a busy machine. A run that nobody misses would stay for two hours."""


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


def published(stream):
    """How many rows readers see, and whether a batch is on its way."""
    table = stream.table()
    snapshot = table and table.current_snapshot()
    staged = table and any(ref.startswith("ingest_") for ref in table.metadata.refs)
    return int(snapshot.summary["total-records"]) if snapshot else 0, bool(staged)


def writer(instance, stream):
    """The run that has the table's slot, and its worker."""
    [run_id] = instance.event_log_storage.get_concurrency_info(f"iceberg_{stream.topic.table}").active_run_ids
    logs = instance.all_logs(run_id, of_type=dg.DagsterEventType.ENGINE_EVENT)
    pids = [log.dagster_event.engine_event_data.metadata.get("pid") for log in logs]
    return run_id, next(psutil.Process(int(pid.value)) for pid in pids if pid)


def kill(*processes):
    for one in processes:
        with suppress(psutil.NoSuchProcess):
            one.kill()


def test_a_run_killed_in_a_batch_heals_without_anybody(stack, stream, instance):
    def a_run_came_through():
        return instance.get_latest_materialization_event(dg.AssetKey(["iceberg", stream.name]))

    killed = set()
    for servers in DIES_TOO.values():
        before, _ = published(stream)

        def in_the_middle_of_a_batch(before=before):
            rows, staged = published(stream)
            return staged and rows > before

        wait_until(in_the_middle_of_a_batch)
        run_id, worker = writer(instance, stream)
        running = process.running(stack)
        kill(*(member for server in servers for member in running[server].processes), worker)
        assert not a_run_came_through() and published(stream)[0] < RECORDS
        killed.add(run_id)
        local_stack.up(stack, DAGSTER)

    wait_until(a_run_came_through)
    assert [instance.get_run_by_id(run_id).status for run_id in killed] == 3 * [dg.DagsterRunStatus.FAILURE]
    assert stream.rows() == stream.expected_rows()
