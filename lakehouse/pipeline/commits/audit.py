"""Guards that every staged branch must pass before it is published."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import reduce
from itertools import islice, takewhile
from typing import Any
from uuid import UUID

from pyiceberg.expressions import BooleanExpression, IsNull, Or, Reference
from pyiceberg.manifest import DataFileContent
from pyiceberg.table import Table
from pyiceberg.table.snapshots import Snapshot

from lakehouse.config.checks import KEY_NOT_NULL, RECORD_COUNT, Severity
from lakehouse.core.errors import CommitConflict, LakehouseError
from lakehouse.core.offsets.batch import Counts
from lakehouse.core.table_protocol import OWN, PART, PARTS
from lakehouse.core.tables.naming import TableRef
from lakehouse.pipeline.commits import footers
from lakehouse.pipeline.commits.footers import Bounds, added_files
from lakehouse.pipeline.engine import Engine
from lakehouse.pipeline.engine_values import ADDS_ROWS, CheckedRows, JobFailed, NullKeys
from resources.iceberg.snapshots import history, require_position_deletes, summary_of

MAX_SNAPSHOTS_BY_FILE = 5
"""Maximum number of snapshots whose files are inspected one by one; above it, Iceberg's scan planning is faster."""

_NULL_FREE_SNAPSHOTS: dict[tuple[UUID, tuple[int, ...]], int] = {}
"""Newest snapshot without null keys that this process has seen, by table UUID and ids of the key columns.

Another column may have the name of a key column by now. A stream inspects only the files that were added since, instead
of all manifests for every batch.
"""


@dataclass(frozen=True)
class CheckResult:
    """Result of one check on a batch.

    Attributes:
        check: The name of the check.
        passed: Whether the check passed.
        message: The result as a sentence.
        numbers: The numbers behind the message, by name.
        severity: What a failure does to the batch.
        result: Rows that a declared check counted and sampled; None for built-in guards.
    """

    check: str
    passed: bool
    message: str
    numbers: dict[str, Any] = field(default_factory=dict)
    severity: Severity = "blocking"
    result: CheckedRows | None = None

    @property
    def blocks(self) -> bool:
        """True if the result prevents the batch from being published."""
        return not self.passed and self.severity == "blocking"


REMEDIES = {
    RECORD_COUNT: "Retry the run or command: the rows were not written completely, or another program wrote to the "
    "branch",
    KEY_NOT_NULL: "Delete the rows without a key from the table, or correct `key` in lakehouse.yaml",
}
"""What resolves a failure of a built-in guard, which lakehouse.yaml cannot relax."""


class AuditFailed(LakehouseError):
    """A batch failed its audit. Its rows stay on the branch; main and the stored offsets are unchanged."""

    def __init__(self, table: str, branch: str, findings: list[CheckResult], then: str):
        """Compose the message from the blocking results.

        Args:
            table: The name of the table.
            branch: The branch that contains the rows.
            findings: All results of the audit.
            then: What happens to the branch next.
        """
        blocking = [finding for finding in findings if finding.blocks]
        failed = "; ".join(f"{finding.check}: {finding.message}" for finding in blocking)
        relax = (
            "The check results contain failing rows and the SQL that lists all of them: fix the source data, or relax "
            "the check in lakehouse.yaml (docs/rejected-data.md, When a check fails)"
        )
        remedies = ". ".join(dict.fromkeys(REMEDIES.get(finding.check, relax) for finding in blocking))
        super().__init__(
            f"The batch for {table} did not pass its audit ({failed}). main and the stored offsets are unchanged. "
            f"{remedies}. Branch '{branch}' has the rows; {then}"
        )
        self.findings = findings


def is_incomplete(findings: Sequence[CheckResult]) -> bool:
    """Return whether rows were not written completely, by the results of their audit: a retry may succeed."""
    return any(finding.blocks and finding.check == RECORD_COUNT for finding in findings)


@dataclass(frozen=True)
class Staged:
    """Rows on a branch, and the numbers that they are compared with.

    Attributes:
        branch: The name of the branch.
        base: The snapshot of the branch before the writes; None if the table had none.
        summary: Properties in the summary of the snapshot that completes a write, such as the batch's token or the
            range of a replay.
        offsets: The number of offsets that were read: the upper bound of the number of records.
        writes: Outcomes of the records of each write, in order, as Spark counted them.
        place: The columns with the partition and the offset of a row; none if its bounds are not compared.
        extent: The first offset (inclusive) and the end (exclusive) of each partition that was read, as the broker had
            them.
    """

    branch: str
    base: int | None
    summary: Mapping[str, str]
    offsets: int
    writes: Sequence[Counts]
    place: tuple[str, ...] = ()
    extent: Mapping[int, Bounds] = field(default_factory=dict)


