"""Write decoded rows as one commit on a branch, in one pass that also counts outcomes."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import replace
from typing import Any

from pyspark.sql import Column, DataFrame, Observation, SparkSession
from pyspark.sql import functions as F
from pyspark.sql import types as T

from lakehouse.core.offsets.batch import Batch, Counts
from lakehouse.core.sql import SPARK
from lakehouse.core.table_protocol import BRANCH_DAYS
from lakehouse.core.tables.naming import TableRef
from lakehouse.pipeline.engine_values import Mode, Target, Written
from lakehouse.pipeline.spilled_records import SpilledRecords
from spark.decoding.conditions import is_true, some
from spark.decoding.decoded import PREFIX, record, table_columns
from spark.tables import commits, dead_letters, merge
from spark.tables.observed_counts import digest, observed_counts
from spark.tables.other_records import RECORD, collected, may_be_kept


def create_branch(spark: SparkSession, ref: TableRef, branch: str, snapshot_id: int | None = None) -> None:
    """Create a branch with an age limit, by which it differs from one that Iceberg creates for a commit.

    Args:
        spark: The Spark session.
        ref: The table.
        branch: The name of the branch.
        snapshot_id: The snapshot at which it begins; if None, the head of main, or an empty snapshot in a table without
            snapshots.
    """
    version = "" if snapshot_id is None else f" AS OF VERSION {snapshot_id:d}"
    spark.sql(
        f"ALTER TABLE {ref.spark_path()} CREATE BRANCH {SPARK.identifier(branch)}{version} RETAIN {BRANCH_DAYS} DAYS"
    )


def null_keys(rows: DataFrame, key: Sequence[str]) -> int:
    """Return the number of rows with a null in a key column."""
    return rows.filter(some([column.isNull() for column in _quoted(key)])).count()


def rows(
    decoded: DataFrame,
    target: Target,
    mode: Mode,
    key: tuple[str, ...],
    *,
    empty: bool,
    origin: tuple[str, str] | None = None,
    truncated: bool = False,
    keeping: Batch | None = None,
) -> Written:
    """Write decoded records according to the mode, in one pass.

    Args:
        decoded: The decoded records; see spark.decoding.decode.
        target: The branch.
        mode: How records change the table.
        key: The columns that identify a row.
        empty: Whether the table has no rows yet.
        origin: The table's columns of Kafka partitions and timestamps; None if the records of a key are in one
            partition, or the table has no timestamps.
        truncated: Whether a record deletes all rows.
        keeping: The range of the records, to return their dead letters; they have headers.
    """
    if keeping and not may_be_kept(decoded.sparkSession, keeping.topic):
        keeping = None
    match mode:
        case "append":
            return append(decoded, target)
        case "dedup":
            return dedup(decoded, target, key, empty, keeping)
        case _:
            return upsert(decoded, target, key, empty, origin, truncated, keeping)


def nothing(spark: SparkSession, target: Target) -> None:
    """Commit an empty snapshot for the properties in its summary."""
    commits.append(spark.table(commits.path(target)).limit(0), target)


def append(decoded: DataFrame, target: Target) -> Written:
    """Append the good rows.

    Args:
        decoded: The decoded records; see spark.decoding.decode.
        target: The branch.
    """
    observation, records = _observe(decoded)
    added = merge.add(_rows_of(target, records, decoded.schema), target)
    return written(observed_counts(observation), rows=added)


def dedup(
    decoded: DataFrame, target: Target, key: tuple[str, ...], empty: bool, keeping: Batch | None = None
) -> Written:
    """Append the first good record of each key that the table lacks.

    Args:
        decoded: The decoded records; see spark.decoding.decode.
        target: The branch.
        key: The columns that identify a row.
        empty: Whether the table has no rows to compare with.
        keeping: The range of the records, to keep the dead letters; see `rows`.
    """
    observation, records = _with_dead(decoded, keeping)
    first, of_keys = _one_a_key(records, key, F.min_by, keeping)
    rows = _rows_of(target, first, decoded.schema, *_kept(keeping))
    with merge.cached(rows) if keeping or not empty else nullcontext(rows) as cache:
        rows = _rows_in(cache, keeping)
        added = merge.add(rows, target) if empty else merge.add_missing(rows, target, key)
        others = _others_in(cache, keeping)
    counts, keys = observed_counts(observation), observed_counts(of_keys)
    in_table = keys["kept"] - added
    return replace(written(counts, rows=added, deduplicated=keys["others"] + in_table), others=others)


def upsert(
    decoded: DataFrame,
    target: Target,
    key: tuple[str, ...],
    empty: bool,
    origin: tuple[str, str] | None,
    truncated: bool = False,
    keeping: Batch | None = None,
) -> Written:
    """Replace the row of each key by its newest good record; a tombstone deletes the row.

    A row of another partition with a later timestamp remains.

    Args:
        decoded: The decoded records; see spark.decoding.decode.
        target: The branch.
        key: The columns that identify a row.
        empty: Whether the table has no rows to replace.
        origin: The table's columns of Kafka partitions and timestamps, or None; see `rows`.
        truncated: Whether a record deletes all rows.
        keeping: The range of the records, to keep the dead letters; see `rows`.
    """
    observation, records = _with_dead(decoded, keeping)
    changes = records.filter(record("reason").isNotNull() | (~record("truncated") & ~record("truncate")))
    latest, of_keys = _one_a_key(changes, key, F.max_by, keeping)
    late = merge.LateRecords()
    rows = _rows_of(target, latest, decoded.schema, record("tombstone"), *_kept(keeping))
    with merge.cached(rows) if keeping or not empty else nullcontext(rows) as cache:
        rows = _rows_in(cache, keeping)
        if empty:
            merge.add_living(rows, target)
        else:
            late = merge.replace(rows, target, key, origin, truncated=truncated)
        others = _others_in(cache, keeping)
    counts, keys = observed_counts(observation), observed_counts(of_keys)
    result = written(
        counts,
        rows=keys["kept"] - keys["tombstones"] - late.rows,
        tombstones=keys["tombstones"] - late.tombstones + counts["truncate"],
        superseded=keys["others"] + late.rows + late.tombstones + counts["truncated"],
    )
    return replace(result, others=others)


def _with_dead(decoded: DataFrame, keeping: Batch | None) -> tuple[Observation, DataFrame]:
    """Return the good records, and the dead letters if they are kept, with counts of all records."""
    if keeping is None:
        return _observe(decoded)
    observation, observed = observe(decoded)
    return observation, observed.filter(record("reason").isNotNull() | ~record("filtered"))


def _one_a_key(
    records: DataFrame,
    key: tuple[str, ...],
    choose: Callable[[Column, Column], Column],
    keeping: Batch | None,
) -> tuple[DataFrame, Observation]:
    """Return one record per key: the newest (max_by) or the oldest (min_by); and each dead letter, in RECORD.

    Kafka orders the records of a partition. Those of a key are in one partition, unless partitions were added or keys
    do not determine it; then timestamps order the newest (or oldest) record of each.

    Returns:
        The records, and the counts `kept`, how many of them are `tombstones`, and `others` with the same keys.
    """
    is_dead, dead_offset = record("reason").isNotNull(), record("dead_offset")
    # With the key as it was: Spark groups by 0.0 in place of -0.0.
    columns = [*_quoted(table_columns(records.columns)), record("tombstone"), record("timestamp")]
    # Each dead letter is a group of its own.
    dead: list[Column] = []
    if keeping:
        dead = [F.when(is_dead, record("offset")).alias(PREFIX + "dead_offset")]
        columns.append(F.when(is_dead, dead_letters.source_record(keeping.topic)).alias(RECORD))
    of_partitions = records.groupBy(*_quoted(key), record("partition"), *dead).agg(
        choose(F.struct(*columns), record("offset")).alias(PREFIX), F.count(F.lit(1)).alias(PREFIX + "number")
    )
    # The partition makes the choice deterministic.
    order, number = F.struct(F.col(PREFIX)[PREFIX + "timestamp"], record("partition")), record("number")
    dead = [F.when(dead_offset.isNotNull(), F.struct(record("partition"), dead_offset))] if keeping else []
    chosen = of_partitions.groupBy(*_quoted(key), *dead).agg(
        choose(F.col(PREFIX), order).alias(PREFIX), F.sum(number).alias(PREFIX + "number")
    )
    is_good = F.col(RECORD).isNull() if keeping else F.lit(True)
    observation = Observation()
    observed = chosen.select(f"{PREFIX}.*", number).observe(
        observation,
        F.count_if(is_good).alias("kept"),
        F.count_if(is_true(is_good & record("tombstone"))).alias("tombstones"),
        F.coalesce(F.sum(F.when(is_good, number - 1)), F.lit(0)).alias("others"),
    )
    return observed.drop(PREFIX + "number"), observation


def _kept(keeping: Batch | None) -> list[Column]:
    """Return the column of a cache that has the dead letters, if they are kept."""
    return [F.col(RECORD)] if keeping else []


def _rows_in(cache: DataFrame, keeping: Batch | None) -> DataFrame:
    """Return the rows in a cache that may also have dead letters."""
    return cache.filter(F.col(RECORD).isNull()).drop(RECORD) if keeping else cache


def _others_in(cache: DataFrame, keeping: Batch | None) -> SpilledRecords | None:
    """Return the dead letters in a cache; None if they are not kept, or too many."""
    others = collected(cache.filter(F.col(RECORD).isNotNull()), keeping.topic) if keeping else None
    return None if keeping is None or others is None else SpilledRecords(keeping, others)


def _quoted(columns: Iterable[str]) -> list[Column]:
    """Return columns by names, which may contain dots."""
    return [F.col(SPARK.identifier(name)) for name in columns]


def written(observed: Mapping[str, int], **outcomes: int) -> Written:
    """Return the result of a write.

    Args:
        observed: The counts of `observe`.
        outcomes: Further counts of outcomes.
    """
    common = {name: observed[name] for name in ("consumed", "dead_letters", "filtered")}
    names = ["unknown_schema", "quarantined", "bad_key", "dead_digest", "check_digest", "snapshot_starts"]
    details: Any = {name: observed[name] for name in [*names, "ignored_header_ids"]}
    return Written(Counts(**common, **outcomes), **details)


def _observe(decoded: DataFrame) -> tuple[Observation, DataFrame]:
    """Return the good records, with counts of all records."""
    observation, observed = observe(decoded)
    return observation, observed.filter(record("reason").isNull() & ~record("filtered"))


def observe(decoded: DataFrame) -> tuple[Observation, DataFrame]:
    """Return records, with counts of their outcomes that are taken in the same pass.

    The observation also prevents Spark from decoding twice, once to filter and once to write.
    """
    # Spark Connect analyzes the query for each DataFrame whose schema is requested. Those derived from this one by
    # `observe` and `filter` have it without another request.
    _ = decoded.schema
    observation = Observation()
    reason, filtered, is_quarantined = record("reason"), record("filtered"), record("check").isNotNull()
    is_dead, origin = reason.isNotNull(), (record("partition"), record("offset"))
    observed = decoded.observe(
        observation,
        F.count(F.lit(1)).alias("consumed"),
        F.count_if(is_dead).alias("dead_letters"),
        F.count_if(filtered).alias("filtered"),
        F.count_if(reason == "unknown_schema").alias("unknown_schema"),
        F.count_if(is_quarantined).alias("quarantined"),
        F.count_if(reason == "bad_key").alias("bad_key"),
        F.count_if(is_true(reason.isNull() & ~filtered & record("truncate") & ~record("truncated"))).alias("truncate"),
        F.count_if(is_true(reason.isNull() & ~filtered & record("truncated"))).alias("truncated"),
        F.count_if(record("snapshot_start")).alias("snapshot_starts"),
        F.count_if(record("ignored_header_id")).alias("ignored_header_ids"),
        digest(*origin, is_dead).alias("dead_digest"),
        digest(*origin, is_quarantined).alias("check_digest"),
    )
    return observation, observed


def _rows_of(target: Target, rows: DataFrame, decoded: T.StructType, *extra: Column) -> DataFrame:
    """Return the columns of a branch's table; see `table_rows`."""
    return table_rows(rows, decoded, rows.sparkSession.table(commits.path(target)).schema, *extra)


