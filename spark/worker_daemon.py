"""The process that Spark forks Python workers from, as `spark.python.daemon.module`.

Spark starts such a process for each session with Python functions, and keeps it after the session has ended. This one
ends after a while without workers; Spark starts it again when a session needs one. It imports what tasks of lakehouse
use before it forks, so that workers start within milliseconds and share the memory.

Source: PySpark's daemon.py; Spark's PythonWorkerFactory, which repeats a failed connection with a new process.
"""

from __future__ import annotations

import gc
import os
import signal
import sys
from contextlib import suppress
from importlib import import_module
from types import FrameType
from zipimport import zipimporter

from pyspark import daemon

IDLE_SECONDS = 60.0
"""Seconds between examinations for workers. Spark ends a worker that has had no task for a minute."""

IMPORTED = ("pyiceberg.io.pyarrow", "pandas", "lakehouse_native", "spark.native.letters")
"""Modules that workers share. The compiled decoder is optional."""


class _IdleTimer:
    """A timer that ends this process once it has had no child from one tick to the next."""

    def __init__(self, seconds: float):
        self._was_idle = False
        signal.signal(signal.SIGALRM, self._tick)
        signal.setitimer(signal.ITIMER_REAL, seconds, seconds)

    def _tick(self, _number: int, _frame: FrameType | None) -> None:
        is_idle = not _has_children()
        if is_idle and self._was_idle:
            sys.exit(0)
        self._was_idle = is_idle


def _has_children() -> bool:
    try:
        os.waitpid(-1, os.WNOHANG)  # PySpark's daemon ignores SIGCHLD, so none waits to be reaped.
    except ChildProcessError:
        return False
    return True


def _keep(self: zipimporter) -> None:
    """Keep what the importer has read."""


def run(idle_seconds: float = IDLE_SECONDS) -> None:
    """Fork workers on request, until Spark closes the standard input or there were none for a while.

    Args:
        idle_seconds: Seconds between two examinations, both of which find no worker before the process ends.
    """
    for module in IMPORTED:
        with suppress(ImportError):
            import_module(module)
    # Before each task, PySpark asks importers to read again what they cache, and one of an archive, such as that of
    # PySpark itself, reads the list of its files at once: 0.1 s of each task. These archives do not change.
    zipimporter.invalidate_caches = _keep  # type: ignore[method-assign]  # PySpark calls it
    # The collector does not visit these objects, so that workers do not copy their pages.
    gc.freeze()
    _IdleTimer(idle_seconds)
    daemon.manager()


if __name__ == "__main__":
    run()
