"""Entries of logs, as text or, on request, as JSON with fields by which a collector of logs selects them."""

import json
import logging
import os
import sys
from contextvars import ContextVar
from dataclasses import dataclass
from datetime import UTC, datetime
from types import TracebackType

from lakehouse.core.errors import redact_credentials
from lakehouse.core.offsets.batch import Batch
from lakehouse.core.terminal import echo, traceback_text

FORMAT = "LAKEHOUSE_LOG_FORMAT"
"""The variable that requests JSON, which processes that a command starts inherit."""

IN_PROGRESS: ContextVar[tuple[Batch | None, str]] = ContextVar("batch", default=(None, ""))
"""The batch that this thread works on and the phase that began last, for the entry about its failure."""


@dataclass(frozen=True)
class LogEntry:
    """One entry. Fields that are empty are not in its JSON."""

    message: str
    level: int = logging.INFO
    topic: str = ""
    reader: str = ""
    """The reader of a publication, such as `glue`."""
    batch: Batch | None = None
    phase: str = ""
    """The phase of the batch that began last."""
    error: str = ""
    """The class of the error."""
    run_id: str = ""
    """The id of Dagster's run."""

    def to_json(self) -> str:
        """Return one line of JSON with the present time, without credentials of URLs.

        `batch` has the first offset and the end offset (exclusive) of each partition with records.
        """
        offsets = {p: [self.batch.start[p], end] for p, end in self.batch.end.items()} if self.batch else {}
        fields = {
            "time": datetime.now(UTC).isoformat(timespec="milliseconds"),
            "level": logging.getLevelName(self.level),
            "message": redact_credentials(self.message),
            "topic": self.topic,
            "reader": self.reader,
            "batch": {str(p): [start, end] for p, (start, end) in sorted(offsets.items()) if start < end},
            "phase": self.phase,
            "error": self.error,
            "run_id": self.run_id,
        }
        return json.dumps({name: value for name, value in fields.items() if value}, ensure_ascii=False)


class JsonFormatter(logging.Formatter):
    """Formats records of Python's logging, such as warnings of libraries, as entries."""

    def format(self, record: logging.LogRecord) -> str:
        """Return one line of JSON. Of an error only the class is shown, because its text may quote a row."""
        error = record.exc_info[0].__name__ if record.exc_info and record.exc_info[0] else getattr(record, "error", "")
        return LogEntry(record.getMessage(), record.levelno, error=error).to_json()


def is_json() -> bool:
    """Return whether logs are requested as JSON."""
    return os.environ.get(FORMAT) == "json"


def write_traceback(type_: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:  # noqa: ARG001 (the signature of `sys.excepthook`)
    """Print an unexpected error with its traceback, as Python does or as an entry: for `sys.excepthook`."""
    text = traceback_text(error)
    if is_json():
        write(LogEntry(text, logging.ERROR, error=type_.__name__), err=True)
    else:
        sys.stderr.write(text)


def write(entry: LogEntry, *, err: bool = False) -> None:
    """Print an entry as text or as JSON.

    Args:
        entry: The entry.
        err: Whether to print on standard error instead of standard output.
    """
    echo(entry.to_json() if is_json() else entry.message, err=err)
