"""The log of a run: entries in Dagster and, on request, as JSON with the run's id in the output of its process."""

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace

import dagster as dg

from lakehouse.core.errors import reason
from lakehouse.core.log_entry import IN_PROGRESS, LogEntry, is_json, write

Context = dg.OpExecutionContext | dg.AssetExecutionContext | dg.AssetCheckExecutionContext


def run_log(context: Context) -> Callable[[LogEntry], None]:
    """Return a function that logs an entry in the run of a step."""

    def log(entry: LogEntry) -> None:
        context.log.log(entry.level, entry.message)
        if is_json():
            write(replace(entry, run_id=context.run.run_id))

    return log


@contextmanager
def failures_logged(context: Context, topic: str = "") -> Iterator[None]:
    """Log the error of a step as JSON on request. Dagster logs it as text.

    Args:
        context: The context of the step.
        topic: The topic of the step.
    """
    IN_PROGRESS.set((None, ""))
    try:
        yield
    except Exception as error:
        if is_json():
            batch, phase = IN_PROGRESS.get()
            message = error.description if isinstance(error, dg.Failure) else reason(error)
            kind = type(error.__cause__ if isinstance(error, dg.Failure) and error.__cause__ else error).__name__
            write(LogEntry(message or kind, logging.ERROR, topic, "", batch, phase, kind, context.run.run_id))
        raise
