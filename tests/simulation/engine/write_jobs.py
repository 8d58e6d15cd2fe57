"""Simulated writes: the functions of spark.tables.write."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

from pyspark.errors.exceptions.connect import SparkException

from lakehouse.core.offsets.batch import Batch, Counts
from lakehouse.core.table_protocol import BRANCH_DAYS
from lakehouse.core.tables.naming import TableRef
from spark.tables import lost_rows
from spark.tables.target import Target
from spark.tables.write import Written
from tests.simulation.engine.decoding_jobs import Decoded, Outcome, digest
from tests.simulation.engine.memory_spark import MemorySpark, Row, branch_at
from tests.simulation.systems.kafka import Record


def create_branch(spark: MemorySpark, ref: TableRef, branch: str, snapshot_id: int | None = None) -> None:
    """Create a branch at a snapshot, or at the head of main; in a table without snapshots, at an empty snapshot."""

    def create() -> None:
        table = spark.load(ref)
        if branch in table.metadata.refs:
            raise SparkException(f"branch {branch} already exists")
        if snapshot_id is not None and table.snapshot_by_id(snapshot_id) is None:
            raise SparkException(f"snapshot {snapshot_id} does not exist")
        if (head := snapshot_id or table.metadata.current_snapshot_id) is None:
            spark.commit_files(table, branch, None, [])
            head = spark.load(ref).metadata.refs[branch].snapshot_id
        spark.iceberg.commit_now(spark.load(ref), (), (branch_at(branch, head, BRANCH_DAYS * 86_400_000),))

    spark.job("create_branch", create)


def nothing(spark: MemorySpark, target: Target) -> None:
    """Commit an empty snapshot."""
    planned = spark.job("plan", lambda: spark.head(target.ref, target.branch))
    spark.job("commit", lambda: spark.commit(target, planned))


def append(decoded: Decoded, target: Target) -> Written:
    """Append the good rows."""
    spark, outcomes = decoded.records.spark, planned(decoded, target)
    good = [o.record for o in outcomes if o.is_good]
    spark.job("commit", lambda: spark.commit(target, None, [Row(record) for record in good]))
    return _written(outcomes, rows=len(good))


def dedup(decoded: Decoded, target: Target, key: tuple[str, ...], empty: bool) -> Written:
    """Append the first good record of each key that the table lacks."""
    spark, outcomes = decoded.records.spark, planned(decoded, target)
    good = [o.record for o in outcomes if o.is_good]
    present = set() if empty else {row.record.key for row in spark.rows(target.ref, target.branch)}
    first = {record.key: record for record in reversed(_in_order(good)) if record.key not in present}
    spark.job("commit", lambda: spark.commit(target, None, [Row(record) for record in first.values()]))
    return _written(outcomes, rows=len(first), deduplicated=len(good) - len(first))


def upsert(decoded: Decoded, target: Target, key: tuple[str, ...], empty: bool) -> Written:
    """Replace the row of each key by its newest good record, in two commits; a tombstone deletes the row."""
    spark, outcomes = decoded.records.spark, planned(decoded, target)
    good = _in_order([o.record for o in outcomes if o.is_good])
    identity = _identity(key)
    newest = {identity(record): record for record in good}
    rows = [Row(record) for record in newest.values() if record.value is not None]
    if empty:
        spark.job("commit", lambda: spark.commit(target, None, rows))
    else:
        head = spark.job("plan", lambda: spark.head(target.ref, target.branch))
        keep = lambda row: identity(row.record) not in newest  # noqa: E731
        spark.job("commit deletes", lambda: spark.commit(target.deleting(), head, keep=keep))
        spark.job("plan", lambda: spark.head(target.ref, target.branch))
        spark.job("commit", lambda: spark.commit(target.completing(), None, rows))
    tombstones = len(newest) - len(rows)
    return _written(outcomes, rows=len(rows), tombstones=tombstones, superseded=len(good) - len(newest))


def require_none(
    spark: MemorySpark, base: int | None, target: Target, pieces: Sequence[Decoded], batch: Batch, *columns: Any
) -> None:
    """Require that each row of main is on a branch, or that a record which was read replaces or removes it.

    It is no job of its own: the error of one is that of the write before it.
    """
    if base is None:
        return
    after = {row.record.key: row.record for row in spark.rows(target.ref, target.branch)}
    outcomes = [outcome for piece in pieces for outcome in piece.outcomes()]
    places = {(o.record.partition, o.record.offset) for o in outcomes}
    good = [o.record for o in outcomes if o.is_good]
    lost = []
    for record in (row.record for row in spark.rows(target.ref, "main", base)):
        place, is_newer = (record.partition, record.offset), functools.partial(_is_as_new, record)
        is_read = batch.start.get(record.partition, 0) <= record.offset < batch.end.get(record.partition, 0)
        states = [*filter(None, [after.get(record.key)]), *good]
        if is_read and place not in places and not any(map(is_newer, states)):
            lost.append(place)
    if lost:
        raise lost_rows.compacted(batch.topic, lost)


def _is_as_new(record: Record, other: Record) -> bool:
    if record.key != other.key:
        return False
    return record.partition != other.partition or record.offset <= other.offset


def planned(decoded: Decoded, target: Target) -> list[Outcome]:
    """Read the records for a write to a branch, which must exist."""
    spark = decoded.records.spark

    def plan() -> list[Outcome]:
        spark.head(target.ref, target.branch)
        return decoded.outcomes()

    return spark.job("read", plan)


def _identity(key: tuple[str, ...]) -> Callable[[Record], Any]:
    if key == ("kafka_partition", "kafka_offset"):
        return lambda record: (record.partition, record.offset)
    return lambda record: record.key


def _in_order(records: Sequence[Record]) -> list[Record]:
    return sorted(records, key=lambda record: (record.offset, record.at, record.partition))


def _written(outcomes: Sequence[Outcome], **counts: int) -> Written:
    dead = [o for o in outcomes if o.reason]
    failing = [o for o in dead if o.reason == "check"]
    return Written(
        Counts(consumed=len(outcomes), dead_letters=len(dead), filtered=sum(o.is_filtered for o in outcomes), **counts),
        unknown_schema=sum(o.reason == "unknown_schema" for o in dead),
        quarantined=len(failing),
        dead_digest=digest(o.record for o in dead),
        check_digest=digest(o.record for o in failing),
    )
