"""The ledger of a table: the offsets of each commit, the counts of their records, and the rules that verify both.

Each consumed record is a row, a tombstone, superseded, deduplicated, filtered, a dead letter or skipped; the offsets
of each commit begin where those of the previous commit end. docs/ledger.md lists what is verified.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Literal

from lakehouse.core.offsets.batch import Batch, Counts, Identity

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
class OffsetRange:
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


def ranges(entries: Iterable[Entry]) -> list[OffsetRange]:
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
                ingested.append(OffsetRange(entry.snapshot_id, p, start, end, topic))
                highest[topic, p] = end
    return ingested


def uncounted_ranges(entries: Sequence[Entry]) -> list[OffsetRange]:
    """Return ranges that may have rows which no commit counts, with snapshot id 0.

    These are the offsets before the ledger begins, where older snapshots were expired, or of which a redrive may have
    added dead letters of the table before a roll-over; and those that a decision skipped, where a replay may have
    ingested them.
    """
    uncounted, begin = [], {}
    has_replays = any(e.kind == "replay" for e in entries)
    if entries and (entries[0].has_parent or has_replays):
        begin = {r.partition: r.start for r in reversed(ranges(entries))}
        uncounted += [OffsetRange(0, p, 0, start) for p, start in sorted(begin.items()) if start]
    if has_replays:
        for batch in (e.batch for e in entries if e.kind == "decision" and e.batch):
            skipped = [(p, max(batch.start.get(p, end), begin.get(p, 0)), end) for p, end in batch.end.items()]
            uncounted += [OffsetRange(0, p, start, end) for p, start, end in skipped if start < end]
    return uncounted


def snapshots_with_shared_offsets(topic_ranges: Sequence[OffsetRange]) -> set[int]:
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


@dataclass(frozen=True)
class LedgerFinding:
    """A fault of a ledger, or a note where `fault` is False.

    `kind` is a stable code. `partition` and `offsets` (both inclusive) locate it, if it is in one place.
    """

    kind: str
    message: str
    fault: bool = True
    snapshot_id: int | None = None
    partition: int | None = None
    offsets: tuple[int, int] | None = None


def findings(entries: Sequence[Entry]) -> list[LedgerFinding]:
    """Return the faults of a ledger, its entries oldest first, and notes on what cannot be verified."""
    findings = list(_beginning(entries))
    for entry in entries:
        findings += _count_findings(entry)
        findings += _operator_findings(entry)
    return findings + list(_offset_findings(entries))


def held_findings(
    entries: Sequence[Entry],
    rows: Mapping[OffsetRange | None, RangeContents],
    letters: Mapping[OffsetRange | None, RangeContents],
    either: Mapping[OffsetRange | None, RangeContents] | None = None,
    *,
    append: bool,
) -> list[LedgerFinding]:
    """Compare a table and its dead-letter table with the counts.

    An append table has exactly the counted rows at each commit's offsets. An upsert table has at most as many, since
    newer records replace older rows; of the newest commit exactly as many, unless another writer changed rows later.
    A replay turns dead letters and dropped records into rows at the offsets of older commits: afterwards, only the sum
    of a commit's rows and dead letters is known.

    Args:
        rows: Contents of each range in the table; the key None is for offsets outside of all ranges.
        letters: The same of the dead-letter table.
        either: The same of both together, after a replay.
    """
    all_ranges = ranges(entries)
    known = [e for e in entries if e.kind == "ingest" and e.counts]
    by_snapshot: dict[int, list[OffsetRange]] = {}
    for r in all_ranges:
        by_snapshot.setdefault(r.snapshot_id, []).append(r)
    ambiguous = snapshots_with_shared_offsets(all_ranges)
    newest = next((e.snapshot_id for e in reversed(entries) if e.kind != "foreign" or changes_rows(e)), None)
    replayed = any(entry.kind == "replay" for entry in entries)
    findings = []
    for entry in known:
        if entry.snapshot_id in ambiguous:
            message = f"Offsets of snapshot {entry.snapshot_id} were used by another topic too: rows are ambiguous"
            findings.append(LedgerFinding("shared_offsets", message, fault=False, snapshot_id=entry.snapshot_id))
            continue
        entry_ranges = by_snapshot.get(entry.snapshot_id, [])
        in_table, in_letters = (
            sum(by_range.get(r, RangeContents()).rows for r in entry_ranges) for by_range in (rows, letters)
        )
        assert entry.counts is not None
        counted, counted_letters = entry.counts.rows, entry.counts.dead_letters
        if append and either is not None:
            present = sum(either.get(r, RangeContents()).distinct for r in entry_ranges)
            at_least = counted + counted_letters
            if not at_least <= present <= at_least + entry.counts.dropped:
                findings += _differs(entry, "rows or dead letters", present, at_least)
            continue
        findings += _differs(entry, "dead letters", in_letters, counted_letters)
        exact = append or (entry.snapshot_id == newest and entry.offsets == sum(r.end - r.start for r in entry_ranges))
        most = counted + (counted_letters + entry.counts.dropped if replayed else 0)
        if exact or in_table > most:
            findings += _differs(entry, "rows", in_table, counted)
    if outside := rows.get(None):
        where = f" ({outside.first} to {outside.last})" if outside.first is not None else ""
        findings.append(
            LedgerFinding("unknown_rows", f"{outside.rows:,} rows have offsets{where} that are in no commit")
        )
    return findings


def duplicate_findings(duplicates: Sequence[tuple[int, int, int]], what: str) -> list[LedgerFinding]:
    """Return a fault for each duplicate record.

    Args:
        duplicates: (partition, offset, occurrences) of those to list.
        what: Rows or dead letters.
    """
    return [
        _at("duplicate", f"Partition {p} offset {offset} occurs {n} times among the {what}", p, offset)
        for p, offset, n in duplicates
    ]


def key_findings(keys: Sequence[tuple[str, int]]) -> list[LedgerFinding]:
    """Return a fault for each key with more than one row in an upsert table, given as (key, rows)."""
    return [LedgerFinding("duplicate_key", f"Key {key} has {n} rows") for key, n in keys]


def newest_findings(wrong: Sequence[tuple[int, int, bool]]) -> list[LedgerFinding]:
    """Return a fault for each newest record of a key that an upsert table lacks.

    Args:
        wrong: (partition, offset, whether it is a tombstone) of each.
    """
    messages = {
        False: "LOST: partition {} offset {} is the newest of its key in the log, and the table does not have it",
        True: "Partition {} offset {} deletes its key in the log, and the table has an older row of the key",
    }
    return [
        _at("not_deleted" if is_tombstone else "lost", messages[is_tombstone].format(p, o), p, o)
        for p, o, is_tombstone in wrong
    ]


def log_findings(
    entries: Sequence[Entry], logged: Mapping[int, LogContents], named: Sequence[tuple[int, int, int]]
) -> list[LedgerFinding]:
    """Compare the table with the topic's log: a record in the log without an outcome is lost.

    As many records as were dropped on purpose may be missing.

    Args:
        logged: Contents of the log by snapshot id.
        named: Missing records to list, as (snapshot id, partition, offset).
    """
    findings = []
    drops_records = any(entry.counts and entry.counts.dropped for entry in entries)
    for entry in entries:
        log = logged.get(entry.snapshot_id)
        if log is None:
            continue
        counts = entry.counts
        if counts and log.records > counts.consumed:
            message = f"Snapshot {entry.snapshot_id} consumed {counts.consumed:,} records; the log has {log.records:,}"
            findings.append(LedgerFinding("never_read", message, snapshot_id=entry.snapshot_id))
        dropped = counts.dropped if counts else 0
        if log.missing <= dropped:
            continue
        if counts is None and drops_records:
            message = f"Snapshot {entry.snapshot_id}: {log.missing:,} records in the log are neither rows nor dead "
            message += "letters, and may have been dropped on purpose, since its counts are no longer kept"
            findings.append(LedgerFinding("uncounted", message, fault=False, snapshot_id=entry.snapshot_id))
            continue
        for snapshot_id, partition, offset in named:
            if snapshot_id == entry.snapshot_id:
                among = f", one of {log.missing:,} of which {dropped:,} were dropped on purpose" if dropped else ""
                message = f"LOST: partition {partition} offset {offset} is in the log and nowhere else{among}"
                findings.append(_at("lost", message, partition, offset, snapshot_id))
        lost = log.missing - dropped
        message = f"Snapshot {entry.snapshot_id}: records in the log that are neither rows nor dead letters: {lost:,}"
        findings.append(LedgerFinding("lost_records", message, snapshot_id=entry.snapshot_id))
    return findings


def faults_of(findings: Iterable[LedgerFinding]) -> list[LedgerFinding]:
    """Return the findings that are faults."""
    return [finding for finding in findings if finding.fault]


def verdict(entry: Entry, findings: Collection[LedgerFinding]) -> str:
    """Return the result of one commit in a few words."""
    faults = sorted({f.kind for f in findings if f.fault and f.snapshot_id == entry.snapshot_id})
    if faults:
        return ", ".join(faults)
    match entry.kind:
        case "ingest" | "replay" if entry.counts:
            return "ok"
        case "ingest":
            return "not counted"
        case "foreign" if changes_rows(entry):
            return "changed by another writer"
        case "foreign":
            return "rows unchanged"
    return entry.kind


def _beginning(entries: Sequence[Entry]) -> Iterable[LedgerFinding]:
    if entries and entries[0].has_parent:
        first = next((e.batch for e in entries if e.batch), None)
        at = ", ".join(f"{p} from {o}" for p, o in sorted(first.start.items())) if first else "unknown"
        yield LedgerFinding(
            "begins",
            f"The ledger begins at snapshot {entries[0].snapshot_id}: older ones were expired. Partitions: {at}",
            fault=False,
            snapshot_id=entries[0].snapshot_id,
        )
    ingests = [e for e in entries if e.kind == "ingest"]
    first_counted = next((i for i, e in enumerate(ingests) if e.counts), len(ingests))
    if first_counted:
        message = f"Commits before the first with counts: {first_counted:,}. Only their offsets are verified"
        yield LedgerFinding("before_counts", message, fault=False)
    for entry in ingests[first_counted:]:
        if entry.counts is None:
            message = f"Snapshot {entry.snapshot_id} has no counts although older ones have: they were removed"
            yield LedgerFinding("no_counts", message, snapshot_id=entry.snapshot_id)


def _count_findings(entry: Entry) -> Iterable[LedgerFinding]:
    counts = entry.counts
    if counts is None:
        return
    if not counts.is_balanced:
        outcomes = " + ".join(f"{name} {n:,}" for name, n in counts.outcomes.items() if n)
        message = f"Snapshot {entry.snapshot_id} consumed {counts.consumed:,} records but counts {outcomes or 'none'}"
        yield LedgerFinding("sum", message, snapshot_id=entry.snapshot_id)
    if entry.batch and counts.consumed > entry.offsets:
        message = f"Snapshot {entry.snapshot_id} consumed {counts.consumed:,} records from {entry.offsets:,} offsets"
        yield LedgerFinding("more_than_offsets", message, snapshot_id=entry.snapshot_id)
    if entry.added != counts.rows:
        message = (
            f"Iceberg committed {entry.added:,} rows in snapshot {entry.snapshot_id}, which counts {counts.rows:,}"
        )
        yield LedgerFinding("rows", message, snapshot_id=entry.snapshot_id)


def _operator_findings(entry: Entry) -> Iterable[LedgerFinding]:
    if entry.kind == "foreign" and changes_rows(entry):
        message = (
            f"Another writer's {entry.operation} (snapshot {entry.snapshot_id}) added {entry.added:,} rows and deleted "
            f"{entry.deleted:,}; a deep check lists missing and duplicate records"
        )
        yield LedgerFinding("foreign", message, fault=False, snapshot_id=entry.snapshot_id)
    if entry.kind == "decision" and entry.batch:
        back = sum(max(0, start - entry.batch.end.get(p, start)) for p, start in entry.batch.start.items())
        message = f"An operator's decision (snapshot {entry.snapshot_id}) skipped {entry.offsets:,} offsets"
        message += f" and went back by {back:,}" if back else ""
        yield LedgerFinding("decision", message, fault=False, snapshot_id=entry.snapshot_id)


def _offset_findings(entries: Iterable[Entry]) -> Iterable[LedgerFinding]:
    """Verify that each commit begins where the previous one ended, and at 0 in partitions that were added since."""
    position: dict[int, int] = {}
    topic = None
    for entry in entries:
        batch, id_ = entry.batch, entry.snapshot_id
        if batch is None:
            continue
        if topic not in (None, batch.identity) and entry.kind != "decision":
            message = f"Snapshot {id_} is of another topic, {'/'.join(batch.identity)}, without an operator's decision"
            yield LedgerFinding("another_topic", message, snapshot_id=id_)
            position = {}
        for p, start in sorted(batch.start.items()):
            # Decisions of earlier releases about a new partition begin where they end.
            first = 0 if position and entry.kind == "ingest" else start
            end, before = batch.end.get(p, start), position.get(p, first)
            if start != before:
                kind, low, high = ("gap", before, start - 1) if start > before else ("overlap", start, before - 1)
                what = "which are in no commit" if kind == "gap" else "which are in an older commit too"
                message = f"Partition {p}: {kind} of offsets {low} to {high} before snapshot {id_}, {what}"
                yield LedgerFinding(kind, message, snapshot_id=id_, partition=p, offsets=(low, high))
            if end < start and entry.kind == "ingest":
                message = f"Partition {p}: snapshot {id_} ends at {end}, before its start {start}"
                yield LedgerFinding("backwards", message, snapshot_id=id_, partition=p, offsets=(end, start - 1))
        # The partitions of a recreated topic are only those in its own commits.
        position = (position if topic == batch.identity else {}) | dict(batch.end)
        topic = batch.identity


def _differs(entry: Entry, what: str, present: int, counted: int) -> Iterable[LedgerFinding]:
    if present != counted:
        kind = ("missing_" if present < counted else "surplus_") + what.replace(" ", "_")
        message = f"Snapshot {entry.snapshot_id} counts {counted:,} {what}, and its offsets have {present:,}"
        yield LedgerFinding(kind, message, snapshot_id=entry.snapshot_id)


def _at(kind: str, message: str, partition: int, offset: int, snapshot_id: int | None = None) -> LedgerFinding:
    return LedgerFinding(kind, message, snapshot_id=snapshot_id, partition=partition, offsets=(offset, offset))
