"""Lag of tables behind their topics, and of readers behind their tables. Pure functions of offsets and times."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from lakehouse.core.errors import LakehouseError
from lakehouse.core.offsets.batch import Positions
from lakehouse.core.text import pluralize

AHEAD_SECONDS = 5
"""Tolerated difference between the clocks of a producer and of this machine."""


UP_TO_DATE = "up to date"


@dataclass(frozen=True)
class Lag:
    """Lag of a table behind its topic, or of a reader behind its table."""

    missing: int
    """Number of offsets that are not ingested yet, or of published snapshots that the reader does not show."""
    seconds: float
    """Age of the oldest of them."""
    unit: Literal["record", "snapshot"] = "record"
    """What `missing` counts."""
    absent: str = ""
    """Description of what does not exist yet, so that nothing can be missing; empty if it exists."""

    def describe(self) -> str:
        """Return the lag as words."""
        if not self.missing:
            return self.absent or UP_TO_DATE
        return f"{pluralize(self.missing, self.unit)} behind, for {self.seconds:,.0f} s"


def pending(start: Positions, end: Positions) -> dict[int, int]:
    """Return the first pending offset of each partition that has any between `start` and `end` (exclusive)."""
    return {p: start[p] for p in end if start[p] < end[p]}


def lag(waiting: Positions, end: Positions, oldest_ms: Mapping[int, int | None], now_ms: int) -> Lag:
    """Return the lag of a table.

    Args:
        waiting: First pending offset by partition, as `pending` returns it.
        oldest_ms: Kafka timestamp in milliseconds of the record at each pending offset; None for transaction markers.
    """
    records = sum(end[p] - position for p, position in waiting.items())
    times = {p: oldest for p in waiting if (oldest := oldest_ms[p]) is not None}
    for partition, oldest in times.items():
        if (ahead := oldest - now_ms) > AHEAD_SECONDS * 1000:
            raise LakehouseError(
                f"The oldest pending record of partition {partition}, at offset {waiting[partition]} or later, has a "
                f"timestamp {ahead / 1000:,.0f} s in the future. Its lag is unknown. Correct the producer's clock, or "
                f"set message.timestamp.type=LogAppendTime on the topic"
            )
    return Lag(records, max(0.0, (now_ms - min(times.values())) / 1000) if times else 0.0)


def snapshots_behind(commits: Sequence[tuple[int, int]], shown: int | None, now_ms: int) -> Lag | None:
    """Return the lag of a reader behind main; None if its snapshot is not in main's history.

    Args:
        commits: Main's (snapshot id, commit time in milliseconds), newest first.
        shown: Snapshot that the reader shows; None for a reader without a table.
    """
    ids = [snapshot_id for snapshot_id, _ in commits]
    if shown is not None and shown not in ids:
        return None
    missing = len(ids) if shown is None else ids.index(shown)
    seconds = max(0.0, (now_ms - commits[missing - 1][1]) / 1000) if missing else 0.0
    return Lag(missing, seconds, "snapshot", "" if commits else "nothing is published yet")
