"""A ledger rendered as tables of text and as JSON, for the terminal and for the Dagster UI."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from typing import Any

from lakehouse.core.offsets.batch import OUTCOMES, describe_outcome
from lakehouse.core.offsets.ledger import (
    Coverage,
    Entry,
    LedgerFinding,
    OffsetRange,
    RangeContents,
    coverage,
    faults_of,
    totals,
    verdict,
)
from lakehouse.core.text import pluralize

Cells = tuple[list[str], list[list[str]]]
"""Column names, and rows with one cell per column."""


def commits(entries: Sequence[Entry], findings: Sequence[LedgerFinding]) -> Cells:
    """Return one row per commit, newest first. Outcomes with a total of zero are left out."""
    outcomes = [n for n in OUTCOMES if n in ("consumed", "rows", "dead_letters") or getattr(totals(entries), n)]
    names = [outcome.replace("_", " ") for outcome in outcomes]
    columns = ["committed (UTC)", "snapshot", "commit", "offsets", *names, "without record", "verdict"]
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
    rows: Mapping[OffsetRange | None, RangeContents] | None = None,
    letters: Mapping[OffsetRange | None, RangeContents] | None = None,
) -> Cells:
    """Return one row per partition, with the number of rows and dead letters if the tables were read."""
    has_counts = bool(rows or letters)
    columns = ["topic id", "partition", "first offset", "next offset", "offsets", "commits"]
    columns += ["rows", "dead letters", "neither"] if has_counts else []
    cell_rows = []
    for covered in coverage(entries):
        cells = [covered.start, covered.end, covered.end - covered.start, covered.commits]
        if has_counts:
            outcome_counts = [_row_count(table, covered) for table in (rows or {}, letters or {})]
            cells += [*outcome_counts, covered.end - covered.start - sum(outcome_counts)]
        cell_rows.append([covered.topic[1], str(covered.partition), *map(_number, cells)])
    return columns, cell_rows


def summary(entries: Sequence[Entry], findings: Sequence[LedgerFinding]) -> str:
    """Return the whole ledger in one sentence."""
    if not entries:
        return "The table does not exist, or has no commit: nothing was verified"
    counts, faults = totals(entries), faults_of(findings)
    outcomes = " + ".join(describe_outcome(name, n) for name, n in counts.outcomes.items() if n or name == "rows")
    sentence = f"{pluralize(counts.consumed, 'record')} consumed {'=' if counts.is_balanced else '≠'} {outcomes}"
    if without := sum(entry.without_record for entry in entries):
        sentence += f"; {pluralize(without, 'offset')} without a record"
    return f"{sentence}. {f'Faults: {len(faults):,}' if faults else 'Every offset is accounted for'}"


def findings_table(findings: Iterable[LedgerFinding]) -> Cells:
    """Return one row per finding, faults first."""
    ordered = sorted(findings, key=lambda finding: not finding.fault)
    return ["kind", "finding"], [["fault" if f.fault else "note", f.message] for f in ordered]


def as_json(entries: Sequence[Entry], findings: Sequence[LedgerFinding]) -> dict[str, Any]:
    """Return the ledger as JSON values; offsets are [start inclusive, end exclusive] by partition."""
    return {
        "is_consistent": not faults_of(findings),
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
    # The branch of a new table begins with an empty snapshot.
    empty = not entry.has_parent and not entry.added
    return "empty table" if empty else f"another writer's {entry.operation}"


def _offsets(entry: Entry) -> str:
    if entry.batch is None:
        return "–"
    moved = [
        (p, entry.batch.start[p], end) for p, end in sorted(entry.batch.end.items()) if end != entry.batch.start[p]
    ]
    return ", ".join(f"{p}: {start}–{end - 1}" for p, start, end in moved) or "none"


def _row_count(table: Mapping[OffsetRange | None, RangeContents], of: Coverage) -> int:
    return sum(
        contents.rows for r, contents in table.items() if r and (r.topic, r.partition) == (of.topic, of.partition)
    )


def _number(value: int | None) -> str:
    return "–" if value is None else f"{value:,}"
