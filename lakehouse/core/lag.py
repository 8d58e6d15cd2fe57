"""How far behind each hop is. Pure: offsets and times in, lag out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from lakehouse.core.batch import Positions
from lakehouse.core.errors import LakehouseError
from lakehouse.core.words import counted

AHEAD_SECONDS = 5
"""By so much the clocks of a producer and of this machine may differ before it matters."""


@dataclass(frozen=True)
class Lag:
    """What a table has not taken yet. `records` counts offsets; `seconds` is how long the oldest of them has waited;
    `nothing` says that there is no topic to take them from yet."""

    records: int
    seconds: float
    nothing: bool = False

    def said(self) -> str:
        """The lag as words."""
        if self.nothing:
            return "the topic does not exist yet"
        if not self.records:
            return "has every record"
        return f"{counted(self.records, 'record')} behind, for {self.seconds:,.0f} s"


def pending(start: Positions, end: Positions) -> dict[int, int]:
    """The first offset that waits, for each partition in which any does, between `start` and `end` (exclusive)."""
    return {p: start[p] for p in end if start[p] < end[p]}


def lag(waiting: Positions, end: Positions, oldest_ms: Mapping[int, int | None], now_ms: int) -> Lag:
    """The lag of a table.

    Parameters: `waiting` as `pending` gives it; `oldest_ms` is the Kafka timestamp, in milliseconds, of the record at
    each waiting position, None where there is none (a transaction marker); `now_ms` is the time now.
    Raises: LakehouseError when such a record is from the future, and so nothing says how long it has waited.
    """
    records = sum(end[p] - position for p, position in waiting.items())
    times = {p: oldest for p in waiting if (oldest := oldest_ms[p]) is not None}
    for partition, oldest in times.items():
        if (ahead := oldest - now_ms) > AHEAD_SECONDS * 1000:
            raise LakehouseError(
                f"The oldest record that waits in partition {partition}, at offset {waiting[partition]} or after it, "
                f"is stamped {ahead / 1000:,.0f} s in the future. How long it has waited is unknown. Correct the "
                f"producer's clock, or set message.timestamp.type=LogAppendTime on the topic"
            )
    return Lag(records, max(0.0, (now_ms - min(times.values())) / 1000) if times else 0.0)


@dataclass(frozen=True)
class Behind:
    """What a reader of snapshots does not show yet. `seconds` is how long the first snapshot it misses is published;
    `nothing` says that there is nothing to show yet."""

    snapshots: int
    seconds: float
    nothing: bool = False

    def said(self) -> str:
        """The lag as words."""
        if self.nothing:
            return "nothing is published yet"
        if not self.snapshots:
            return "shows the newest published snapshot"
        return f"{counted(self.snapshots, 'snapshot')} behind, for {self.seconds:,.0f} s"


def snapshots_behind(commits: Sequence[tuple[int, int]], shown: int | None, now_ms: int) -> Behind | None:
    """How far a reader that shows snapshot `shown` is behind main.

    Parameters: `commits` are main's (snapshot id, commit time in milliseconds), newest first; `shown` is None for a
    reader that shows nothing yet.
    Returns: None when `shown` is not one of them: it was never published.
    """
    if shown is None:
        return (
            Behind(len(commits), max(0.0, (now_ms - commits[-1][1]) / 1000))
            if commits
            else Behind(0, 0.0, nothing=True)
        )
    ids = [snapshot_id for snapshot_id, _ in commits]
    if shown not in ids:
        return None
    missed = ids.index(shown)
    seconds = (now_ms - commits[missed - 1][1]) / 1000 if missed else 0.0
    return Behind(missed, max(0.0, seconds))
