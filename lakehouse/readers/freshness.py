"""Decide whether each stage of a topic's pipeline is up to date with the stage before it.

The check, the sensor, `lakehouse status` and the deployment gate share this module, so their verdicts agree. It has no
I/O: measurements in, verdicts out.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from lakehouse.core.offsets.lag import Lag
from lakehouse.readers import registered

MAX_NAMED = 5
"""Maximum number of topics that a summary names."""


@dataclass(frozen=True)
class StageLag:
    """Measured lag of one stage of one topic."""

    topic: str
    stage: str
    """The first part of the asset's key: `kafka` (a derived topic, computed from its source's table), `iceberg`, or the
    name of a reader (lakehouse.readers)."""
    max_seconds: float
    """The maximum lag at which the stage is fresh."""
    behind: Lag | None = None
    """The lag behind the previous stage; None if the stage exposes a snapshot that is not in the table's history."""
    shows: int | None = None
    """The snapshot that the stage exposes."""
    failure: str = ""
    """Why the lag could not be measured; empty if it was."""
    paused: str = ""
    """Since when, by whom and why the topic is paused; empty if it is not."""

    @property
    def is_fresh(self) -> bool:
        """True if the lag is known and within the limit."""
        return not self.failure and self.behind is not None and self.behind.seconds <= self.max_seconds

    @property
    def description(self) -> str:
        """The verdict as a sentence that names the stage."""
        if self.failure:
            verdict = f"unknown: {self.failure}"
        elif self.behind is None:
            verdict = f"snapshot {self.shows} is not in the table's history: expired, rolled back, or never published"
        else:
            verdict = f"{self.behind.describe()}{'' if self.is_fresh else f' (limit: {self.max_seconds:,} s)'}"
        return f"{NAMES[self.stage]}: {f'{self.paused}; ' if self.paused else ''}{verdict}"


NAMES = {
    "kafka": "source table → derived topic",
    "iceberg": "topic → Iceberg",
    **{reader.name: f"Iceberg → {reader.label}" for reader in registered()},
}
"""Display names of the stages, by the last part of the asset's key."""


def first_stale_stage(lags: Sequence[StageLag]) -> StageLag | None:
    """Return the first stage of a topic that is behind: the cause of the others' lag."""
    order = list(NAMES)
    return min((lag for lag in lags if not lag.is_fresh), key=lambda lag: order.index(lag.stage), default=None)


def summary(lags: Sequence[StageLag]) -> str:
    """Return the verdict on one asset: one stage of one topic or, for a route, of several topics."""
    stale = [lag for lag in lags if not lag.is_fresh]
    if len(lags) == 1:
        return lags[0].description
    paused = [lag.topic for lag in lags if lag.paused]
    more = f"; {len(paused):,} paused: {', '.join(paused[:MAX_NAMED])}" if paused else ""
    if not stale:
        return f"all {len(lags):,} topics are fresh{more}"
    descriptions = "; ".join(f"{lag.topic}: {lag.description}" for lag in stale[:MAX_NAMED])
    return f"{len(stale):,} of {len(lags):,} topics are stale: {descriptions}{more}"
