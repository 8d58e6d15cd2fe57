"""The guards that every branch passes before it is published."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, field
from functools import reduce
from typing import TYPE_CHECKING, Any

from lakehouse.config.checks import CONSERVATION, KEY_NOT_NULL, Severity
from lakehouse.core import naming
from lakehouse.core.batch import PART, PARTS
from lakehouse.core.errors import CommitConflict, LakehouseError
from lakehouse.core.sql import SPARK
from resources.snapshots import history

if TYPE_CHECKING:
    from uuid import UUID

    from pyiceberg.manifest import DataFile
    from pyiceberg.table import Table
    from pyiceberg.table.snapshots import Snapshot
    from pyspark.sql import SparkSession

    from lakehouse.core.counts import Counts
    from spark.checks import Result

MOST_SINCE = 5
"""Snapshots of which each file is looked at; before more of them, Iceberg's planning is quicker."""

_WITHOUT_NULLS: dict[tuple[UUID, tuple[str, ...]], int] = {}
"""By table and columns, a snapshot in which this process found no null: a stream need not read all manifests again."""


@dataclass(frozen=True)
class Finding:
    """One result: the check, whether it holds, a sentence and the numbers behind it; of a declared check, what it
    found."""

    check: str
    passed: bool
    said: str
    numbers: dict[str, Any] = field(default_factory=dict)
    severity: Severity = "blocking"
    result: Result | None = None

    @property
    def blocks(self) -> bool:
        """Whether the batch must not be published."""
        return not self.passed and self.severity == "blocking"


class AuditFailed(LakehouseError):
    """The rows stay on their branch; main and the offsets are as before."""

    def __init__(self, table: str, branch: str, findings: list[Finding], then: str):
        """
        Args:
            table: Name of the table.
            branch: The branch with the rows.
            findings: Everything that was found.
            then: What happens next.
        """
        failed = "; ".join(f"{finding.check}: {finding.said}" for finding in findings if finding.blocks)
        super().__init__(
            f"The batch for {table} did not pass its audit ({failed}). Main and the offsets were left untouched. "
            f"Each check's result shows failing rows, and the SQL that finds all of them in branch '{branch}': correct "
            f"what they come from, or declare otherwise what may fail (docs/checks.md, When a check fails); {then}"
        )
        self.findings = findings


@dataclass(frozen=True)
class Staged:
    """Rows on a branch, and what they are compared with.

    Attributes:
        branch: The branch's name.
        base: The snapshot that the branch was at before; None where the table had none.
        summary: Properties in the summary of the snapshot that completes a write, such as a batch's token or a
            replay's range.
        writes: How many writes there were.
        offsets: The most records that were read.
        counts: What became of the records, as Spark counted while it wrote.
    """

    branch: str
    base: int | None
    summary: Mapping[str, str]
    writes: int
    offsets: int
    counts: Counts


def audit(spark: SparkSession, table: Table, key: tuple[str, ...], staged: Staged) -> list[Finding]:
    """Check rows on a branch, whatever lakehouse.yaml declares.

    Args:
        spark: The session.
        table: The table, loaded after the rows were written.
        key: The columns that must not be null.
        staged: The rows.

    Raises:
        CommitConflict: The branch was made at a snapshot that another writer published meanwhile, or another writer
            dropped it between the commits of a write.
    """
    return [_conservation(table, staged), _key_not_null(spark, table, key, staged.branch)]


def _conservation(table: Table, staged: Staged) -> Finding:
    """Every record read has one outcome, and Iceberg committed as many rows, in commits of this writer alone.

    Offsets without a record are normal where a topic is compacted or its producers use transactions (commit markers);
    Spark itself fails when a broker no longer has records it was asked for (failOnDataLoss).
    """
    counts, commits = staged.counts, _commits(table, staged)
    completing = [snapshot for snapshot in commits if _completes(snapshot, staged)]
    strange = [str(s.snapshot_id) for s in commits if s not in completing and not _is_silent(s)]
    published = {snapshot.snapshot_id for snapshot in history(table)} if len(commits) > staged.writes else set()
    if any(snapshot.snapshot_id in published for snapshot in commits):
        raise CommitConflict(
            f"Another writer changed {'.'.join(table.name())} while this batch was prepared. The batch was not "
            f"published; run it again"
        )
    if any(_lacks_parts(commits[place:]) for place, snapshot in enumerate(commits) if snapshot in completing):
        raise CommitConflict(
            f"Another writer dropped branch '{staged.branch}' of {'.'.join(table.name())} while rows were deleted and "
            f"appended there, so that the rows to delete are still in it. The batch was not published; run it again"
        )
    committed = sum(map(committed_rows, completing))
    numbers = asdict(counts) | {
        "committed_rows": committed,
        "offsets_without_record": staged.offsets - counts.consumed,
    }
    details = ", ".join(f"{name} {n:,}" for name, n in numbers.items() if n or name in ("consumed", "rows"))
    passed = counts.adds_up and counts.consumed <= staged.offsets and committed == counts.rows
    if broken := [path for snapshot in commits for path in broken_files(table, snapshot)]:
        passed, details = False, f"{details}; {len(broken)} data files are missing or incomplete, such as {broken[0]}"
    if staged.writes and not completing:
        passed, details = False, f"{details}; the snapshot does not say that it holds this batch's offsets"
    elif len(completing) != staged.writes:
        passed, details = False, f"{details}; {len(completing)} commits belong to this batch, expected {staged.writes}"
    if strange:
        passed, details = False, f"{details}; the branch has snapshots of another writer: {', '.join(strange)}"
    return Finding(CONSERVATION, passed, details, numbers)


