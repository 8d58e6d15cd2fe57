"""A clock whose pauses take no time."""

from __future__ import annotations

from lakehouse.core.polling import Clock


class Sleepless:
    """A source of clocks whose pauses take no time. `pauses` are their lengths in seconds."""

    def __init__(self):
        self.pauses: list[float] = []

    @property
    def clock(self) -> Clock:
        """A clock that is advanced by its pauses only."""
        return Clock(now=lambda: sum(self.pauses), sleep=self.pauses.append)
