"""A derived topic: which groups the new rows touch, all rows of those groups, and the result as messages."""

from __future__ import annotations

from collections.abc import Mapping
from functools import reduce

import pyarrow as pa
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.avro.functions import to_avro

from lakehouse.core import metadata, naming
from lakehouse.core.batch import Positions
from lakehouse.core.errors import ConfigError
from lakehouse.core.framing import frame
from lakehouse.core.sql import SPARK
from lakehouse.formats.avro import field_names
from spark.decoded import PREFIX
from spark.records import is_new
from spark.spans import SPANNED, bound, literal


def published(spark: SparkSession, namespace: str, table: str, snapshot_id: int, names: Mapping[str, str]) -> DataFrame:
    """One snapshot of a table, whatever is published meanwhile.

    Parameters: `names` are the table's names of metadata columns, by their internal ones, which the result has.
    Raises: ConfigError when the records have a field of such an internal name.
    """
    rows = spark.read.option("versionAsOf", snapshot_id).table(naming.spark_table(namespace, table))
    internal = {name.lower() for name, in_table in names.items() if name != in_table}
    if fields := [column for column in rows.columns if column.lower() in internal]:
        raise ConfigError(
            f"Records in table {namespace}.{table} have a field '{fields[0]}', which is what transforms call the "
            f"metadata column. Nothing was produced. Rename the field in the schema"
        )
    return rows.withColumnsRenamed({name: internal for internal, name in names.items()})


def rows_of_touched_groups(source: DataFrame, new: DataFrame, group_by: tuple[str, ...]) -> DataFrame:
    """All rows of each group in which at least one row is new."""
    column = {c: F.col(SPARK.identifier(c)) for c in group_by}
    touched = new.select(*[column[c].alias(f"{PREFIX}{c}") for c in group_by]).distinct()
    # The span of what is touched prunes files by their statistics before any row is compared.
    types = {field.name: field.dataType for field in new.schema if isinstance(field.dataType, SPANNED)}
    spans = [
        F.struct(bound(F.min(column[c]), types[c]), bound(F.max(column[c]), types[c])) for c in group_by if c in types
    ]
    [(_, *found)] = new.agg(F.count(F.lit(1)), *spans).collect()
    for name, (low, high) in zip([c for c in group_by if c in types], found, strict=True):
        if low is not None:
            ends = (literal(value, types[name]) for value in (low, high))
            source = source.filter(column[name].isNull() | column[name].between(*ends))
    pairs = [(column[c], F.col(SPARK.identifier(f"{PREFIX}{c}"))) for c in group_by]
    same_group = reduce(lambda a, b: a & b, [ours.eqNullSafe(theirs) for ours, theirs in pairs])
    return source.join(touched, same_group, "leftsemi")


def rows_between(source: DataFrame, start: Positions, end: Positions) -> DataFrame:
    """The rows of offsets by partition from `start` (inclusive) to `end` (exclusive)."""
    return source.filter(is_new(start) & ~is_new(end))


def late_rows(source: DataFrame, before: DataFrame, since: Positions) -> DataFrame:
    """The rows of offsets before `since` that an older snapshot of the table did not have."""
    origin = ["kafka_partition", "kafka_offset"]
    return source.filter(~is_new(since)).join(before.select(*origin), origin, "leftanti")


def own_columns(result: DataFrame) -> DataFrame:
    """A transform's result without the source's metadata columns: the derived table has its own."""
    return result.drop(*map(metadata.internal, metadata.registered()))


def messages(result: DataFrame, key: tuple[int, str] | None, value: tuple[int, str]) -> pa.Table:
    """Rows → Avro messages in the Confluent wire format.

    Parameters: `key` and `value` are (registry id, schema); their fields are columns of `result`. Without a key,
    messages have none.
    Returns: two binary columns, `key` and `value`, one row a message, brought to this process.
    """
    keys = _encode(*key) if key else F.lit(None).cast("binary")
    return result.select(keys.alias("key"), _encode(*value).alias("value")).toArrow()


def _encode(id_: int, schema: str) -> Column:
    return F.concat(F.lit(frame(id_)), to_avro(F.struct(*field_names(schema)), schema))