def audit(engine: Engine, table: Table, key: tuple[str, ...], staged: Staged) -> list[CheckResult]:
    """Run the built-in guards, which apply whatever lakehouse.yaml declares.

    Args:
        engine: The engine.
        table: The table, loaded after the rows were written.
        key: The columns that must not be null.
        staged: The rows.

    Raises:
        CommitConflict: Another writer published a snapshot after the branch was created, or dropped the branch between
            the commits of a write.
    """
    findings = [_record_count(table, staged)]
    try:
        findings.append(_key_not_null(engine, table, key, staged.branch))
    except JobFailed:
        # The engine cannot read a file that is missing, which the first guard has found.
        if not is_incomplete(findings):
            raise
    return findings


def _record_count(table: Table, staged: Staged) -> CheckResult:
    """Check that each consumed record has one outcome, and that each commit has as many rows as Spark counted, by
    Iceberg's summary and by the footers of the files, with offsets that were read.

    Only commits of this writer may be on the branch. Offsets without a record are normal if a topic is compacted or its
    producers use transactions (commit markers). Spark itself fails if the broker has deleted requested records
    (failOnDataLoss).
    """
    counts, commits = sum(staged.writes, Counts()), _commits(table, staged)
    completing = [snapshot for snapshot in commits if _completes(snapshot, staged)]
    completing_ids = {snapshot.snapshot_id for snapshot in completing}
    foreign_ids = [str(s.snapshot_id) for s in commits if s.snapshot_id not in completing_ids and not _is_silent(s)]
    published = {snapshot.snapshot_id for snapshot in history(table)} if len(commits) > len(staged.writes) else set()
    if any(snapshot.snapshot_id in published for snapshot in commits):
        raise CommitConflict(
            f"Another writer changed {'.'.join(table.name())} while this batch was prepared. The batch was not "
            f"published. Retry the run or command"
        )
    if any(_lacks_parts(commits[i:]) for i, s in enumerate(commits) if s.snapshot_id in completing_ids):
        raise CommitConflict(
            f"Another writer dropped branch '{staged.branch}' of {'.'.join(table.name())} between the commit that "
            f"deletes rows and the one that appends them, so the rows to delete remain. The batch was not "
            f"published. Retry the run or command"
        )
    # The sums of several writes may agree although one lacks rows and another has too many.
    writes = [
        _that_add_rows(commits[i:]) for i, s in reversed([*enumerate(commits)]) if s.snapshot_id in completing_ids
    ]
    committed, written = [sum(map(committed_rows, of)) for of in writes], [write.rows for write in staged.writes]
    files = {s.snapshot_id: footers.read(table, s, staged.place) for s in commits}
    in_files = [sum(_rows_in(files[s.snapshot_id]) for s in of) for of in writes]
    numbers = vars(counts) | {
        "committed_rows": sum(committed),
        "rows_in_files": sum(in_files),
        "offsets_without_record": staged.offsets - counts.consumed,
    }
    details = ", ".join(f"{name} {n:,}" for name, n in numbers.items() if n or name in ("consumed", "rows"))
    passed = counts.is_balanced and counts.consumed <= staged.offsets and committed == written
    added = [file for snapshot in commits for file in files[snapshot.snapshot_id]]
    if broken := [file.file.file_path for file in added if file.is_broken]:
        passed, details = False, f"{details}; {len(broken)} data files are missing or incomplete, such as {broken[0]}"
    elif in_files != committed and not any(map(_copies_rows, completing)):
        passed, details = False, f"{details}; the files of its commits have {in_files} rows, expected {committed}"
    comparable = [file for s in commits if not _copies_rows(s) for file in files[s.snapshot_id]]
    if strange := [f.file.file_path for f in comparable if f.has_rows and not f.is_within(staged.place, staged.extent)]:
        passed = False
        details = f"{details}; {len(strange)} data files have rows of other offsets, such as {strange[0]}"
    if staged.writes and not completing:
        passed, details = False, f"{details}; no snapshot has exactly the properties of this batch"
    elif len(completing) != len(written):
        passed, details = False, f"{details}; {len(completing)} commits belong to this batch, expected {len(written)}"
    elif committed != written and len(written) > 1:
        details = f"{details}; its writes committed {committed} rows, expected {written}"
    if foreign_ids:
        passed, details = False, f"{details}; the branch has snapshots of another writer: {', '.join(foreign_ids)}"
    return CheckResult(RECORD_COUNT, passed, details, numbers)


def _commits(table: Table, staged: Staged) -> Sequence[Snapshot]:
    """Return the snapshots of the branch after its base, newest first."""
    newest = table.snapshot_by_name(staged.branch)
    snapshots = history(table, newest.snapshot_id) if newest else ()
    return list(takewhile(lambda snapshot: snapshot.snapshot_id != staged.base, snapshots))


def _completes(snapshot: Snapshot, staged: Staged) -> bool:
    """Return whether a snapshot is the last or only commit of a write.

    It has no other property of the project, such as the offsets of another batch, which would become the position.
    """
    properties = {name: value for name, value in _own_properties(snapshot).items() if name != PARTS}
    return not _is_silent(snapshot) and properties == staged.summary


