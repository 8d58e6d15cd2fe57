"""Rotation of the servers' logs, also by `python -m lakehouse.local.processes.logs FOLDER`, while the servers write.

A server writes to a file that `up` opened, and cannot be switched to another file. So a log that is too long is copied
and then truncated, which works because it was opened in append mode. Lines written between copy and truncation are
lost.
"""

import contextlib
import shutil
import sys
from pathlib import Path

from lakehouse.core import polling

MAX_BYTES = 10 * 1024 * 1024
"""Length above which a log is rotated."""
COPIES = 2
"""Number of rotated logs that are kept per server."""
INTERVAL_SECONDS = 2.0


def set_aside(log: Path) -> None:
    """Rotate the log of a server that does not run."""
    if log.exists():
        _shift(log)
        log.rename(_copy(log, 1))


def shorten(folder: Path) -> None:
    """Rotate the logs in a folder that have become too long, while their servers write."""
    for log in folder.glob("*.log"):
        with contextlib.suppress(FileNotFoundError):  # `set_aside` moved it, because its server restarts
            if log.stat().st_size > MAX_BYTES:
                _shift(log)
                _move_content(log, _copy(log, 1))


def _move_content(log: Path, copy: Path) -> None:
    try:
        shutil.copyfile(log, copy)
        copy.chmod(0o600)
    except OSError:  # for example a full disk: truncate nevertheless, which frees space
        copy.unlink(missing_ok=True)
    with log.open("r+b") as file:
        file.truncate()


def _shift(log: Path) -> None:
    for number in range(COPIES, 1, -1):
        with contextlib.suppress(FileNotFoundError):
            _copy(log, number - 1).replace(_copy(log, number))


def _copy(log: Path, number: int) -> Path:
    return log.with_name(f"{log.name}.{number}")


if __name__ == "__main__":
    polling.poll(lambda: shorten(Path(sys.argv[1])), pause=INTERVAL_SECONDS)
