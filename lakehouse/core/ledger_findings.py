"""Everything in a table's ledger that does not add up.

Each consumed record is a row, a tombstone, superseded, deduplicated, filtered, a dead letter or skipped; the offsets
of each commit begin where those of the commit before end. docs/ledger.md lists what is proven and what is not.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

from lakehouse.core.ledger import Entry, Held, Logged, Range, changes_rows, identity, ranges, shared


@dataclass(frozen=True)
class Finding:
    """What was found in a ledger. A `fault` does not add up; anything else is worth knowing.

    `kind` is a stable code. `partition` and `offsets` (both inclusive) are where, when it is one place.
    """

    kind: str
    said: str
    fault: bool = True
    snapshot_id: int | None = None
    partition: int | None = None
    offsets: tuple[int, int] | None = None


def findings(entries: Sequence[Entry]) -> list[Finding]:
    """Everything that does not add up in a ledger, and what limits the proof.

    Parameters: `entries` as `read` gives them, oldest first.
    """
    found = list(_beginning(entries))
    for entry in entries:
        found += _of_counts(entry)
        found += _of_others(entry)
    return found + list(_of_offsets(entries))


def held_findings(
    entries: Sequence[Entry],
    rows: Mapping[Range | None, Held],
    letters: Mapping[Range | None, Held],
    either: Mapping[Range | None, Held] | None = None,
    *,
    append: bool,
) -> list[Finding]:
    """Whether a table and its dead-letter table hold what the counts say.

    Of an append table, as many rows of each commit's offsets as it counted. Of an upsert table, no more than that, for
    newer records take the place of older rows; and of the newest commit exactly as many, unless another writer
    changed rows later. A replay makes rows of dead letters, or of what was left out, at the offsets of older commits:
    no more is known then than how many records of a commit are a row or a dead letter.

    Parameters: what each range holds, of rows, of dead letters, and where there was a replay of both together; None
    stands for offsets that no range has.
    """
    all_ranges = ranges(entries)
    known = [e for e in entries if e.kind == "ingest" and e.counts]
    of: dict[int, list[Range]] = {}
    for r in all_ranges:
        of.setdefault(r.snapshot_id, []).append(r)
    unclear = shared(all_ranges)
    newest = next((e.snapshot_id for e in reversed(entries) if e.kind != "foreign" or changes_rows(e)), None)
    replayed = any(entry.kind == "replay" for entry in entries)
    found = []
    for entry in known:
        if entry.snapshot_id in unclear:
            said = f"Offsets of snapshot {entry.snapshot_id} were used by another topic too: their rows look alike"
            found.append(Finding("shared_offsets", said, fault=False, snapshot_id=entry.snapshot_id))
            continue
        own = of.get(entry.snapshot_id, [])
        in_table, set_aside = (sum(held.get(r, Held()).rows for r in own) for held in (rows, letters))
        assert entry.counts is not None
        counted, counted_letters = entry.counts.rows, entry.counts.dead_letters
        if append and either is not None:
            there = sum(either.get(r, Held()).distinct for r in own)
            at_least = counted + counted_letters
            if not at_least <= there <= at_least + entry.counts.nowhere:
                found += _differs(entry, "rows or dead letters", there, at_least)
            continue
        found += _differs(entry, "dead letters", set_aside, counted_letters)
        exact = append or (entry.snapshot_id == newest and entry.offsets == sum(r.end - r.start for r in own))
        most = counted + (counted_letters + entry.counts.nowhere if replayed else 0)
        if exact or in_table > most:
            found += _differs(entry, "rows", in_table, counted)
    if outside := rows.get(None):
        where = f" ({outside.first} to {outside.last})" if outside.first is not None else ""
        found.append(Finding("unknown_rows", f"{outside.rows:,} rows have offsets{where} that no commit holds"))
    return found


def duplicate_findings(duplicates: Sequence[tuple[int, int, int]], what: str) -> list[Finding]:
    """Records that a table holds more than once.

    Parameters: (partition, offset, how often) of each, as far as they are to be named; `what` they are.
    """
    return [
        _at("duplicate", f"Partition {p} offset {offset} is there {n} times among the {what}", p, offset)
        for p, offset, n in duplicates
    ]


def key_findings(keys: Sequence[tuple[str, int]]) -> list[Finding]:
    """Keys with more than one row in an upsert table, as (key, rows)."""
    return [Finding("duplicate_key", f"Key {key} has {n} rows") for key, n in keys]


def newest_findings(wrong: Sequence[tuple[int, int, bool]]) -> list[Finding]:
    """Newest records of their keys that an upsert table does not show, as (partition, offset, tombstone)."""
    said = {
        False: "LOST: partition {} offset {} is the newest of its key in the log, and the table does not have it",
        True: "Partition {} offset {} deletes its key in the log, and the table has an older row of the key",
    }
    return [_at("not_deleted" if gone else "lost", said[gone].format(p, o), p, o) for p, o, gone in wrong]


def log_findings(
    entries: Sequence[Entry], logged: Mapping[int, Logged], named: Sequence[tuple[int, int, int]]
) -> list[Finding]:
    """Whether what the topic's log still holds is in the table: a record there that has no outcome is lost.

    Filtered, deduplicated and skipped records are in the log and nowhere else, so that many may be missing.

    Parameters: what the log holds of each snapshot's ranges; `named` are missing records as (snapshot id, partition,
    offset), as far as they are to be named.
    """
    found = []
    leaves_out = any(entry.counts and entry.counts.nowhere for entry in entries)
    for entry in entries:
        seen = logged.get(entry.snapshot_id)
        if seen is None:
            continue
        counts = entry.counts
        if counts and seen.records > counts.consumed:
            said = f"Snapshot {entry.snapshot_id} consumed {counts.consumed:,} records; the log has {seen.records:,}"
            found.append(Finding("never_read", said, snapshot_id=entry.snapshot_id))
        nowhere = counts.nowhere if counts else 0
        if seen.missing <= nowhere:
            continue
        if counts is None and leaves_out:
            said = f"Snapshot {entry.snapshot_id}: records in the log that are neither rows nor dead letters, and may"
            said += f" have been left out on purpose, since its counts are no longer kept: {seen.missing:,}"
            found.append(Finding("uncounted", said, fault=False, snapshot_id=entry.snapshot_id))
            continue
        for snapshot_id, partition, offset in named:
            if snapshot_id == entry.snapshot_id:
                among = f", one of {seen.missing:,} of which {nowhere:,} were left out on purpose" if nowhere else ""
                said = f"LOST: partition {partition} offset {offset} is in the log and nowhere else{among}"
                found.append(_at("lost", said, partition, offset, snapshot_id))
        lost = seen.missing - nowhere
        said = f"Snapshot {entry.snapshot_id}: records in the log that are neither rows nor dead letters: {lost:,}"
        found.append(Finding("lost_records", said, snapshot_id=entry.snapshot_id))
    return found


def unsound(found: Iterable[Finding]) -> list[Finding]:
    """The findings that are faults."""
    return [finding for finding in found if finding.fault]


def verdict(entry: Entry, found: Collection[Finding]) -> str:
    """One commit's result in a few words."""
    faults = sorted({f.kind for f in found if f.fault and f.snapshot_id == entry.snapshot_id})
    if faults:
        return ", ".join(faults)
    match entry.kind:
        case "ingest" | "replay" if entry.counts:
            return "adds up"
        case "ingest":
            return "not counted"
        case "foreign" if changes_rows(entry):
            return "changed by another writer"
        case "foreign":
            return "same rows"
    return entry.kind


