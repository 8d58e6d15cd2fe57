"""Which records a batch takes, and the token by which a table remembers it.

The table itself holds the position: every ingest snapshot carries its batch as a summary property, so rows and offsets
move in one commit and nothing else needs to be kept. Pure functions; the reasons are in docs/exactly-once.md.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass

from lakehouse.core.errors import UnclearState

TOKEN = "lakehouse.batch"  # noqa: S105 (a property's name)
"""The snapshot summary property that holds a Batch as JSON."""

COUNTS = "lakehouse.counts"
"""The table property that holds what became of the records of each batch, as JSON by snapshot id, oldest first."""

MAX_PROPERTY = 400_000
"""Most characters of a table property. Glue takes 512,000 (AWS Glue API, Table: ParametersMapValue)."""

DECISION = "lakehouse.decision"
"""The snapshot summary property of a position that somebody decided on: JSON with `reason` and `at`."""

REPLAY = "lakehouse.replay"
"""The snapshot summary property of rows that were read again: JSON with the range; such a snapshot has no token."""

REPLAYS = "lakehouse.replays"
"""The table property that counts such snapshots: rows may have come behind the position each time."""

PART = "lakehouse.part"
"""The snapshot summary property of a commit that the one after it completes: an upsert deletes, and then appends."""

PARTS = "lakehouse.parts"
"""The snapshot summary property of a commit that completes others: the number of commits, this one included."""

NO_ID = "AAAAAAAAAAAAAAAAAAAAAA"
"""What clients read where brokers have no topic ids: all zeros (KIP-516)."""

Positions = Mapping[int, int]
"""Offset by partition."""


@dataclass(frozen=True)
class Batch:
    """One bounded range of a topic.

    `start` (inclusive) and `end` (exclusive) are offsets by partition, for the same partitions. Cluster and topic id
    tell a recreated topic, whose offsets start again, from the one that was read before.
    """

    cluster_id: str
    topic: str
    topic_id: str
    start: Positions
    end: Positions

    @property
    def offsets(self) -> int:
        """How many offsets the range spans: the records in it, and more where the log has gaps."""
        return sum(self.end[p] - self.start[p] for p in self.end)

    def to_json(self) -> str:
        """The token, with partitions in order."""
        ordered = {"start": dict(sorted(self.start.items())), "end": dict(sorted(self.end.items()))}
        return json.dumps({"version": 1, **asdict(self), **ordered}, separators=(",", ":"))

    @staticmethod
    def from_json(token: str) -> Batch:
        """Read a token.

        Raises: UnclearState when a newer release wrote it in a form this one does not know.
        """
        fields = json.loads(token)
        if fields.pop("version") != 1:
            raise UnclearState(f"Token {token} was written by a newer release. Nothing was changed. Upgrade lakehouse")
        for bound in ("start", "end"):
            fields[bound] = {int(partition): offset for partition, offset in fields[bound].items()}
        return Batch(**fields)


@dataclass(frozen=True)
class Log:
    """A topic as the broker shows it now: offsets by partition, `start` inclusive, `end` exclusive (read_committed).

    Raises: UnclearState when the topic has no id.
    """

    cluster_id: str
    topic: str
    topic_id: str
    start: Positions
    end: Positions

    def __post_init__(self) -> None:
        if self.topic_id == NO_ID:
            raise UnclearState(
                f"The brokers give topic '{self.topic}' no id, by which a topic that was deleted and made again is "
                f"told from the one before. Nothing was changed. Use brokers of Kafka 2.8 or later, with an "
                f"inter.broker.protocol.version of at least 2.8"
            )


def next_batch(last: Batch | None, log: Log, table: str) -> Batch:
    """Everything between the stored position and the end of the log; may be empty.

    Parameters: `last` is the newest token of `table`, or None when nothing was ever ingested.
    Raises: UnclearState when records between the two cannot be read any more, or when the log is another one.
    """
    stored = last.end if last else {}
    if last and last.topic != log.topic:
        raise UnclearState(
            f"Table {table} was filled from topic '{last.topic}', and not from '{log.topic}'. Nothing was changed. "
            f"Give one of them another `table` in lakehouse.yaml; if '{log.topic}' takes the other's place on purpose, "
            f"continue with `lakehouse resume`"
        )
    if last and (last.cluster_id, last.topic_id) != (log.cluster_id, log.topic_id):
        raise UnclearState(
            f"Topic '{log.topic}' is not the one table {table} was filled from: cluster and topic id were "
            f"{last.cluster_id}/{last.topic_id} and are {log.cluster_id}/{log.topic_id}. Nothing was changed. "
            f"If the topic was recreated on purpose, go on with `lakehouse resume`, or drop the table to start over"
        )
    for partition, offset in stored.items():
        if partition not in log.end or log.end[partition] < offset:
            raise UnclearState(
                f"Topic '{log.topic}' partition {partition} ends at {log.end.get(partition, 'nothing')}, but table "
                f"{table} was filled up to offset {offset}. Nothing was changed. Records were lost on the broker: "
                f"restore them, or go on with `lakehouse resume`"
            )
        if log.start[partition] > offset:
            raise UnclearState(
                f"Topic '{log.topic}' partition {partition} lost offsets {offset} to {log.start[partition] - 1} to "
                f"retention before table {table} had them. Nothing was changed. Restore them from a replica, "
                f"or go on from offset {log.start[partition]} with `lakehouse resume`"
            )
    start = {p: stored.get(p, log.start[p]) for p in log.end}
    return Batch(log.cluster_id, log.topic, log.topic_id, start, dict(log.end))


def until(batch: Batch, end: Positions) -> Batch:
    """The part of a batch before `end`, an offset by partition; of partitions not named, nothing."""
    bounded = {p: max(batch.start[p], min(batch.end[p], end.get(p, 0))) for p in batch.end}
    return Batch(batch.cluster_id, batch.topic, batch.topic_id, batch.start, bounded)


def split(batch: Batch, max_records: int) -> Batch:
    """The first part of a batch: at most `max_records` offsets.

    Each of the n partitions where records wait gets a share of 1/n, or all that waits there: a small one does not wait
    for a large backlog beside it. What they leave goes to the others in proportion to what waits there. Of a bound
    below n, the longest backlogs get one offset each.
    """
    if batch.offsets <= max_records:
        return batch
    pending = {p: count for p in batch.end if (count := batch.end[p] - batch.start[p])}
    least = max_records // len(pending)
    share = {p: min(count, least) for p, count in pending.items()}
    rest, left = batch.offsets - sum(share.values()), max_records - sum(share.values())
    if least:
        share = {p: taken + (pending[p] - taken) * left // rest for p, taken in share.items()}
    else:
        share |= dict.fromkeys(sorted(pending, key=lambda p: -pending[p])[:max_records], 1)
    end = {p: batch.start[p] + share.get(p, 0) for p in batch.end}
    return Batch(batch.cluster_id, batch.topic, batch.topic_id, batch.start, end)
