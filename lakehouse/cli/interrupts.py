"""Acknowledgement of Ctrl-C at once, while the work in progress ends."""

import os
import signal
import sys
from functools import cache
from threading import Thread, current_thread, main_thread

from lakehouse.core.log_entry import LogEntry, is_json

MESSAGE = "Stopping. What is in progress ends first."


@cache
def acknowledge() -> None:
    """Print one line at the first Ctrl-C or SIGTERM, whatever the main thread does.

    Python runs the handler of a signal only between two instructions of the main thread, which may be in a call of a
    library, and libraries replace handlers. The descriptor gets the signal's number before that.
    """
    if current_thread() is not main_thread():
        return  # signals are handled in the main thread only
    reader, writer = os.pipe()
    os.set_blocking(writer, False)
    signal.set_wakeup_fd(writer, warn_on_full_buffer=False)
    Thread(target=_print, args=(reader,), daemon=True).start()


def _print(reader: int) -> None:
    while number := os.read(reader, 1):
        if number[0] in (signal.SIGINT, signal.SIGTERM):
            text = LogEntry(MESSAGE).to_json() if is_json() else f"\n{MESSAGE}"
            os.write(sys.__stderr__.fileno() if sys.__stderr__ else 2, f"{text}\n".encode())
            return
