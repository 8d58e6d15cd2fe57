"""Round-robin scheduling, adaptive batch sizes and backoff for a stream of many topics. Pure: times are arguments."""

from collections.abc import Callable, Iterable

MIN_RECORDS = 20_000
"""Minimum bound: a smaller batch is no faster, since beginning and committing it dominate."""

TARGET_SECONDS = 2.0
"""Target duration of a batch, for which other topics wait."""

EVERY_SECONDS = 1.5
"""Minimum time between two batches of a topic, since each commit adds a file and a snapshot."""

FIRST_PAUSE_SECONDS = 1.0
MAX_PAUSE_SECONDS = {True: 30.0, False: 600.0}
"""Maximum backoff of a failed topic, by whether the error is transient."""


def next_bound(bound: int, records: int, seconds: float, most: int) -> int:
    """Return the maximum number of records of a topic's next batch.

    It doubles while full batches are faster than the target, and shrinks in proportion when a batch is slower.

    Args:
        bound: Maximum of the last batch.
        records: Size of the last batch.
        seconds: Duration of the last batch.
        most: Maximum that lakehouse.yaml allows.
    """
    if seconds > TARGET_SECONDS and records > MIN_RECORDS:
        bound = int(records * TARGET_SECONDS / seconds)
    elif seconds <= TARGET_SECONDS and records >= bound:
        bound *= 2
    return min(max(bound, MIN_RECORDS), most)


def backoff_seconds(failures: int, transient: bool) -> float:
    """Return the seconds until the next retry: doubled with each consecutive failure.

    Args:
        failures: Number of consecutive failures.
        transient: Whether the error may pass without a change by an operator.
    """
    return min(FIRST_PAUSE_SECONDS * 2.0 ** min(failures - 1, 20), MAX_PAUSE_SECONDS[transient])


class RoundRobin:
    """A queue of topics: the first that is ready is served, and then goes to the end. Times are in seconds."""

    def __init__(self, topics: Iterable[str] = ()):
        self.queue, self.not_before = list(topics), dict[str, float]()

    def acquire(self, now: float, is_ready: Callable[[str], bool]) -> str | None:
        """Remove and return the next topic; None if none is ready."""
        for topic in self.queue:
            if self.not_before.get(topic, now) <= now and is_ready(topic):
                self.queue.remove(topic)
                return topic
        return None

    def release(self, topic: str, not_before: float) -> None:
        """Append a topic to the queue; it is not served before the given time."""
        self.queue.append(topic)
        self.not_before[topic] = not_before
