"""Dagster's launcher of runs, which also knows whether a run's worker still lives."""

from __future__ import annotations

import dagster as dg
import psutil
from dagster._core.launcher import CheckRunHealthResult, DefaultRunLauncher, WorkerStatus

from lakehouse.local import process


class LocalRunLauncher(DefaultRunLauncher):
    """Finds the runs whose worker ended without a word.

    The code server reports those of its own workers, and nobody reports them once it was stopped or killed itself: such
    a run would count as started, and keep its table waiting, until its maximal runtime is over.
    """

    @property
    def supports_check_run_worker_health(self) -> bool:
        """Run monitoring asks `check_run_worker_health` only then."""
        return True

    def check_run_worker_health(self, run: dg.DagsterRun) -> CheckRunHealthResult:
        """Whether the process that executes the run is there, or has not told its number yet."""
        found = self._worker(run)
        if found is None or _lives(*found):
            return CheckRunHealthResult(WorkerStatus.RUNNING)
        return CheckRunHealthResult(WorkerStatus.NOT_FOUND, f"its process {found[0]} has ended")

    def _worker(self, run: dg.DagsterRun) -> tuple[int, float] | None:
        """The run's process, and when it said so (Unix seconds)."""
        for event in self._instance.all_logs(run.run_id, of_type=dg.DagsterEventType.ENGINE_EVENT):
            # The first is the worker's: what it starts comes later.
            if pid := event.get_dagster_event().engine_event_data.metadata.get("pid"):
                return int(str(pid.value)), event.timestamp
        return None


def _lives(pid: int, told: float) -> bool:
    try:
        worker = psutil.Process(pid)
        # A process that is younger than what it told has the number of one that ended.
        return process.is_alive(worker) and worker.create_time() <= told
    except psutil.NoSuchProcess:
        return False
