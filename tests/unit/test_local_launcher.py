"""Health of run workers, as Dagster's run monitoring checks it."""

import os
import subprocess
import sys
import time

import dagster as dg
import pytest
from dagster._core.events import EngineEventData
from dagster._core.launcher import WorkerStatus

from lakehouse.local.dagster.launcher import LocalRunLauncher


@dg.job
def job():
    """Do nothing; only the records of its runs matter."""


@pytest.fixture
def instance(tmp_path):
    launcher = {"module": LocalRunLauncher.__module__, "class": LocalRunLauncher.__name__}
    (tmp_path / "dagster.yaml").write_text(f"telemetry: {{enabled: false}}\nrun_launcher: {launcher}\n")
    with dg.DagsterInstance.from_config(str(tmp_path)) as instance:
        yield instance


def status(instance, *workers):
    """Return the worker status of a run that recorded these process ids in this order."""
    run = instance.create_run_for_job(job)
    for pid in workers:
        instance.report_engine_event("Started process for run", run, EngineEventData.in_process(pid))
    return instance.run_launcher.check_run_worker_health(run).status


@pytest.fixture
def ended_pid():
    """Return the id of a process that has ended and was not waited for."""
    with subprocess.Popen([sys.executable, "-c", ""]) as process:
        os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
        yield process.pid


def test_worker_running_is_running(instance):
    assert status(instance, os.getpid()) == WorkerStatus.RUNNING


def test_worker_without_recorded_pid_is_running(instance):
    assert status(instance) == WorkerStatus.RUNNING


def test_worker_ended_is_not_found(instance, ended_pid):
    assert status(instance, ended_pid) == WorkerStatus.NOT_FOUND


def test_worker_is_first_recorded_process(instance, ended_pid):
    assert status(instance, os.getpid(), ended_pid) == WorkerStatus.RUNNING


def test_worker_with_reused_pid_is_not_found(instance, monkeypatch):
    past = time.time() - 1_000_000
    monkeypatch.setattr(time, "time", lambda: past)
    assert status(instance, os.getpid()) == WorkerStatus.NOT_FOUND