def _commits(table: Table, staged: Staged) -> Sequence[Snapshot]:
    """The snapshots of the branch after its base, newest first."""
    found = []
    snapshot = table.snapshot_by_name(staged.branch)
    while snapshot is not None and snapshot.snapshot_id != staged.base:
        found.append(snapshot)
        snapshot = table.snapshot_by_id(snapshot.parent_snapshot_id) if snapshot.parent_snapshot_id else None
    return found


def _completes(snapshot: Snapshot, staged: Staged) -> bool:
    """Whether a snapshot is the last, or only, part of a write."""
    return not _is_silent(snapshot) and staged.summary.items() <= _summary(snapshot).items()


def _lacks_parts(commits: Sequence[Snapshot]) -> bool:
    """Return whether a commit is not preceded by all parts that it completes.

    Args:
        commits: The commit, then those before it, newest first.
    """
    parts = int(_summary(commits[0]).get(PARTS, 1))
    before = [PART in _summary(snapshot) for snapshot in commits[1:parts]]
    return len(before) < parts - 1 or not all(before)


def _is_silent(snapshot: Snapshot) -> bool:
    """Whether a snapshot is the first part of a write, or the empty one that a branch of a new table begins with."""
    summary = _summary(snapshot)
    first = snapshot.parent_snapshot_id is None and summary.get("total-records", "0") == "0"
    return PART in summary or first


def _summary(snapshot: Snapshot) -> dict[str, str]:
    return snapshot.summary.additional_properties if snapshot.summary else {}


def broken_files(table: Table, snapshot: Snapshot) -> list[str]:
    """Data files that a snapshot added and that are not in the store with all of their rows, by what their footers
    say."""
    added = added_files(table, snapshot)
    with ThreadPoolExecutor(max_workers=8) as pool:
        rows = pool.map(lambda file: _footer_rows(table, file.file_path), added)
        return [file.file_path for file, found in zip(added, rows, strict=True) if found != file.record_count]


def added_files(table: Table, snapshot: Snapshot) -> list[DataFile]:
    """The files, of rows and of deletes, that a snapshot added."""
    from pyiceberg.manifest import ManifestEntryStatus

    return [
        entry.data_file
        for manifest in snapshot.manifests(table.io)
        if manifest.added_snapshot_id == snapshot.snapshot_id
        for entry in manifest.fetch_manifest_entry(table.io)
        if entry.status == ManifestEntryStatus.ADDED
    ]


def _footer_rows(table: Table, path: str) -> int | None:
    """Rows of a Parquet file by its footer; None when there is none to read."""
    import pyarrow.parquet as pq
    from pyarrow import ArrowInvalid

    try:
        with table.io.new_input(path).open() as file:
            rows: int = pq.read_metadata(file).num_rows
            return rows
    except (FileNotFoundError, ArrowInvalid):
        return None


def committed_rows(snapshot: Snapshot) -> int:
    """Rows that a commit inserted or updated, as Iceberg counted them (Iceberg, Spark writes: snapshot summary)."""
    summary = _summary(snapshot)
    merged = [summary.get(f"spark.merge-into.num-target-rows-{kind}") for kind in ("inserted", "updated")]
    if merged[0] is not None:
        return sum(int(n or 0) for n in merged)
    return int(summary.get("added-records", 0))


def _key_not_null(spark: SparkSession, table: Table, key: tuple[str, ...], branch: str) -> Finding:
    """No row of the branch has a null in a key column. Spark looks only where the files' statistics do not say so."""
    from pyspark.sql import functions as F

    nulls = 0
    if key and _may_hold_nulls(table, branch, key):
        any_null = F.lit(False)
        for column in key:
            any_null |= F.col(SPARK.identifier(column)).isNull()
        nulls = spark.table(naming.spark_table(*table.name(), branch=branch)).filter(any_null).count()
    if key and not nulls:
        _WITHOUT_NULLS[table.metadata.table_uuid, key] = table.metadata.refs[branch].snapshot_id
    columns = ", ".join(key) or "no key is declared"
    return Finding(KEY_NOT_NULL, nulls == 0, f"{nulls:,} rows with a null key ({columns})", {"null_keys": nulls})


def _may_hold_nulls(table: Table, branch: str, columns: tuple[str, ...]) -> bool:
    """Whether a file of the branch may have a null in one of the columns, by the files' statistics.

    Where this process found none in an ancestor, only files that came since are looked at.
    """
    from pyiceberg.expressions import BooleanExpression, IsNull, Or, Reference
    from pyiceberg.manifest import DataFileContent

    staged = table.metadata.refs[branch].snapshot_id
    proven = _WITHOUT_NULLS.get((table.metadata.table_uuid, columns))
    since = _since(table, staged, proven) if proven else None
    if since is not None:
        ids = [table.schema().find_field(column).field_id for column in columns]
        added = (file for snapshot in since for file in added_files(table, snapshot))
        rows = (file for file in added if file.content == DataFileContent.DATA)
        return any((file.null_value_counts or {}).get(id_) != 0 for file in rows for id_ in ids)
    nulls: list[BooleanExpression] = [IsNull(term=Reference(column)) for column in columns]
    any_null = reduce(Or, nulls)
    return any(True for _ in table.scan(any_null, snapshot_id=staged).plan_files())


def _since(table: Table, newest: int, oldest: int) -> list[Snapshot] | None:
    """The snapshots after `oldest` up to `newest`; None where there are many, or it is no ancestor."""
    found: list[Snapshot] = []
    snapshot = table.snapshot_by_id(newest)
    while snapshot is not None and len(found) < MOST_SINCE:
        if snapshot.snapshot_id == oldest:
            return found
        found.append(snapshot)
        snapshot = table.snapshot_by_id(snapshot.parent_snapshot_id) if snapshot.parent_snapshot_id else None
    return None
