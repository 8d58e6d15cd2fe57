"""What must hold on the branch before anybody else sees it."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, field
from functools import reduce
from typing import TYPE_CHECKING, Any

from lakehouse import naming
from lakehouse.batch import Batch
from lakehouse.checks import Severity
from lakehouse.errors import LakehouseError
from lakehouse.topic import Topic
from resources.catalog import batch_of

if TYPE_CHECKING:
    from pyiceberg.table import Table
    from pyiceberg.table.snapshots import Snapshot
    from pyspark.sql import SparkSession

    from lakehouse.counts import Counts
    from spark.checks import Result

CONSERVATION = "conservation"
KEY_NOT_NULL = "key_not_null"


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
    """The batch stays on its branch; main and the offsets are as before."""

    def __init__(self, table: str, branch: str, findings: list[Finding]):
        failed = "; ".join(f"{finding.check}: {finding.said}" for finding in findings if finding.blocks)
        super().__init__(
            f"The batch for {table} did not pass its audit ({failed}). Main and the offsets were left untouched. "
            f"Each check's result shows failing rows, and the SQL that finds all of them in branch '{branch}'. Mend "
            f"what they come from, or declare otherwise what may fail (docs/checks.md, When a check fails); the next "
            f"run drops the branch and takes the batch again"
        )
        self.findings = findings


def audit(
    spark: SparkSession, namespace: str, topic: Topic, table: Table, branch: str, batch: Batch, counts: Counts
) -> list[Finding]:
    """Check the staged batch.

    Parameters: `table` was loaded after the branch was written; `counts` are Spark's, taken while it wrote.
    """
    snapshot = table.snapshot_by_name(branch)
    assert snapshot is not None, f"branch {branch} was just written"
    return [_conservation(table, snapshot, batch, counts), _key_not_null(spark, namespace, topic, table, branch)]


def _conservation(table: Table, snapshot: Snapshot, batch: Batch, counts: Counts) -> Finding:
    """Every record read has one outcome, and Iceberg committed as many rows, in the
    commit that moves the position.

    Offsets without a record are normal where a topic is compacted or its producers use transactions (commit markers);
    Spark itself fails when a broker no longer has records it was asked for (failOnDataLoss).
    """
    committed = committed_rows(snapshot)
    numbers = asdict(counts) | {"committed_rows": committed, "offsets_without_record": batch.offsets - counts.consumed}
    said = ", ".join(f"{name} {n:,}" for name, n in numbers.items() if n or name in ("consumed", "rows"))
    passed = counts.adds_up and counts.consumed <= batch.offsets and committed == counts.rows
    if broken := broken_files(table, snapshot):
        passed, said = False, f"{said}; {len(broken)} data files are missing or incomplete, such as {broken[0]}"
    if batch_of(snapshot) != batch:
        passed, said = False, f"{said}; the snapshot does not say that it holds this batch's offsets"
    return Finding(CONSERVATION, passed, said, numbers)


def broken_files(table: Table, snapshot: Snapshot) -> list[str]:
    """Data files that a snapshot added and that are not in the store with all of their rows, by what their footers
    say."""
    from pyiceberg.manifest import ManifestEntryStatus

    added = [
        entry.data_file
        for manifest in snapshot.manifests(table.io)
        if manifest.added_snapshot_id == snapshot.snapshot_id
        for entry in manifest.fetch_manifest_entry(table.io)
        if entry.status == ManifestEntryStatus.ADDED
    ]
    with ThreadPoolExecutor(max_workers=8) as pool:
        rows = pool.map(lambda file: _footer_rows(table, file.file_path), added)
        return [file.file_path for file, found in zip(added, rows, strict=True) if found != file.record_count]


def _footer_rows(table: Table, path: str) -> int | None:
    """Rows of a Parquet file by its footer; None when there is none to read."""
    import pyarrow.parquet as pq
    from pyarrow import ArrowInvalid

    try:
        with table.io.new_input(path).open() as file:
            return pq.read_metadata(file).num_rows
    except (FileNotFoundError, ArrowInvalid):
        return None


def committed_rows(snapshot: Snapshot) -> int:
    """Rows that a commit inserted or updated, as Iceberg counted them (Iceberg, Spark writes: snapshot summary)."""
    assert snapshot.summary is not None
    summary = snapshot.summary.additional_properties
    merged = [summary.get(f"spark.merge-into.num-target-rows-{kind}") for kind in ("inserted", "updated")]
    if merged[0] is not None:
        return sum(int(n or 0) for n in merged)
    return int(summary.get("added-records", 0))


def _key_not_null(spark: SparkSession, namespace: str, topic: Topic, table: Table, branch: str) -> Finding:
    """No row of the branch has a null in a key column. Spark looks only where the files' statistics do not say so."""
    from pyspark.sql import functions as F

    nulls = 0
    if topic.key and _may_hold_nulls(table, branch, topic.key):
        any_null = F.lit(False)
        for column in topic.key:
            any_null |= F.col(naming.spark_identifier(column)).isNull()
        nulls = spark.table(naming.spark_table(namespace, topic.table, branch=branch)).filter(any_null).count()
    columns = ", ".join(topic.key) or "no key is declared"
    return Finding(KEY_NOT_NULL, nulls == 0, f"{nulls:,} rows with a null key ({columns})", {"null_keys": nulls})


def _may_hold_nulls(table: Table, branch: str, columns: tuple[str, ...]) -> bool:
    """Whether a file of the branch may have a null in one of the columns, by the files' statistics."""
    from pyiceberg.expressions import IsNull, Or, Reference

    staged = table.metadata.refs[branch].snapshot_id
    any_null = reduce(Or, (IsNull(Reference(column)) for column in columns))
    return any(True for _ in table.scan(any_null, snapshot_id=staged).plan_files())
