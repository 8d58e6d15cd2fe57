"""Whether a run's worker lives, as Dagster's run monitoring asks it."""

import os
import subprocess
import sys
import time

import dagster as dg
import pytest
from dagster._core.events import EngineEventData
from dagster._core.launcher import WorkerStatus

from lakehouse.local.launcher import LocalRunLauncher


@dg.job
def job():
    """Nothing: only its runs' records matter."""


@pytest.fixture
def instance(tmp_path):
    launcher = {"module": LocalRunLauncher.__module__, "class": LocalRunLauncher.__name__}
    (tmp_path / "dagster.yaml").write_text(f"telemetry: {{enabled: false}}\nrun_launcher: {launcher}\n")
    with dg.DagsterInstance.from_config(str(tmp_path)) as instance:
        yield instance


def status(instance, *workers):
    """Of a run that named these processes, in this order."""
    run = instance.create_run_for_job(job)
    for pid in workers:
        instance.report_engine_event("Started process for run", run, EngineEventData.in_process(pid))
    return instance.run_launcher.check_run_worker_health(run).status


@pytest.fixture
def ended():
    """The number of a process that has ended, and that its parent has not asked about."""
    with subprocess.Popen([sys.executable, "-c", ""]) as process:
        os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
        yield process.pid


def test_a_worker_that_runs_is_left_alone(instance):
    assert status(instance, os.getpid()) == WorkerStatus.RUNNING


def test_a_run_whose_worker_has_not_told_its_number_is_left_alone(instance):
    assert status(instance) == WorkerStatus.RUNNING


def test_a_worker_that_ended_is_found(instance, ended):
    assert status(instance, ended) == WorkerStatus.NOT_FOUND


def test_a_worker_is_the_first_process_that_a_run_names(instance, ended):
    assert status(instance, os.getpid(), ended) == WorkerStatus.RUNNING


def test_a_later_process_of_the_same_number_is_not_the_worker(instance, monkeypatch):
    long_ago = time.time() - 1_000_000
    monkeypatch.setattr(time, "time", lambda: long_ago)
    assert status(instance, os.getpid()) == WorkerStatus.NOT_FOUND
