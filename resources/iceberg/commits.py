"""Commits to a table: the publication of a staging branch, changes by other programs, and the clocks of the writers."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from functools import partial
from typing import TYPE_CHECKING

from lakehouse.core.errors import ClockSkew, CommitConflict, TransientError, UnclearState, Unreachable
from lakehouse.core.offsets.batch import Batch
from lakehouse.core.table_protocol import IDENTITY, OFFSETS_TAG, REPLAY, REPLAY_TAG, REPLAYS
from resources.iceberg.bookmarked_table import identity_of
from resources.iceberg.snapshots import batch_of, lacks_newest_batch, newest_batch, summary_of

if TYPE_CHECKING:
    from pyiceberg.manifest import DataFile
    from pyiceberg.table import Table
    from pyiceberg.table.update import TableRequirement, TableUpdate
    from pyspark.sql import SparkSession


NEWEST_FORMAT = 2
"""Newest Iceberg format version that this release commits to."""

FILE_FORMATS = ("write.format.default", "write.delete.format.default")
"""Properties of the formats of files that Spark writes (Iceberg, Configuration: write properties)."""


def require_format(table: Table) -> None:
    """Require a format version that this release can commit to, and files in Parquet.

    Raises:
        UnclearState: The table was upgraded to a newer one, where pyiceberg cannot publish and deletion vectors are
            not audited; or Spark would write files in another format, whose rows the audit cannot count.
    """
    if table.format_version > NEWEST_FORMAT:
        raise UnclearState(
            f"Table {'.'.join(table.name())} has Iceberg format version {table.format_version}, and this release "
            f"writes versions up to {NEWEST_FORMAT}. Nothing was changed. Iceberg has no downgrade: drop the table and "
            f"ingest the topic again, or choose another `table`"
        )
    for name in FILE_FORMATS:
        if (file_format := table.properties.get(name, "parquet")).lower() != "parquet":
            raise UnclearState(
                f"Table {'.'.join(table.name())} has the property {name} = {file_format}, which another program set, "
                f"and this release writes and audits files in Parquet only. Nothing was changed. Remove the property "
                f"(in Spark: ALTER TABLE … UNSET TBLPROPERTIES ('{name}')), and retry the run or command"
            )


def publication(
    table: Table, branch: str, base: int | None, properties: Mapping[str, str]
) -> tuple[tuple[TableRequirement, ...], tuple[TableUpdate, ...]]:
    """Return the requirements and updates (Iceberg REST specification: CommitTableRequest) that publish a branch.

    The commit makes the head of the branch the head of main, drops the branch and sets the properties. It counts a
    branch that may have rows of records which were read before: that of a redrive or replay, of the first batch after a
    rollback, and of a batch that ends before the newest batch ever published. A tag on the newest batch, and one on the
    newest replay until a batch follows it, show later whether main was rolled back behind them.

    Args:
        table: The table as loaded when the branch was audited.
        branch: The staging branch.
        base: Snapshot id that main must still have; None if it must not exist.
        properties: Table properties to set.
    """
    from pyiceberg.table.update import (
        AssertRefSnapshotId,
        AssertTableUUID,
        RemoveSnapshotRefUpdate,
        SetPropertiesUpdate,
        SetSnapshotRefUpdate,
    )

    audited = table.metadata.refs[branch].snapshot_id
    requirements = (
        AssertTableUUID(uuid=table.metadata.table_uuid),
        AssertRefSnapshotId(ref="main", snapshot_id=base),
        AssertRefSnapshotId(ref=branch, snapshot_id=audited),
    )
    reference = partial(SetSnapshotRefUpdate, max_ref_age_ms=None, max_snapshot_age_ms=None, min_snapshots_to_keep=None)
    updates: tuple[TableUpdate, ...] = (
        reference(ref_name="main", type="branch", snapshot_id=audited),
        RemoveSnapshotRefUpdate(ref_name=branch),
    )
    snapshot = table.snapshot_by_id(audited)
    assert snapshot is not None
    batch, is_replay = batch_of(snapshot), REPLAY in summary_of(snapshot)
    if is_replay:
        updates += (reference(ref_name=REPLAY_TAG, type="tag", snapshot_id=audited),)
    if batch:
        updates += (reference(ref_name=OFFSETS_TAG, type="tag", snapshot_id=audited),)
        if REPLAY_TAG in table.metadata.refs:
            updates += (RemoveSnapshotRefUpdate(ref_name=REPLAY_TAG),)
    if is_replay or (batch and _may_repeat(table, batch)):
        properties = {REPLAYS: str(int(table.properties.get(REPLAYS, 0)) + 1), **properties}
    if IDENTITY not in table.properties:
        properties = {IDENTITY: identity_of(table), **properties}
    if properties:
        updates += (SetPropertiesUpdate(updates=dict(properties)),)
    return requirements, updates


def add_files(table: Table, branch: str, files: Sequence[DataFile], summary: Mapping[str, str]) -> None:
    """Add data files to a branch in one commit.

    The branch keeps its age limit, which pyiceberg would remove. If the commit conflicts with another one, pyiceberg
    repeats it, without the limit, and a staging branch without a limit counts as lost.

    Args:
        table: The table as just loaded.
        branch: The branch, which exists.
        files: The files, which no snapshot has.
        summary: Properties for the summary of the snapshot.
    """
    from pyiceberg.table.update.snapshot import ManageSnapshots

    age_limit = table.metadata.refs[branch].max_ref_age_ms
    with _without_history(table).transaction() as transaction:
        with transaction.update_snapshot(dict(summary), branch).fast_append() as append:
            for file in files:
                append.append_data_file(file)
        added = transaction.table_metadata.refs[branch].snapshot_id
        ManageSnapshots(transaction).create_branch(added, branch, max_ref_age_ms=age_limit).commit()


def _without_history(table: Table) -> Table:
    """Return a table with the snapshots that its branches and tags name.

    A transaction of pyiceberg copies the metadata about twenty times, and a snapshot takes 50 µs each time. Its commit
    consists of requirements and updates, which the catalog applies to the whole metadata.
    """
    from pyiceberg.table import Table

    named = {reference.snapshot_id for reference in table.metadata.refs.values()}
    snapshots = [snapshot for snapshot in table.metadata.snapshots if snapshot.snapshot_id in named]
    metadata = table.metadata.model_copy(update={"snapshots": snapshots, "snapshot_log": [], "metadata_log": []})
    return Table(table.name(), metadata, table.metadata_location, table.io, table.catalog)


def _may_repeat(table: Table, batch: Batch) -> bool:
    """Return whether a batch may have records that were read before.

    The offsets of the first batch after a rollback do not show it: an operator, or `start`, may skip the records of the
    batches that main lacks since.
    """
    newest = newest_batch(table)
    return newest is not None and (batch.ends_before(newest) or lacks_newest_batch(table))


@contextmanager
def detect_conflict(table: Table) -> Iterator[None]:
    """Raise CommitConflict if a commit is refused because another program changed or dropped the table."""
    from pyiceberg.exceptions import CommitFailedException, NoSuchTableError

    try:
        yield
    except NoSuchTableError as error:
        raise dropped_error(".".join(table.name())) from error
    except CommitFailedException as error:
        raise CommitConflict(
            f"Another writer changed {'.'.join(table.name())} ({error}). Nothing was changed. Retry the run or command"
        ) from error


def dropped_error(name: str) -> CommitConflict:
    """Return the error for a table that another program dropped while a commit to it was prepared."""
    return CommitConflict(
        f"Another program dropped table {name} while a commit to it was prepared. If another table has its name now, "
        f"that one was left unchanged. Retry the run or command"
    )


def layout_error(name: str) -> CommitConflict:
    """Return the error for a table whose columns or partitions changed after files of it were written."""
    return CommitConflict(
        f"Another program changed the columns or partitions of {name} while files of it were written. The batch was "
        f"not published. Retry the run or command"
    )


def not_iceberg_error(system: str, name: str) -> UnclearState:
    """Return the error for a table whose name another object has, such as a view or a table of Hive."""
    return UnclearState(
        f"{system} has an object {name} that is not an Iceberg table. It was left unchanged. Drop or rename it, or "
        f"choose another `table` or namespace in lakehouse.yaml"
    )


def unknown_outcome(name: str, unreachable: Unreachable) -> TransientError:
    """Return the error for a commit that failed, or whose response was lost, to a table that cannot be looked up."""
    return TransientError(
        f"The outcome of a commit to {name} is unknown: {unreachable.problem}",
        "The batch is either published or not; no part of it is",
        "Retry the run or command: it continues after the rows that are published",
    )


MAX_SKEW_SECONDS = 30
"""Half of Iceberg's tolerance: another writer may commit between the comparison and this commit."""


def now_ms() -> int:
    """Return this machine's time in milliseconds since the epoch."""
    return time.time_ns() // 1_000_000


def format_utc(milliseconds: int) -> str:
    """Return a time in milliseconds since the epoch as text, in UTC."""
    return datetime.fromtimestamp(milliseconds / 1000, UTC).isoformat(sep=" ", timespec="seconds")


def require_spark_clock(spark: SparkSession) -> None:
    """Require that this machine's clock and Spark's agree, since both commit to the same tables.

    Raises:
        ClockSkew: They differ by more than `MAX_SKEW_SECONDS`, in either direction.
    """
    before = now_ms()
    [(spark_time,)] = spark.sql("SELECT unix_millis(current_timestamp())").collect()
    after = now_ms()
    skew = max(before - spark_time, spark_time - after) / 1000
    if skew > MAX_SKEW_SECONDS:
        direction = "ahead of" if before > spark_time else "behind"
        raise ClockSkew(
            f"{format_utc(after)} UTC, {skew:.0f} s {direction} Spark's ({format_utc(spark_time)} UTC)",
            "Iceberg refuses commits to a history whose times go back",
        )
