"""Dagster's default run launcher, with a health check of run workers."""

import dagster as dg
import psutil
from dagster._core.launcher import CheckRunHealthResult, DefaultRunLauncher, WorkerStatus

from lakehouse.local.processes import process


class LocalRunLauncher(DefaultRunLauncher):
    """A launcher that detects run workers which ended without reporting it.

    The code server reports the end of its workers. After the code server itself was stopped or killed, nothing does:
    such a run would count as started, and block its table, until its maximum runtime has passed.
    """

    @property
    def supports_check_run_worker_health(self) -> bool:
        return True  # without it, run monitoring does not call `check_run_worker_health`

    def check_run_worker_health(self, run: dg.DagsterRun) -> CheckRunHealthResult:
        worker = self._worker(run)
        # A process that has not logged its id yet may be about to start.
        if worker is None or _is_running(*worker):
            return CheckRunHealthResult(WorkerStatus.RUNNING)
        return CheckRunHealthResult(WorkerStatus.NOT_FOUND, f"its process {worker[0]} has ended")

    def _worker(self, run: dg.DagsterRun) -> tuple[int, float] | None:
        """Return the id of the run's process, and when it was logged (Unix seconds)."""
        for event in self._instance.all_logs(run.run_id, of_type=dg.DagsterEventType.ENGINE_EVENT):
            # The first event is the worker's; those of its child processes follow.
            if pid := event.get_dagster_event().engine_event_data.metadata.get("pid"):
                return int(str(pid.value)), event.timestamp
        return None


def _is_running(pid: int, logged: float) -> bool:
    try:
        worker = psutil.Process(pid)
        # The system reuses process ids: a process younger than the event is not the worker.
        return process.is_alive(worker) and worker.create_time() <= logged
    except psutil.NoSuchProcess:
        return False
