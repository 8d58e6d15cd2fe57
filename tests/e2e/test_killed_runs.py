"""Killed runs: Dagster detects them, frees their slots and retries them; no record is lost or duplicated."""

from contextlib import suppress

import dagster as dg
import psutil
import pytest

from lakehouse.core import polling
from lakehouse.local import stack as local_stack
from lakehouse.local.dagster import dagster_servers
from lakehouse.local.processes import process
from tests.support.processes.dagster_stack import DAGSTER, dagster_of
from tests.support.topics import Stream

pytestmark = pytest.mark.long

BATCH, RECORDS = 500, 4_000
ALSO_KILLED = {"none": (), "daemon": ("dagster-daemon",), "all": DAGSTER}
"""Servers that are killed together with the worker of a run."""
TIMEOUT_SECONDS = 300
"""The time limit of a step on a busy machine. Without detection, a killed run would remain for two hours."""


@pytest.fixture
def stream(stack, resources, tmp_path):
    """Yield a topic whose records take many batches, in its own Dagster, which starts runs automatically."""
    stream = Stream(resources, settings={"max_records_per_batch": BATCH})
    stream.produce_trades(range(RECORDS))
    with dagster_of(stream, stack, tmp_path):
        yield stream


@pytest.fixture
def instance(stack, stream):
    """Yield the instance of Dagster."""
    with dg.DagsterInstance.from_config(str(dagster_servers.home_folder(stack))) as instance:
        yield instance


def wait_until(condition):
    assert polling.poll(condition, pause=0.1, deadline_seconds=TIMEOUT_SECONDS), condition.__name__


def published(stream):
    """Return the number of rows that readers see, and whether a batch is staged."""
    table = stream.table()
    snapshot = table and table.current_snapshot()
    staged = table and any(ref.startswith("ingest_") for ref in table.metadata.refs)
    return int(snapshot.summary["total-records"]) if snapshot else 0, bool(staged)


def writer(instance, stream):
    """Return the run that has the table's slot, and its worker process."""
    [run_id] = instance.event_log_storage.get_concurrency_info(f"iceberg_{stream.topic.table}").active_run_ids
    logs = instance.all_logs(run_id, of_type=dg.DagsterEventType.ENGINE_EVENT)
    pids = [log.dagster_event.engine_event_data.metadata.get("pid") for log in logs]
    return run_id, next(psutil.Process(int(pid.value)) for pid in pids if pid)


def kill(*processes):
    for killed_process in processes:
        with suppress(psutil.NoSuchProcess):
            killed_process.kill()


def test_run_killed_in_batch_is_retried(stack, stream, instance):
    def is_materialized():
        return instance.get_latest_materialization_event(dg.AssetKey([stream.name, "iceberg"]))

    killed = set()
    for servers in ALSO_KILLED.values():
        before, _ = published(stream)

        def is_in_batch(before=before):
            rows, staged = published(stream)
            return staged and rows > before

        wait_until(is_in_batch)
        run_id, worker = writer(instance, stream)
        running = process.running(stack)
        kill(*(member for server in servers for member in running[server].processes), worker)
        assert not is_materialized() and published(stream)[0] < RECORDS
        killed.add(run_id)
        local_stack.up(stack, DAGSTER)

    wait_until(is_materialized)
    assert [instance.get_run_by_id(run_id).status for run_id in killed] == 3 * [dg.DagsterRunStatus.FAILURE]
    assert stream.rows() == stream.expected_rows()
