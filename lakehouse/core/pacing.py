"""Whose turn it is in a stream of many topics, and how much of a topic a turn may take. Pure: times are given."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

LEAST_RECORDS = 20_000
"""A smaller batch takes as long: most of it is spent on beginning and committing it."""

TARGET_SECONDS = 2.0
"""What a batch should take: so long the other topics wait."""

EVERY_SECONDS = 2.0
"""A topic's turns begin so far apart: each commit leaves a file and a snapshot."""

FIRST_PAUSE_SECONDS = 1.0
LONGEST_PAUSE_SECONDS = {True: 30.0, False: 600.0}
"""The longest pause of a topic that failed: where a system is waited for (True), and where somebody has to mend it."""


def next_bound(bound: int, taken: int, seconds: float, most: int) -> int:
    """How many records the next batch of a topic may take.

    It doubles while batches that take all they may are quicker than the target, and shrinks in proportion when a batch
    is slower.

    Parameters: `bound` is what the last batch could take, `taken` what it took and `seconds` how long; `most` is what
    lakehouse.yaml allows.
    """
    if seconds > TARGET_SECONDS and taken > LEAST_RECORDS:
        bound = int(taken * TARGET_SECONDS / seconds)
    elif seconds <= TARGET_SECONDS and taken >= bound:
        bound *= 2
    return min(max(bound, LEAST_RECORDS), most)


def pause(failures: int, transient: bool) -> float:
    """Seconds until a topic is tried again: doubled with each failure in a row.

    Parameters: `transient` says that a system is waited for, and that nobody has to change anything.
    """
    return min(FIRST_PAUSE_SECONDS * 2.0 ** min(failures - 1, 20), LONGEST_PAUSE_SECONDS[transient])


@dataclass
class Turns:
    """Topics in a row: the first that can be served is, and goes to the end of the row. Times are in seconds."""

    row: list[str]
    not_before: dict[str, float] = field(default_factory=dict)

    def __init__(self, topics: Iterable[str]):
        self.row, self.not_before = list(topics), {}

    def take(self, now: float, is_ready: Callable[[str], bool]) -> str | None:
        """The topic whose turn it is, which leaves the row; None when nobody can be served."""
        for topic in self.row:
            if self.not_before.get(topic, now) <= now and is_ready(topic):
                self.row.remove(topic)
                return topic
        return None

    def give_back(self, topic: str, not_before: float) -> None:
        """Put a topic to the end of the row; it is not served before that time."""
        self.row.append(topic)
        self.not_before[topic] = not_before
