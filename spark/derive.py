"""Derive topics: read all rows of the groups that new rows touch, and encode the result as messages."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import reduce

import pyarrow as pa
from pyspark.errors import PySparkException
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.avro.functions import to_avro
from pyspark.sql.types import (
    ArrayType,
    DataType,
    DoubleType,
    FloatType,
    IntegerType,
    LongType,
    MapType,
    StructType,
    TimestampNTZType,
    TimestampType,
)

from lakehouse.core.errors import ConfigError, SchemaError
from lakehouse.core.offsets.batch import Positions
from lakehouse.core.sql import SPARK
from lakehouse.core.tables import metadata_columns
from lakehouse.core.tables.naming import TableRef
from lakehouse.formats.avro.avro_format import field_names
from lakehouse.formats.avro.avro_types import Type, parse
from lakehouse.formats.schema import RegisteredSchema, frame
from spark.decoding.decoded import PREFIX
from spark.records import is_new
from spark.tables.spans import SPANNED, bound, literal

TOO_FINE = "A time with microseconds has an Avro type of milliseconds"
"""The error that Spark raises for such a time."""


def published(spark: SparkSession, ref: TableRef, snapshot_id: int, names: Mapping[str, str]) -> DataFrame:
    """Return one snapshot of a table, regardless of later commits.

    Args:
        spark: The Spark session.
        ref: The table.
        snapshot_id: The snapshot.
        names: The table's names of metadata columns by their internal names, which the result has.

    Raises:
        ConfigError: The records have a field with such an internal name.
    """
    rows = spark.read.option("versionAsOf", snapshot_id).table(ref.spark_path())
    internal = {name.lower() for name, in_table in names.items() if name != in_table}
    if fields := [column for column in rows.columns if column.lower() in internal]:
        raise ConfigError(
            f"Records in table {ref} have a field '{fields[0]}', which is the internal name of a metadata column. "
            f"Nothing was produced. Rename the field in the schema"
        )
    return rows.withColumnsRenamed({name: internal for internal, name in names.items()})


def groups(rows: Sequence[DataFrame], group_by: tuple[str, ...]) -> DataFrame:
    """Return the columns of groups of all rows, which may be of snapshots with different columns."""
    columns = [part.select(*map(SPARK.identifier, group_by)) for part in rows]
    return reduce(lambda first, other: first.unionByName(other), columns)


def rows_of_touched_groups(source: DataFrame, new: DataFrame, group_by: tuple[str, ...]) -> DataFrame:
    """Return all rows of each group that contains at least one new row."""
    column = {c: F.col(SPARK.identifier(c)) for c in group_by}
    touched = new.select(*[column[c].alias(f"{PREFIX}{c}") for c in group_by]).distinct()
    # The minimum and maximum of the touched groups prune files by their statistics before rows are compared.
    types = {field.name: field.dataType for field in new.schema if isinstance(field.dataType, SPANNED)}
    spans = [
        F.struct(bound(F.min(column[c]), types[c]), bound(F.max(column[c]), types[c])) for c in group_by if c in types
    ]
    [(_, *bounds)] = new.agg(F.count(F.lit(1)), *spans).collect()
    for name, (low, high) in zip([c for c in group_by if c in types], bounds, strict=True):
        if low is not None:
            ends = (literal(value, types[name]) for value in (low, high))
            source = source.filter(column[name].isNull() | column[name].between(*ends))
    pairs = [(column[c], F.col(SPARK.identifier(f"{PREFIX}{c}"))) for c in group_by]
    same_group = reduce(lambda a, b: a & b, [source_column.eqNullSafe(key) for source_column, key in pairs])
    return source.join(touched, same_group, "leftsemi")


def changed_columns(rows: DataFrame, earlier: DataFrame) -> list[str]:
    """Return the columns of both whose values in the earlier rows are not values of the present type."""
    types = {field.name.lower(): field.dataType for field in earlier.schema}
    return [f.name for f in rows.schema if not _promotes(types.get(f.name.lower(), f.dataType), f.dataType)]


def _promotes(before: DataType, after: DataType) -> bool:
    """Return whether all values of a type are values of another one (Iceberg, Schema evolution)."""
    return (
        (isinstance(before, IntegerType) and isinstance(after, LongType))
        or (isinstance(before, FloatType) and isinstance(after, DoubleType))
        or before.simpleString() == after.simpleString()
    )


def as_rows_of(rows: DataFrame, earlier: DataFrame) -> DataFrame:
    """Return the rows of an earlier table in the columns of this one.

    Columns that it lacks, or has with values of another type, are null.
    """
    without = {name.lower() for name in changed_columns(rows, earlier)}
    columns = {name.lower(): F.col(SPARK.identifier(name)) for name in earlier.columns if name.lower() not in without}
    nothing = F.lit(None)
    return earlier.select(*[columns.get(f.name.lower(), nothing).cast(f.dataType).alias(f.name) for f in rows.schema])


def rows_between(source: DataFrame, start: Positions, end: Positions) -> DataFrame:
    """Return the rows with offsets from `start` (inclusive) to `end` (exclusive) by partition."""
    return source.filter(is_new(start) & ~is_new(end))


def late_rows(source: DataFrame, derived: Iterable[tuple[DataFrame, Positions]], since: Positions) -> DataFrame:
    """Return the rows with offsets before `since` that were not derived.

    Args:
        source: The rows.
        derived: Snapshots of the table, with the offsets before which their rows were derived.
        since: The offsets.
    """
    origin = ["kafka_partition", "kafka_offset"]
    late = source.filter(~is_new(since))
    for rows, end in derived:
        late = late.join(rows.filter(~is_new(end)).select(*origin), origin, "leftanti")
    return late


def first_rows(rows: DataFrame, number: int) -> DataFrame:
    """Return the first rows by partition and offset."""
    return rows.orderBy("kafka_partition", "kafka_offset").limit(number)


def own_columns(result: DataFrame) -> DataFrame:
    """Return a transform's result without the source's metadata columns; the derived table has its own."""
    names = (*metadata_columns.registered(), *metadata_columns.TABLEFLOW_ONLY)
    return result.drop(*map(metadata_columns.internal, names))


def ends(rows: DataFrame) -> Positions:
    """Return the offset after the last one of the rows, by partition."""
    last = rows.groupBy("kafka_partition").agg(F.max("kafka_offset"))
    return {partition: offset + 1 for partition, offset in last.collect()}


def messages(result: DataFrame, key: tuple[int, str] | None, value: tuple[int, str]) -> pa.Table:
    """Encode rows as Avro messages in the Confluent wire format, and collect them.

    Args:
        result: The rows.
        key: The registry id and schema of the keys, whose fields are columns of `result`; None for messages without
            keys.
        value: The registry id and schema of the values, likewise.

    Returns:
        Two binary columns, `key` and `value`, with one row per message.

    Raises:
        SchemaError: A schema has milliseconds for a time with microseconds.
    """
    keys = _encode(result, *key) if key else F.lit(None).cast("binary")
    try:
        return result.select(keys.alias("key"), _encode(result, *value).alias("value")).toArrow()
    except PySparkException as error:
        if TOO_FINE not in str(error):
            raise
        raise SchemaError(
            "The transform returned a time with microseconds, but its type in the Avro schema has milliseconds. The "
            "batch was not produced. Declare timestamp-micros in the schema file, or round the time in the transform"
        ) from error


def _encode(result: DataFrame, id_: int, schema: str) -> Column:
    message = F.concat(F.lit(frame(id_)), to_avro(F.struct(*field_names(schema)), schema))
    columns = {field.name.lower(): field.dataType for field in result.schema}
    for field in parse(RegisteredSchema(0, schema)).fields:
        if type_ := columns.get(field.name.lower()):
            for condition in _too_fine(SPARK.identifier(field.name), type_, field.type):
                message = F.when(F.expr(condition), F.raise_error(F.lit(TOO_FINE)).cast("binary")).otherwise(message)
    return message


def _too_fine(value: str, type_: DataType, written: Type, level: int = 0) -> Iterator[str]:
    """Yield SQL conditions, never null, under which a value contains a time that Spark would round to milliseconds.

    Args:
        value: The SQL expression of the value.
        type_: Its type.
        written: Its Avro type.
        level: The number of lists and maps that contain the value.
    """
    [branch, *others], item = written.branches or [written], f"x{level}"
    match type_:
        case TimestampType() | TimestampNTZType() if not others and (branch.logical or "millis").endswith("millis"):
            yield f"coalesce(extract(SECOND FROM {value}) * 1000 % 1 != 0, false)"
        case StructType():
            fields = {field.name.lower(): field.type for field in branch.fields}
            for part in type_:
                if inner := fields.get(part.name.lower()):
                    yield from _too_fine(f"{value}.{SPARK.identifier(part.name)}", part.dataType, inner, level)
        case ArrayType() if branch.kind == "array":
            for condition in _too_fine(item, type_.elementType, branch.inner[0], level + 1):
                yield f"coalesce(exists({value}, {item} -> {condition}), false)"
        case MapType() if branch.kind == "map":
            for condition in _too_fine(item, type_.valueType, branch.inner[0], level + 1):
                yield f"coalesce(exists(map_values({value}), {item} -> {condition}), false)"