def table_rows(rows: DataFrame, decoded: T.StructType, of_table: Iterable[T.StructField], *extra: Column) -> DataFrame:
    """Return the table's columns in the table's types; columns that the newest schema dropped are null.

    Args:
        rows: The rows.
        decoded: The schema of the decoded records, which has the types of the rows.
        of_table: The columns of the table.
        extra: Further columns.
    """
    types, columns = {field.name: field.dataType for field in decoded}, []
    for field in of_table:
        value = F.col(SPARK.identifier(field.name))
        value = _as_type(value, types[field.name], field.dataType) if field.name in types else _null(field.dataType)
        columns.append(value.alias(field.name))
    return rows.select(*columns, *extra)


def _as_type(value: Column, have: T.DataType, want: T.DataType) -> Column:
    """Convert a value to the table's type, with struct fields matched by name; a cast would match them by position."""
    if have == want:
        return value
    match have, want:
        case T.StructType(), T.StructType():
            types = {field.name: field.dataType for field in have}

            def part(of: T.StructField) -> Column:
                is_present = of.name in types
                return _as_type(value[of.name], types[of.name], of.dataType) if is_present else _null(of.dataType)

            return F.when(value.isNotNull(), F.struct(*(part(field).alias(field.name) for field in want)))
        case T.ArrayType(), T.ArrayType():
            return F.transform(value, lambda item: _as_type(item, have.elementType, want.elementType))
        case T.MapType(), T.MapType():
            return F.transform_values(value, lambda _, item: _as_type(item, have.valueType, want.valueType))
    return value.cast(want)


def _null(type_: T.DataType) -> Column:
    return F.lit(None).cast(type_)
