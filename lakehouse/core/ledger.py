"""The entries of a table's ledger: what each commit took from the topic, and how many records it counted.

Every ingest commit records its offsets (lakehouse.core.batch) and the outcome of their records (`Counts`).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Literal

from lakehouse.core.batch import Batch, Log
from lakehouse.core.counts import Counts

NAMED = 10
"""How many single offsets a finding names."""

Kind = Literal["ingest", "replay", "decision", "foreign"]

Identity = tuple[str, str]
"""Cluster id and topic id, by which a recreated topic differs from the one before."""


@dataclass(frozen=True)
class Entry:
    """One commit of main. `added` and `deleted` are rows as Iceberg counted them, `has_parent` whether the commit
    was made onto another one."""

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
        """How many offsets the commit moves the position by; a decision that goes back moves by none."""
        if self.batch is None:
            return 0
        # A decision about a recreated topic may end with other partitions than it starts with.
        return sum(max(0, end - self.batch.start.get(p, end)) for p, end in self.batch.end.items())

    @property
    def without_record(self) -> int:
        """Offsets without a record: transaction markers, aborted records, what compaction removed. No fault."""
        return self.offsets - self.counts.consumed if self.counts and self.kind == "ingest" else 0


@dataclass(frozen=True)
class Range:
    """The offsets of one partition that an ingest commit holds: `start` inclusive, `end` exclusive.

    `topic` is the one they are of: a recreated topic uses offsets again.
    """

    snapshot_id: int
    partition: int
    start: int
    end: int
    topic: Identity = ("", "")


@dataclass(frozen=True)
class Held:
    """What a table holds of a range: rows, distinct offsets, and the first and last of them."""

    rows: int = 0
    distinct: int = 0
    first: int | None = None
    last: int | None = None


@dataclass(frozen=True)
class Logged:
    """What the topic's log holds of a range now: records, and how many of them are neither row nor dead letter."""

    records: int = 0
    missing: int = 0


@dataclass(frozen=True)
class Coverage:
    """One partition over the whole ledger: offsets from `start` (inclusive) to `end` (exclusive), in so many
    `commits`."""

    topic: Identity
    partition: int
    start: int
    end: int
    commits: int


def totals(entries: Iterable[Entry]) -> Counts:
    """The counts of all ingest commits together."""
    return sum((e.counts for e in entries if e.kind == "ingest" and e.counts), Counts())


def coverage(entries: Iterable[Entry]) -> list[Coverage]:
    """What the ingest commits hold of each partition, by topic and partition."""
    found: dict[tuple[Identity, int], Coverage] = {}
    for r in ranges(entries):
        known = found.get((r.topic, r.partition)) or Coverage(r.topic, r.partition, r.start, r.end, 0)
        start, end = min(known.start, r.start), max(known.end, r.end)
        found[r.topic, r.partition] = replace(known, start=start, end=end, commits=known.commits + 1)
    return sorted(found.values(), key=lambda covered: (covered.topic, covered.partition))


def ranges(entries: Iterable[Entry]) -> list[Range]:
    """What each ingest commit holds of each partition. An offset that several hold (a decision may go back) is of the
    oldest of them, so that ranges of one topic never overlap; empty ones are left out."""
    found = []
    highest: dict[tuple[Identity, int], int] = {}
    for entry in entries:
        if entry.kind != "ingest" or entry.batch is None:
            continue
        topic = identity(entry.batch)
        for p, end in sorted(entry.batch.end.items()):
            start = max(entry.batch.start[p], highest.get((topic, p), 0))
            if start < end:
                found.append(Range(entry.snapshot_id, p, start, end, topic))
                highest[topic, p] = end
    return found


def beside(entries: Sequence[Entry]) -> list[Range]:
    """Where rows may be that no commit of the ledger counts: before its beginning where older snapshots were expired,
    and in what a decision skipped where a replay may have brought it back. Their snapshot id is 0."""
    found = []
    if entries and entries[0].has_parent:
        first = {r.partition: r for r in reversed(ranges(entries))}
        found += [Range(0, p, 0, r.start) for p, r in sorted(first.items()) if r.start]
    if any(e.kind == "replay" for e in entries):
        for batch in (e.batch for e in entries if e.kind == "decision" and e.batch):
            skipped = [(p, batch.start.get(p, end), end) for p, end in batch.end.items()]
            found += [Range(0, p, start, end) for p, start, end in skipped if start < end]
    return found


def shared(found: Sequence[Range]) -> set[int]:
    """The snapshots with a range that a commit of another topic holds too: their rows cannot be told apart."""
    spans: dict[tuple[Identity, int], tuple[int, int]] = {}
    for r in found:
        start, end = spans.get((r.topic, r.partition), (r.start, r.end))
        spans[r.topic, r.partition] = min(start, r.start), max(end, r.end)
    return {
        r.snapshot_id
        for r in found
        for (topic, partition), (start, end) in spans.items()
        if topic != r.topic and partition == r.partition and max(start, r.start) < min(end, r.end)
    }


def changes_rows(entry: Entry) -> bool:
    """Whether a commit changed what readers see (a `replace` does not: Iceberg specification, Snapshots)."""
    return entry.operation != "replace" and bool(entry.added or entry.deleted)


def identity(batch: Batch | Log) -> Identity:
    """Which topic a batch is of, or a log."""
    return batch.cluster_id, batch.topic_id