def _beginning(entries: Sequence[Entry]) -> Iterable[Finding]:
    if entries and entries[0].has_parent:
        first = next((e.batch for e in entries if e.batch), None)
        at = ", ".join(f"{p} from {o}" for p, o in sorted(first.start.items())) if first else "unknown"
        yield Finding(
            "begins",
            f"The ledger begins at snapshot {entries[0].snapshot_id}: older ones were expired. Partitions: {at}",
            fault=False,
            snapshot_id=entries[0].snapshot_id,
        )
    ingests = [e for e in entries if e.kind == "ingest"]
    first_counted = next((i for i, e in enumerate(ingests) if e.counts), len(ingests))
    if first_counted:
        said = f"Commits before the first with counts: {first_counted:,}. Their offsets are checked, their records not"
        yield Finding("before_counts", said, fault=False)
    for entry in ingests[first_counted:]:
        if entry.counts is None:
            said = f"Snapshot {entry.snapshot_id} has no counts, and older ones have: somebody removed them"
            yield Finding("no_counts", said, snapshot_id=entry.snapshot_id)


def _of_counts(entry: Entry) -> Iterable[Finding]:
    counts = entry.counts
    if counts is None:
        return
    if not counts.adds_up:
        outcomes = " + ".join(f"{name} {n:,}" for name, n in counts.outcomes.items() if n)
        said = f"Snapshot {entry.snapshot_id} consumed {counts.consumed:,} records and tells of {outcomes or 'none'}"
        yield Finding("sum", said, snapshot_id=entry.snapshot_id)
    if entry.batch and counts.consumed > entry.offsets:
        said = f"Snapshot {entry.snapshot_id} consumed {counts.consumed:,} records from {entry.offsets:,} offsets"
        yield Finding("more_than_offsets", said, snapshot_id=entry.snapshot_id)
    if entry.added != counts.rows:
        said = f"Iceberg committed {entry.added:,} rows in snapshot {entry.snapshot_id}, which counts {counts.rows:,}"
        yield Finding("rows", said, snapshot_id=entry.snapshot_id)


