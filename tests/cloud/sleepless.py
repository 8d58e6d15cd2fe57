"""A clock that tests need not wait for."""

from __future__ import annotations

from lakehouse.core.polling import Clock


class Sleepless:
    """A clock on which a pause takes no time but counts. `pauses` are the seconds of each."""

    def __init__(self):
        self.pauses: list[float] = []

    @property
    def clock(self) -> Clock:
        """For a plane, or for `wait`."""
        return Clock(now=lambda: sum(self.pauses), sleep=self.pauses.append)
