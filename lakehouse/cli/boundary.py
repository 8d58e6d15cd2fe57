"""The boundary between errors and the terminal: a short message, and the traceback in a file that the message names."""

from __future__ import annotations

import errno
import logging
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path

import click

from lakehouse.core import errors, log_entry
from lakehouse.core.terminal import echo, traceback_text, visible

MAX_BYTES = 4 * 1024**2
"""Size of the log from which on it begins again."""
MAX_TEXT = 300
"""Maximum number of characters that a message quotes of an unexpected error."""


class _Log(logging.Handler):
    """Writes the stack traces of errors that a command reports in one line, and keeps them off the terminal."""

    file: Path | None = None

    def emit(self, record: logging.LogRecord) -> None:
        self.file = _append(record.getMessage())


@contextmanager
def traces_in_log() -> Iterator[None]:
    """Write stack traces of the body's errors to the log, and name it at the end if there are any.

    With logs as JSON, they are entries on standard error, as are warnings of libraries.
    """
    if log_entry.is_json():
        with _records_as_json():
            yield
        return
    logger, handler = logging.getLogger(errors.__name__), _Log()
    propagates = logger.propagate
    logger.addHandler(handler)
    logger.propagate = False
    try:
        yield
    finally:
        logger.removeHandler(handler)
        logger.propagate = propagates
        if handler.file:
            echo(f"Tracebacks: {handler.file}", err=True)


@contextmanager
def _records_as_json() -> Iterator[None]:
    """Print the body's records of Python's logging on standard error as JSON, with Python's warnings."""
    handler, root = logging.StreamHandler(), logging.getLogger()
    handler.setFormatter(log_entry.JsonFormatter())
    root.addHandler(handler)
    logging.captureWarnings(True)
    try:
        yield
    finally:
        logging.captureWarnings(False)
        root.removeHandler(handler)


def shown(error: click.ClickException, cause: BaseException | None = None) -> click.ClickException:
    """Return the error of a command, which click prints as JSON if logs are.

    Args:
        error: The error that click prints.
        cause: The error that it was made of, if it was; wrong arguments are named by click's own classes.
    """
    if log_entry.is_json():
        kind = type(error if cause is None or isinstance(error, click.UsageError) else cause)
        entry = log_entry.LogEntry(error.format_message(), logging.ERROR, error=kind.__name__)
        vars(error)["show"] = lambda file=None: log_entry.write(entry, err=True)  # noqa: ARG005 (click's signature)
    return error


def to_click(error: Exception, exit_code: int = 1) -> click.ClickException | None:
    """Return the error to be printed in place of another one; None for an error that click reports itself."""
    is_broken_pipe = isinstance(error, OSError) and error.errno == errno.EPIPE
    if is_broken_pipe or isinstance(error, click.ClickException | click.exceptions.Exit | click.Abort):
        return None
    context = click.get_current_context(silent=True)
    root = context.find_root() if context else None
    if root and root.params.get("debug"):
        log_entry.write_traceback(type(error), error, error.__traceback__)
    command = root.invoked_subcommand if root else None
    text = str(error) if isinstance(error, errors.LakehouseError) else _unexpected(error, command or "")
    shown = click.ClickException(visible(text))
    vars(shown)["exit_code"] = exit_code
    return shown


def _unexpected(error: Exception, command: str) -> str:
    """Return the message for an error that this project does not know, after its traceback was logged."""
    text = errors.redact_credentials(str(error).strip().partition("\n")[0])
    quoted = f"{text[:MAX_TEXT]}…" if len(text) > MAX_TEXT else text
    what = f"{type(error).__name__}: {quoted}" if quoted else type(error).__name__
    file = _append(traceback_text(error))
    return (
        f"`lakehouse {command}` stopped with an unexpected error, {what}\nWhat it had published remains, and nothing "
        f"else was published\nThe traceback is in {file}, and `lakehouse --debug {command}` prints it"
    )


def _append(text: str) -> Path:
    """Append a text to the log, which only this user can read, and return the log's path."""
    from lakehouse.local.home import Home  # the log is in the state folder, which `lakehouse init` does not need

    try:
        file = Home.default().folder("logs") / "errors.log"
        if file.exists() and file.stat().st_size > MAX_BYTES:
            file.unlink()
        file.touch(mode=0o600)
    except (OSError, errors.LakehouseError):
        file = Path(tempfile.mkdtemp(prefix="lakehouse-")) / "errors.log"
    with file.open("a", encoding="utf-8") as log:
        log.write(f"{datetime.now(UTC):%Y-%m-%d %H:%M:%S} UTC\n{text}\n")
    return file