def _of_others(entry: Entry) -> Iterable[Finding]:
    if entry.kind == "foreign" and changes_rows(entry):
        said = (
            f"Another writer's {entry.operation} (snapshot {entry.snapshot_id}) added {entry.added:,} rows and deleted "
            f"{entry.deleted:,}; a deep check names what is missing or doubled"
        )
        yield Finding("foreign", said, fault=False, snapshot_id=entry.snapshot_id)
    if entry.kind == "decision" and entry.batch:
        back = sum(max(0, start - entry.batch.end.get(p, start)) for p, start in entry.batch.start.items())
        said = f"An operator's decision (snapshot {entry.snapshot_id}) skipped {entry.offsets:,} offsets"
        said += f" and went back by {back:,}" if back else ""
        yield Finding("decision", said, fault=False, snapshot_id=entry.snapshot_id)


def _of_offsets(entries: Iterable[Entry]) -> Iterable[Finding]:
    """Each commit begins where the one before it ended, in every partition; new partitions begin anywhere."""
    position: dict[int, int] = {}
    topic = None
    for entry in entries:
        batch, id_ = entry.batch, entry.snapshot_id
        if batch is None:
            continue
        if topic not in (None, identity(batch)) and entry.kind != "decision":
            said = f"Snapshot {id_} is of another topic, {'/'.join(identity(batch))}, and nobody decided so"
            yield Finding("another_topic", said, snapshot_id=id_)
            position = {}
        for p, start in sorted(batch.start.items()):
            end, before = batch.end.get(p, start), position.get(p, start)
            if start != before:
                kind, low, high = ("gap", before, start - 1) if start > before else ("overlap", start, before - 1)
                what = "which no commit holds" if kind == "gap" else "which an older commit holds too"
                said = f"Partition {p}: {kind} of offsets {low} to {high} before snapshot {id_}, {what}"
                yield Finding(kind, said, snapshot_id=id_, partition=p, offsets=(low, high))
            if end < start and entry.kind == "ingest":
                said = f"Partition {p}: snapshot {id_} ends at {end}, before its start {start}"
                yield Finding("backwards", said, snapshot_id=id_, partition=p, offsets=(end, start - 1))
        # A topic that was recreated has the partitions that its own commits name, and no other.
        position = (position if topic == identity(batch) else {}) | dict(batch.end)
        topic = identity(batch)


def _differs(entry: Entry, what: str, there: int, counted: int) -> Iterable[Finding]:
    if there != counted:
        kind = ("missing_" if there < counted else "surplus_") + what.replace(" ", "_")
        said = f"Snapshot {entry.snapshot_id} counts {counted:,} {what}, and its offsets have {there:,}"
        yield Finding(kind, said, snapshot_id=entry.snapshot_id)


def _at(kind: str, said: str, partition: int, offset: int, snapshot_id: int | None = None) -> Finding:
    return Finding(kind, said, snapshot_id=snapshot_id, partition=partition, offsets=(offset, offset))
