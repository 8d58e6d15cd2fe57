"""Offset ranges of batches with the counts of their outcomes, and their tokens in a table's snapshots.

The table itself stores the position: every ingest snapshot carries its batch as a summary property, so rows and offsets
are committed atomically. Pure functions; docs/exactly-once.md has the reasons.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, fields, replace

from lakehouse.core.errors import NewerFormat, UnclearState

NO_ID = "AAAAAAAAAAAAAAAAAAAAAA"
"""Topic id that clients return where brokers have none: all zeros (KIP-516)."""

Positions = Mapping[int, int]
"""Offset by partition."""
Identity = tuple[str, str]
"""Cluster id and topic id, which distinguish a recreated topic from the previous one."""


@dataclass(frozen=True)
class Batch:
    """One bounded offset range of a topic.

    `start` (inclusive) and `end` (exclusive) are offsets by partition, for the same partitions. Cluster and topic id
    distinguish a recreated topic, whose offsets start again, from the one that was read before.
    """

    cluster_id: str
    topic: str
    topic_id: str
    start: Positions
    end: Positions

    @property
    def identity(self) -> Identity:
        """The identity of the topic."""
        return self.cluster_id, self.topic_id

    @property
    def offsets(self) -> int:
        """Number of offsets in the range: at least its records, more where the log has gaps."""
        return sum(self.end[p] - self.start[p] for p in self.end)

    def ends_before(self, newest: Batch) -> bool:
        """Return whether it ends before the newest batch in any partition, as in a log that lost records."""
        return self.identity == newest.identity and any(self.end.get(p, 0) < offset for p, offset in newest.end.items())

    def to_json(self) -> str:
        """Return the token, with partitions in order."""
        ordered = {"start": dict(sorted(self.start.items())), "end": dict(sorted(self.end.items()))}
        return json.dumps({"version": 1, **vars(self), **ordered}, separators=(",", ":"))

    @staticmethod
    def from_json(token: str) -> Batch:
        """Parse a token.

        Raises:
            NewerFormat: A newer release wrote it in another format.
        """
        fields = json.loads(token)
        if fields.pop("version") != 1:
            raise NewerFormat(f"Token {token} was written by a newer release. Nothing was changed. Upgrade lakehouse")
        for bound in ("start", "end"):
            fields[bound] = {int(partition): offset for partition, offset in fields[bound].items()}
        return Batch(**fields)


@dataclass(frozen=True)
class Log(Batch):
    """The current log of a topic: all offsets that a consumer with read_committed can read."""

    def __post_init__(self) -> None:
        if self.topic_id == NO_ID:
            raise UnclearState(
                f"Topic '{self.topic}' has no topic id, without which a recreated topic cannot be detected. Nothing "
                f"was changed. Use brokers of Kafka 2.8 or later, with inter.broker.protocol.version 2.8 or later"
            )


def next_batch(last: Batch | None, log: Log, table: str) -> Batch:
    """Return the batch from the stored position to the end of the log; it may be empty.

    A partition that the token does not have was added to the topic later, so its first offset is 0.

    Args:
        last: The newest token of `table`; None when nothing was ever ingested, and the log's start is the position.

    Raises:
        UnclearState: Records between the two can no longer be read, or the log is of another topic.
    """
    stored = last.end if last else {}
    if last and last.topic != log.topic:
        raise UnclearState(
            f"Table {table} was filled from topic '{last.topic}', and not from '{log.topic}'. Nothing was changed. "
            f"Give one of them another `table` in lakehouse.yaml; if '{log.topic}' replaces the other on purpose, "
            f"continue with `lakehouse resume`"
        )
    if last and last.identity != log.identity:
        raise UnclearState(
            f"Topic '{log.topic}' is not the one table {table} was filled from: cluster and topic id were "
            f"{last.cluster_id}/{last.topic_id} and are {log.cluster_id}/{log.topic_id}. Nothing was changed. "
            f"If the topic was recreated on purpose, continue with `lakehouse resume`, or drop the table to start over"
        )
    for partition, offset in stored.items():
        if partition not in log.end or log.end[partition] < offset:
            raise UnclearState(
                f"Topic '{log.topic}' partition {partition} ends at {log.end.get(partition, 'nothing')}, but table "
                f"{table} was filled up to offset {offset}. Nothing was changed. Records were lost on the broker: "
                f"restore them, or continue with `lakehouse resume`"
            )
    start = {p: stored.get(p, 0) for p in log.end} if last else dict(log.start)
    for partition, offset in start.items():
        if log.start[partition] > offset:
            raise UnclearState(
                f"Topic '{log.topic}' partition {partition} lost offsets {offset} to {log.start[partition] - 1} to "
                f"retention before table {table} ingested them. Nothing was changed. Restore them from a replica, "
                f"or continue from offset {log.start[partition]} with `lakehouse resume`"
            )
    return Batch(log.cluster_id, log.topic, log.topic_id, start, dict(log.end))


def clip(batch: Batch, end: Positions) -> Batch:
    """Return the part of a batch before `end` (offset by partition); partitions not in `end` become empty."""
    bounded = {p: max(batch.start[p], min(batch.end[p], end.get(p, 0))) for p in batch.end}
    return replace(batch, end=bounded)


def head(batch: Batch, max_records: int) -> Batch:
    """Return the first part of a batch: `max_records` offsets, or all if it has fewer.

    Each of the n partitions with pending records gets an equal share, or all it has if that is less, so a short backlog
    never waits for a long one. The rest is distributed in proportion to what remains. If `max_records` is below n, the
    longest backlogs get them.
    """
    if batch.offsets <= max_records:
        return batch
    pending = {p: count for p in batch.end if (count := batch.end[p] - batch.start[p])}
    least = max_records // len(pending)
    share = {p: min(count, least) for p, count in pending.items()}
    rest, remaining = batch.offsets - sum(share.values()), max_records - sum(share.values())
    share = {p: count + (pending[p] - count) * remaining // rest for p, count in share.items()}
    # What division has rounded off: less than one offset for each partition.
    longest = sorted((p for p in pending if share[p] < pending[p]), key=lambda p: share[p] - pending[p])
    for p in longest[: max_records - sum(share.values())]:
        share[p] += 1
    end = {p: batch.start[p] + share.get(p, 0) for p in batch.end}
    return replace(batch, end=end)


def furthest(first: Positions, second: Positions) -> Positions:
    """Return the larger offset of each partition of two positions."""
    return {p: max(first.get(p, 0), second.get(p, 0)) for p in sorted({*first, *second})}


def nearest(first: Positions, second: Positions) -> Positions:
    """Return the smaller offset of each partition of the first of two positions; 0 if the second one lacks it."""
    return {p: min(offset, second.get(p, 0)) for p, offset in first.items()}


@dataclass(frozen=True)
class Counts:
    """Outcomes of the records of a batch: each has exactly one, so `consumed` is the sum of the rest.

    For `superseded` records, a newer one of the same key is in the batch, or one of another partition in the table;
    `deduplicated` ones repeat an earlier key; `filtered` ones have a type that is not this table's; `skipped` ones
    could not be decoded and are dropped.
    """

    consumed: int = 0
    rows: int = 0
    tombstones: int = 0
    superseded: int = 0
    deduplicated: int = 0
    filtered: int = 0
    dead_letters: int = 0
    skipped: int = 0

    @property
    def outcomes(self) -> dict[str, int]:
        """All counts but `consumed`."""
        return {name: n for name, n in vars(self).items() if name != "consumed"}

    @property
    def dropped(self) -> int:
        """Number of records that are deliberately in no table."""
        return self.filtered + self.deduplicated + self.skipped

    @property
    def is_balanced(self) -> bool:
        """True if the outcomes sum up to `consumed`."""
        outcomes = self.outcomes.values()
        return sum(outcomes) == self.consumed and min(outcomes) >= 0

    @staticmethod
    def from_json(stored: Mapping[str, int]) -> Counts:
        """Parse the counts that the table property has for one snapshot; absent ones are 0.

        Raises:
            NewerFormat: It has an outcome that a newer release added.
        """
        if unknown := set(stored) - {field.name for field in fields(Counts)}:
            raise NewerFormat(
                f"The counts of a commit contain {', '.join(sorted(unknown))}, which a newer release wrote. "
                f"Nothing was changed. Upgrade lakehouse"
            )
        return Counts(**stored)

    def __add__(self, other: Counts) -> Counts:
        return Counts(*(getattr(self, f.name) + getattr(other, f.name) for f in fields(Counts)))


OUTCOMES = tuple(field.name for field in fields(Counts))
"""Names of all counts, `consumed` first."""


def describe_outcome(name: str, n: int) -> str:
    """Return a count with the name of its outcome: `2 rows`, `1 dead letter`, `3 superseded`."""
    words = name.replace("_", " ")
    return f"{n:,} {words.removesuffix('s') if n == 1 else words}"
