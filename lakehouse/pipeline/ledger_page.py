"""A ledger as tables of text: the same for a terminal, for a page in the UI, and as JSON."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from typing import Any

from lakehouse.core.counts import OUTCOMES
from lakehouse.core.ledger import Coverage, Entry, Held, Range, coverage, totals
from lakehouse.core.ledger_findings import Finding, unsound, verdict

COUNTED = OUTCOMES
Cells = tuple[list[str], list[list[str]]]
"""Column names, and rows of as many cells."""


def commits(entries: Sequence[Entry], findings: Sequence[Finding]) -> Cells:
    """A row a commit, newest first. Outcomes that no commit has are left out."""
    outcomes = [n for n in COUNTED if n in ("consumed", "rows", "dead_letters") or getattr(totals(entries), n)]
    columns = ["committed (UTC)", "snapshot", "commit", "offsets", *map(_words, outcomes), "without record", "verdict"]
    rows = [
        [
            f"{entry.committed_at:%Y-%m-%d %H:%M:%S}",
            str(entry.snapshot_id),
            _commit(entry),
            _offsets(entry),
            *(_number(getattr(entry.counts, name, None)) for name in outcomes),
            _number(entry.without_record if entry.counts else None),
            verdict(entry, findings),
        ]
        for entry in reversed(entries)
    ]
    return columns, rows


def partitions(
    entries: Sequence[Entry],
    rows: Mapping[Range | None, Held] | None = None,
    letters: Mapping[Range | None, Held] | None = None,
) -> Cells:
    """A row a partition; what the tables hold of it where they were read."""
    deep = bool(rows or letters)
    columns = ["topic id", "partition", "first offset", "next offset", "offsets", "commits"]
    columns += ["rows", "dead letters", "neither"] if deep else []
    found = []
    for covered in coverage(entries):
        cells = [covered.start, covered.end, covered.end - covered.start, covered.commits]
        if deep:
            here = [_held(table, covered) for table in (rows or {}, letters or {})]
            cells += [*here, covered.end - covered.start - sum(here)]
        found.append([covered.topic[1], str(covered.partition), *map(_number, cells)])
    return columns, found


def summary(entries: Sequence[Entry], findings: Sequence[Finding]) -> str:
    """The whole ledger in one sentence."""
    counts, faults = totals(entries), unsound(findings)
    told = " + ".join(f"{n:,} {_words(name)}" for name, n in counts.outcomes.items() if n or name == "rows")
    said = f"{counts.consumed:,} records consumed {'=' if counts.adds_up else '≠'} {told}"
    if without := sum(entry.without_record for entry in entries):
        said += f"; {without:,} offsets without a record"
    return f"{said}. {f'Faults: {len(faults):,}' if faults else 'Everything adds up'}"


def findings_table(findings: Iterable[Finding]) -> Cells:
    """A row a finding, faults first."""
    ordered = sorted(findings, key=lambda finding: not finding.fault)
    return ["kind", "finding"], [["fault" if f.fault else "note", f.said] for f in ordered]


def as_json(entries: Sequence[Entry], findings: Sequence[Finding]) -> dict[str, Any]:
    """The ledger as plain values; offsets are [start inclusive, end exclusive] by partition."""
    return {
        "holds": not unsound(findings),
        "totals": asdict(totals(entries)),
        "offsets_without_record": sum(entry.without_record for entry in entries),
        "partitions": [asdict(covered) for covered in coverage(entries)],
        "commits": [
            {
                "snapshot_id": entry.snapshot_id,
                "committed_at": entry.committed_at.isoformat(),
                "kind": entry.kind,
                "operation": entry.operation,
                "offsets": {p: [entry.batch.start.get(p), end] for p, end in entry.batch.end.items()}
                if entry.batch
                else None,
                "counts": asdict(entry.counts) if entry.counts else None,
                "added": entry.added,
                "deleted": entry.deleted,
                "verdict": verdict(entry, findings),
            }
            for entry in entries
        ],
        "findings": [asdict(finding) for finding in findings],
    }


def _commit(entry: Entry) -> str:
    if entry.kind != "foreign":
        return entry.kind
    # The branch of a table's first batch begins at a snapshot without rows.
    empty = not entry.has_parent and not entry.added
    return "empty table" if empty else f"another writer's {entry.operation}"


def _offsets(entry: Entry) -> str:
    if entry.batch is None:
        return "–"
    moved = [
        (p, entry.batch.start[p], end) for p, end in sorted(entry.batch.end.items()) if end != entry.batch.start[p]
    ]
    return ", ".join(f"{p}: {start}–{end - 1}" for p, start, end in moved) or "none"


def _held(table: Mapping[Range | None, Held], of: Coverage) -> int:
    return sum(held.rows for r, held in table.items() if r and (r.topic, r.partition) == (of.topic, of.partition))


def _words(name: str) -> str:
    return name.replace("_", " ")


def _number(value: int | None) -> str:
    return "–" if value is None else f"{value:,}"
