"""Entries of a table's ledger: the offsets of each commit (batch.py) and the counts of their records."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Literal

from lakehouse.core.offsets.batch import Batch, Identity
from lakehouse.core.offsets.counts import Counts

NAMED = 10
"""Maximum number of single offsets that findings list."""

Kind = Literal["ingest", "replay", "decision", "foreign"]


@dataclass(frozen=True)
class Entry:
    """One commit of main. `added` and `deleted` are Iceberg's counts of rows."""

    snapshot_id: int
    committed_at: datetime
    kind: Kind
    operation: str
    batch: Batch | None = None
    counts: Counts | None = None
    added: int = 0
    deleted: int = 0
    has_parent: bool = True

    @property
    def offsets(self) -> int:
        """Number of offsets by which the commit advances the position; 0 for a decision that moves it back."""
        if self.batch is None:
            return 0
        # A decision about a recreated topic may end with different partitions than it starts with.
        return sum(max(0, end - self.batch.start.get(p, end)) for p, end in self.batch.end.items())

    @property
    def without_record(self) -> int:
        """Number of offsets without a record: transaction markers, aborted and compacted records."""
        return self.offsets - self.counts.consumed if self.counts and self.kind == "ingest" else 0


@dataclass(frozen=True)
class Range:
    """Offsets of one partition in an ingest commit: `start` inclusive, `end` exclusive.

    A recreated topic reuses offsets, so `topic` is part of the identity.
    """

    snapshot_id: int
    partition: int
    start: int
    end: int
    topic: Identity = ("", "")


@dataclass(frozen=True)
class RangeContents:
    """Contents of a range in a table: rows, distinct offsets, and the first and last of them."""

    rows: int = 0
    distinct: int = 0
    first: int | None = None
    last: int | None = None


@dataclass(frozen=True)
class LogContents:
    """Contents of a range in the topic's log: records, and those that are neither row nor dead letter."""

    records: int = 0
    missing: int = 0


@dataclass(frozen=True)
class Coverage:
    """One partition over the whole ledger: offsets from `start` (inclusive) to `end` (exclusive), in `commits`
    commits."""

    topic: Identity
    partition: int
    start: int
    end: int
    commits: int


def totals(entries: Iterable[Entry]) -> Counts:
    """Return the sum of the counts of all ingest commits."""
    return sum((e.counts for e in entries if e.kind == "ingest" and e.counts), Counts())


def coverage(entries: Iterable[Entry]) -> list[Coverage]:
    """Return the offsets in ingest commits by partition, ordered by topic and partition."""
    coverages: dict[tuple[Identity, int], Coverage] = {}
    for r in ranges(entries):
        known = coverages.get((r.topic, r.partition)) or Coverage(r.topic, r.partition, r.start, r.end, 0)
        start, end = min(known.start, r.start), max(known.end, r.end)
        coverages[r.topic, r.partition] = replace(known, start=start, end=end, commits=known.commits + 1)
    return sorted(coverages.values(), key=lambda covered: (covered.topic, covered.partition))


def ranges(entries: Iterable[Entry]) -> list[Range]:
    """Return the non-empty ranges of the ingest commits.

    An offset that several commits ingested, after a decision to go back, belongs to the oldest of them, so ranges of
    one topic never overlap.
    """
    ingested = []
    highest: dict[tuple[Identity, int], int] = {}
    for entry in entries:
        if entry.kind != "ingest" or entry.batch is None:
            continue
        topic = entry.batch.identity
        for p, end in sorted(entry.batch.end.items()):
            start = max(entry.batch.start[p], highest.get((topic, p), 0))
            if start < end:
                ingested.append(Range(entry.snapshot_id, p, start, end, topic))
                highest[topic, p] = end
    return ingested


def uncounted_ranges(entries: Sequence[Entry]) -> list[Range]:
    """Return ranges that may have rows which no commit counts, with snapshot id 0.

    These are the offsets before the ledger begins, where older snapshots were expired, or of which a redrive may have
    added dead letters of the table before a roll-over; and those that a decision skipped, where a replay may have
    ingested them.
    """
    uncounted, begin = [], {}
    has_replays = any(e.kind == "replay" for e in entries)
    if entries and (entries[0].has_parent or has_replays):
        begin = {r.partition: r.start for r in reversed(ranges(entries))}
        uncounted += [Range(0, p, 0, start) for p, start in sorted(begin.items()) if start]
    if has_replays:
        for batch in (e.batch for e in entries if e.kind == "decision" and e.batch):
            skipped = [(p, max(batch.start.get(p, end), begin.get(p, 0)), end) for p, end in batch.end.items()]
            uncounted += [Range(0, p, start, end) for p, start, end in skipped if start < end]
    return uncounted


def snapshots_with_shared_offsets(topic_ranges: Sequence[Range]) -> set[int]:
    """Return the snapshots with offsets that a commit of another topic has too: their rows are indistinguishable."""
    spans: dict[tuple[Identity, int], tuple[int, int]] = {}
    for r in topic_ranges:
        start, end = spans.get((r.topic, r.partition), (r.start, r.end))
        spans[r.topic, r.partition] = min(start, r.start), max(end, r.end)
    return {
        r.snapshot_id
        for r in topic_ranges
        for (topic, partition), (start, end) in spans.items()
        if topic != r.topic and partition == r.partition and max(start, r.start) < min(end, r.end)
    }


def changes_rows(entry: Entry) -> bool:
    """Return whether a commit changed rows (a `replace` does not: Iceberg specification, Snapshots)."""
    return entry.operation != "replace" and bool(entry.added or entry.deleted)
