"""Whether each hop of a topic's way shows what the hop before it has. One judgement: the check, the sensor, `lakehouse
status` and the gate of a pipeline all ask here, so that they cannot disagree. Pure: measurements in, verdicts out."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from lakehouse.core.lag import Behind, Lag
from lakehouse.readers import registered

MOST_NAMED = 5
"""Topics that one verdict names."""


@dataclass(frozen=True)
class Hop:
    """One hop of one topic, as it was measured.

    `asset` is the first part of the asset's key: `kafka` (for a derived topic: computed from its source's table),
    `iceberg`, or the name of a reader (lakehouse.readers). `behind` is how far it is behind the hop before; None when
    it shows a snapshot that was never published. `shows` is the snapshot it shows. `failure` says why it could not be
    measured, if so; `paused` since when, by whom and why the topic is, if so.
    """

    topic: str
    asset: str
    max_seconds: float
    behind: Lag | Behind | None = None
    shows: int | None = None
    failure: str = ""
    paused: str = ""

    @property
    def fresh(self) -> bool:
        """Whether nothing has waited for this hop longer than it may. What is not known to be fresh is not."""
        return not self.failure and self.behind is not None and self.behind.seconds <= self.max_seconds

    @property
    def said(self) -> str:
        """The verdict as a sentence, which names the hop."""
        if self.failure:
            verdict = f"unknown: {self.failure}"
        elif self.behind is None:
            verdict = f"snapshot {self.shows} was never published"
        else:
            verdict = f"{self.behind.said()}{'' if self.fresh else f', and may be {self.max_seconds:,} s'}"
        return f"{NAMES[self.asset]}: {f'{self.paused}; ' if self.paused else ''}{verdict}"


NAMES = {
    "kafka": "source table → derived topic",
    "iceberg": "topic → Iceberg",
    **{reader.name: f"Iceberg → {reader.label}" for reader in registered()},
}
"""How hops are called, by the first part of the asset's key."""


def first_stale(hops: Sequence[Hop]) -> Hop | None:
    """The first hop of a chain that is behind: the one to mend."""
    order = list(NAMES)
    return min((hop for hop in hops if not hop.fresh), key=lambda hop: order.index(hop.asset), default=None)


def summary(hops: Sequence[Hop]) -> str:
    """The verdict on one asset, which is a hop of one topic or, for a route, of several."""
    stale = [hop for hop in hops if not hop.fresh]
    if len(hops) == 1:
        return hops[0].said
    paused = [hop.topic for hop in hops if hop.paused]
    more = f"; {len(paused):,} paused: {', '.join(paused[:MOST_NAMED])}" if paused else ""
    if not stale:
        return f"all {len(hops):,} topics are fresh{more}"
    told = "; ".join(f"{hop.topic}: {hop.said}" for hop in stale[:MOST_NAMED])
    return f"{len(stale):,} of {len(hops):,} topics are stale: {told}{more}"
