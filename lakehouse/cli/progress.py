"""A line on the terminal that names what a silent command waits for."""

import os
import shutil
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, TextIO

from lakehouse.core.terminal import visible
from lakehouse.core.waiting import awaited

SILENT_SECONDS = 2.0
"""Silence after which the line appears."""
REFRESH_SECONDS = 0.5
ERASE = "\r\x1b[2K"
"""Control Sequence of ECMA-48 that erases the line."""


@contextmanager
def shown() -> Iterator[None]:
    """Show what the body waits for whenever it is silent, until it prints again.

    Without a terminal, and with --json, nothing is shown: logs and programs read the output alone.
    """
    is_terminal = sys.stdout.isatty() and sys.stderr.isatty() and os.environ.get("TERM") != "dumb"
    if not is_terminal or "--json" in sys.argv:
        yield
        return
    line = _Line(sys.stderr)
    streams = sys.stdout, sys.stderr
    sys.stdout, sys.stderr = (_Erasing(stream, line) for stream in streams)
    thread = threading.Thread(target=line.run, name="progress", daemon=True)
    thread.start()
    try:
        yield
    finally:
        line.ended.set()
        thread.join()
        sys.stdout, sys.stderr = streams


class _Line:
    """The line, which is erased before anything else is printed."""

    def __init__(self, stream: TextIO) -> None:
        self.ended = threading.Event()
        self._stream = stream
        self._lock = threading.RLock()
        self._printed_at = time.monotonic()
        self._is_shown = False

    def run(self) -> None:
        """Show the line while nothing is printed, until the command ends."""
        while not self.ended.wait(REFRESH_SECONDS):
            with self._lock:
                seconds = time.monotonic() - self._printed_at
                if seconds >= SILENT_SECONDS:
                    what = f"Waiting for {awaited()}" if awaited() else "Working"
                    text = visible(f"{what} … {seconds:.0f} s")[: shutil.get_terminal_size().columns - 1]
                    self._stream.write(f"{ERASE}{text}")
                    self._stream.flush()
                    self._is_shown = True
        self.erase()

    def erase(self) -> None:
        """Erase the line. Silence begins again."""
        with self._lock:
            if self._is_shown:
                self._stream.write(ERASE)
                self._stream.flush()
            self._is_shown, self._printed_at = False, time.monotonic()


class _Erasing:
    """A stream that erases the line before it writes."""

    def __init__(self, stream: TextIO, line: _Line) -> None:
        self._stream, self._line = stream, line

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)

    def write(self, text: str) -> int:
        """Write a text."""
        self._line.erase()
        return self._stream.write(text)
