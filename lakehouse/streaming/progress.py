"""The times at which the threads of a stream last made progress."""

import threading
import time


class Progress:
    """The times at which threads last made progress: began another phase of their work, or looked for work."""

    def __init__(self) -> None:
        self._times: dict[str, float] = {}

    def report(self, *_: object) -> None:
        """Record progress of the calling thread. The arguments are ignored, so that this is a callback of phases."""
        self._times[threading.current_thread().name] = time.monotonic()

    def end(self) -> None:
        """Forget the calling thread, whose work is done."""
        self._times.pop(threading.current_thread().name, None)

    def idle_seconds(self) -> dict[str, float]:
        """Return the seconds since the last progress of each thread, by its name."""
        now = time.monotonic()
        return {name: now - reported for name, reported in [*self._times.items()]}