def _lacks_parts(commits: Sequence[Snapshot]) -> bool:
    """Return whether a commit is not preceded by all the partial commits that it completes.

    Args:
        commits: The commit followed by its ancestors, newest first.
    """
    parts = int(summary_of(commits[0]).get(PARTS, 1))
    are_parts = [PART in summary_of(snapshot) for snapshot in commits[1:parts]]
    return len(are_parts) < parts - 1 or not all(are_parts)


def _that_add_rows(commits: Sequence[Snapshot]) -> list[Snapshot]:
    """Return a commit and those of the partial commits that it completes which add rows.

    Args:
        commits: The commit followed by its ancestors, newest first.
    """
    parts = int(summary_of(commits[0]).get(PARTS, 1))
    return [commits[0], *(snapshot for snapshot in commits[1:parts] if summary_of(snapshot).get(PART) == ADDS_ROWS)]


def _is_silent(snapshot: Snapshot) -> bool:
    """Return whether a snapshot is a partial commit, or the empty first snapshot of a new table's branch."""
    properties = _own_properties(snapshot)
    first = snapshot.parent_snapshot_id is None and summary_of(snapshot).get("total-records", "0") == "0"
    return properties.keys() == {PART} or (first and not properties)


def _own_properties(snapshot: Snapshot) -> dict[str, str]:
    return {name: value for name, value in summary_of(snapshot).items() if name.startswith(OWN)}


def _rows_in(files: Sequence[footers.AddedFile]) -> int:
    """Return the number of rows in the footers of data files."""
    return sum(file.rows or 0 for file in files if file.has_rows)


def _copies_rows(snapshot: Snapshot) -> bool:
    """Return whether the files of a commit also have rows that it left unchanged (Iceberg, copy-on-write)."""
    summary = summary_of(snapshot)
    return any(int(summary.get(n, 0)) for n in ("spark.merge-into.num-target-rows-copied", "deleted-data-files"))


def committed_rows(snapshot: Snapshot) -> int:
    """Return the number of rows that a commit inserted or updated, as Iceberg counted them.

    Source: Iceberg, Spark writes: snapshot summary.
    """
    summary = summary_of(snapshot)
    merged = [summary.get(f"spark.merge-into.num-target-rows-{kind}") for kind in ("inserted", "updated")]
    if merged[0] is not None:
        return sum(int(n or 0) for n in merged)
    return int(summary.get("added-records", 0))


def _key_not_null(engine: Engine, table: Table, key: tuple[str, ...], branch: str) -> CheckResult:
    """Check that no row of the branch has a null in a key column.

    Rows are read only if the file statistics do not rule out nulls.
    """
    nulls = 0
    if key and _may_hold_nulls(table, branch, key):
        nulls = engine.count(NullKeys(TableRef(*table.name()), branch, key))
    if key and not nulls:
        _NULL_FREE_SNAPSHOTS[table.metadata.table_uuid, _ids(table, key)] = table.metadata.refs[branch].snapshot_id
    columns = ", ".join(key) or "no key is declared"
    return CheckResult(KEY_NOT_NULL, nulls == 0, f"{nulls:,} rows with a null key ({columns})", {"null_keys": nulls})


def _may_hold_nulls(table: Table, branch: str, columns: tuple[str, ...]) -> bool:
    """Return whether the statistics of the branch's files allow a null in one of the columns.

    If this process found none in an ancestor, only the files that were added since are inspected.
    """
    staged_id = table.metadata.refs[branch].snapshot_id
    ids = _ids(table, columns)
    null_free = _NULL_FREE_SNAPSHOTS.get((table.metadata.table_uuid, ids))
    snapshots = _since(table, staged_id, null_free) if null_free else None
    if snapshots is not None:
        added = (file for snapshot in snapshots for file in added_files(table, snapshot))
        rows = (file for file in added if file.content == DataFileContent.DATA)
        return any((file.null_value_counts or {}).get(id_) != 0 for file in rows for id_ in ids)
    nulls: list[BooleanExpression] = [IsNull(term=Reference(column)) for column in columns]
    any_null = reduce(Or, nulls)
    require_position_deletes(table, staged_id)
    return any(True for _ in table.scan(any_null, snapshot_id=staged_id).plan_files())


def _ids(table: Table, columns: tuple[str, ...]) -> tuple[int, ...]:
    return tuple(table.schema().find_field(column).field_id for column in columns)


def _since(table: Table, newest: int, oldest: int) -> list[Snapshot] | None:
    """Return the snapshots after `oldest` up to `newest`; None if there are too many or `oldest` is not an ancestor."""
    snapshots: list[Snapshot] = []
    for snapshot in islice(history(table, newest), MAX_SNAPSHOTS_BY_FILE):
        if snapshot.snapshot_id == oldest:
            return snapshots
        snapshots.append(snapshot)
    return None
