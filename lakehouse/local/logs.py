"""The logs of the servers, and `python -m lakehouse.local.logs FOLDER`, which keeps them small while servers write.

A server writes to a file that `up` opened, long after `up` has ended. So nobody can give it another file: a log that is
too long is copied, and then emptied in place. That works because it is opened to append. What a server writes between
the two is lost.
"""

from __future__ import annotations

import contextlib
import shutil
import sys
from pathlib import Path

from lakehouse.core import polling

MAX_BYTES = 10 * 1024 * 1024
"""Length at which a log is set aside."""
COPIES = 2
"""Logs of a server that are kept besides the one it writes."""
INTERVAL_SECONDS = 2.0


def set_aside(log: Path) -> None:
    """Make room for a new log of a server that does not run."""
    if log.exists():
        _shift(log)
        log.rename(_copy(log, 1))


def shorten(folder: Path) -> None:
    """Set aside the content of each log in a folder that has become too long, while its server writes it."""
    for log in folder.glob("*.log"):
        with contextlib.suppress(FileNotFoundError):  # its server starts again just now
            if log.stat().st_size > MAX_BYTES:
                _shift(log)
                _move_content(log, _copy(log, 1))


def _move_content(log: Path, copy: Path) -> None:
    try:
        shutil.copyfile(log, copy)
        copy.chmod(0o600)
    except OSError:  # such as a full disk, which needs the space all the more
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
