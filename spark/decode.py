"""Message bytes → rows, or the reason why not.

Decoding stays in the JVM. Each writer schema id decodes with its own writer schema into the table's schema; the frame
is Confluent's: a zero byte, the schema id as four bytes big endian, then the body (Schema Registry, Wire format).
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import DataType

from lakehouse.core.metadata import internal, registered
from spark import framing
from spark.conditions import first_of
from spark.decoded import PREFIX, record

Mode = Literal["append", "dedup", "upsert", "debezium"]

REASONS = {
    "null_value": "The value is null, and an append table has no row for it",
    "not_framed": "The value is not in the Confluent wire format: a zero byte and a 4-byte schema id come first",
    "unknown_schema": "The registry knows no schema of the id in the value that could be this table's",
    "undecodable": "The value does not decode with the schema of its id",
    "bad_key": "A key column is missing: the message key cannot be read, or the value holds null",
    "no_row": "The change event holds no row after the change",
    "poison": "Decoding the record ended the work that tried it",
    "unknown_operation": "The change event's operation is none that changes one row",
    "check": "The row fails a check that quarantines it",
    "unfit_schema": "The value does not decode, and its schema is one that does not fit the table",
    "schema_limit": "The registry was not asked about the schema id in the value: records of the batch name too many "
    "that the topic does not have. `lakehouse redrive` asks about it",
    "other_type": "The value is of another record type than the topic's, by the name in the schema of its id",
}
"""Why a record is a dead letter: a stable code and a sentence. New ones go last: tables hold their numbers."""


class Codec(Protocol):
    """How one side of a message, key or value, becomes columns. Every format is one of these."""

    @property
    def columns(self) -> list[str]:
        """The columns it yields, in order."""
        ...

    def decode(self, data: Column) -> Column:
        """Read bytes, into a struct that `finished` takes."""
        ...

    def finished(self, struct: Column) -> Column:
        """Return what was read as `struct<row: struct<columns>, good: boolean>`; `good` is true where it was decoded.

        Nothing of the project's own is beside a field of a message, which may have any name.

        Args:
            struct: what `decode` returned, as a column that is computed once however often it is used.
        """
        return struct

    def schema_id(self, data: Column) -> Column:
        """The id of the writer's schema where it is known, else null."""
        ...

    def framed(self, data: Column) -> Column:
        """Whether `data` looks like this format at all."""
        ...

    def explain(self, data: bytes) -> str | None:
        """Return why a message does not decode: field, rule and position, and never a value; None where unknown.

        It runs in Spark's Python workers, too, and so needs no session.

        Args:
            data: The whole message, as the broker has it.
        """
        return None

    def other(self, data: Column) -> Column:
        """Whether `data` is of a known schema, and not of the record type that this codec decodes."""
        return F.lit(False)


@dataclass(frozen=True)
class Decoding:
    """How a topic's records become rows.

    `key` is the codec of message keys where they are decoded. `key_columns` must not be null. `columns` are the
    table's own columns. `several` says that the topic holds records of other types too. `others` are those schema ids
    of other types that are known: their records are another table's or, where not `several`, dead letters. `unfit` are
    ids of versions that do not fit the table. `absent` are ids that the registry has no usable schema of, where it was
    not asked about every other one too. `metadata` are the table's names of metadata columns by their internal ones.
    `quarantine` are checks by name: conditions in SQL under which a row is no row.
    """

    value: Codec
    key: Codec | None
    columns: tuple[str, ...]
    key_columns: tuple[str, ...]
    mode: Mode
    registered: bool = True
    others: frozenset[int] = frozenset()
    unfit: frozenset[int] = frozenset()
    absent: frozenset[int] | None = None
    several: bool = False
    metadata: Mapping[str, str] = field(default_factory=dict)
    quarantine: Mapping[str, str] = field(default_factory=dict)

    @property
    def needs_headers(self) -> bool:
        """Whether rows hold headers, which Spark reads only when asked to."""
        return any(column.needs_headers for name, column in registered().items() if internal(name) in self.metadata)


def decode(records: DataFrame, how: Decoding) -> DataFrame:
    """Decode records into rows, or find the reason why not.

    Args:
        records: as spark.records reads them.
        how: how they become rows.

    Returns:
        The table's columns and metadata columns by the names that they have in the table, and those of spark.decoded.
    """
    data = F.col("value")
    decoded = records.select(
        "*",
        how.value.decode(data).alias("v"),
        how.value.schema_id(data).alias("schema_id"),
        (how.key.decode(F.col("key")) if how.key else F.lit(None)).alias("k"),
    )
    decoded = decoded.withColumns(
        {name: codec.finished(F.col(name)) for name, codec in (("v", how.value), ("k", how.key)) if codec}
    )
    rows = _change_events(decoded, how) if how.mode == "debezium" else _records(how)
    columns = _columns(decoded, how, rows)
    filtered = rows.filtered
    if how.several:
        filtered |= F.coalesce(how.value.other(data), F.lit(False))
        filtered |= how.value.framed(data) & framing.names_one_of(how.others, data)
    others = list(rows.faults)
    if how.key:
        others.append((F.col("key").isNotNull() & ~_is_good("k"), "bad_key"))
    others += [(columns[name].isNull(), "bad_key") for name in how.key_columns]
    reason = F.when(~filtered, F.coalesce(F.when(~rows.empty, _first(_value_faults(how, data))), _first(others)))
    # Whoever filters by the reason would otherwise make Spark decode once for each column that the reason depends on:
    # it filters before it computes columns, unless one of them is not deterministic.
    reason = F.when(F.monotonically_increasing_id() >= 0, reason)
    result = _result(decoded, columns, how, filtered, rows.deleted, reason)
    if not how.quarantine:
        return result
    good = record("reason").isNull() & ~record("filtered") & ~record("tombstone")
    failed = [(good & F.expr(fails), F.lit(name)) for name, fails in how.quarantine.items()]
    check = first_of(failed)
    result = result.withColumn(PREFIX + "check", check)
    reason = F.when(record("check").isNotNull(), "check").otherwise(record("reason"))
    return result.withColumn(PREFIX + "reason", reason)


def refused(records: DataFrame, how: Decoding, reason: str) -> DataFrame:
    """Return records as `decode` does, none of them touched, all of them refused for one reason."""
    records = records.withColumn("schema_id", F.lit(None).cast("int"))
    columns = {name: F.lit(None) for name in how.columns}
    never = F.lit(False)
    # Not a constant, which would let Spark leave out the work that counts these records.
    return _result(records, columns, how, never, never, F.when(F.col("offset") >= 0, reason))


def _result(
    records: DataFrame, columns: Mapping[str, Column], how: Decoding, filtered: Column, deleted: Column, reason: Column
) -> DataFrame:
    metadata = {internal(name): F.expr(column.expression) for name, column in registered().items()}
    there = ("partition", "offset", "timestamp", "schema_id", "key", "value", "headers")
    about = {name: F.col(name) for name in there if name != "headers" or name in records.columns} | {
        "timestamp_type": metadata["kafka_timestamp_type"],
        "filtered": filtered,
        "tombstone": deleted,
        "reason": reason,
        "check": F.lit(None).cast("string"),
    }
    return records.select(
        *(column.alias(name) for name, column in columns.items()),
        *(metadata[known].alias(name) for known, name in how.metadata.items()),
        *(column.alias(PREFIX + name) for name, column in about.items()),
    )


def is_decodable(decoded: DataFrame) -> bool:
    """Whether decoding comes to an end, good or bad records alike; nothing is written."""
    from pyspark.errors import AnalysisException, PySparkException

    try:
        decoded.write.format("noop").mode("overwrite").save()
    except AnalysisException:
        # It was not even begun: no record is to blame.
        raise
    except PySparkException:
        return False
    return True


@dataclass(frozen=True)
class _Rows:
    """Where a mode finds the rows in decoded records: `row` and `old` are structs, the row after and before."""

    row: Column
    old: Column | None
    empty: Column
    deleted: Column
    filtered: Column
    faults: list[tuple[Column, str]]


def _records(how: Decoding) -> _Rows:
    """Each value is a row; in an upsert, a null value deletes."""
    null = F.col("value").isNull()
    if how.mode == "upsert":
        return _Rows(F.col("v.row"), None, empty=null, deleted=null, filtered=F.lit(False), faults=[])
    never = F.lit(False)
    return _Rows(F.col("v.row"), None, empty=never, deleted=never, filtered=never, faults=[])


def _change_events(decoded: DataFrame, how: Decoding) -> _Rows:
    """Debezium's envelope: `after` is the row for create, update and snapshot read, `before` for delete (Debezium, Data
    change events). The null value that follows a delete says it once more; without a key it says nothing."""
    row = F.col("v.row")
    null, operation = F.col("value").isNull(), row["op"]
    deleted = F.coalesce((operation == "d") | (null if how.key else F.lit(False)), F.lit(False))
    filtered = F.coalesce(operation == "m", F.lit(False))
    if not how.key:
        filtered |= null
    old = row["before"] if "before" in how.value.columns else None
    faults = [
        (~null & ~F.coalesce(operation.isin("c", "r", "u", "d"), F.lit(False)), "unknown_operation"),
        (operation.isin("c", "r", "u") & row["after"].isNull(), "no_row"),
    ]
    return _Rows(row["after"], old, empty=null, deleted=deleted, filtered=filtered, faults=faults)


def _columns(decoded: DataFrame, how: Decoding, rows: _Rows) -> dict[str, Column]:
    """The table's columns: the row's; a key that the row does not tell is the message's, or the row's before."""
    from_key = set(how.key.columns) if how.key else set()
    types = _row_types(decoded, how) if from_key or how.mode == "debezium" else {}
    in_value = set(how.value.columns) if how.mode != "debezium" else set(how.columns) - (from_key - types.keys())
    columns = {}
    for name in how.columns:
        if name not in in_value:
            columns[name] = F.col("k.row")[name]
            continue
        columns[name] = rows.row[name]
        if name not in how.key_columns or how.mode not in ("upsert", "debezium"):
            continue
        gone = [rows.old[name]] if rows.old is not None else []
        if name in from_key:
            # The key may spell a value in another type: what does not convert is a bad key, not a failed batch.
            gone.append(F.col("k.row")[name].try_cast(types[name]))
        columns[name] = F.coalesce(columns[name], *gone)
    return columns


def _row_types(decoded: DataFrame, how: Decoding) -> dict[str, DataType]:
    """The types of a row's fields by name."""
    value: Any = decoded.schema["v"].dataType
    row = value["row"].dataType
    return {field.name: field.dataType for field in (row["after"].dataType if how.mode == "debezium" else row)}


def _first(faults: list[tuple[Column, str]]) -> Column:
    """The reason of the first fault that there is; else null.

    Spark's optimizer is slow with conjunctions of which one side looks at every column.
    """
    return first_of(faults) if faults else F.lit(None).cast("string")


def _value_faults(how: Decoding, data: Column) -> list[tuple[Column, str]]:
    """What can be wrong with a value's bytes, in the order in which it is told."""
    schema_id, undecoded = F.col("schema_id"), ~_is_good("v")
    unknown = [(schema_id.isNull(), "unknown_schema")] if how.registered else []
    if how.absent is not None:
        unknown.insert(0, (schema_id.isNull() & ~framing.names_one_of(how.absent | how.others, data), "schema_limit"))
    if how.others:
        unknown.insert(0, (framing.names_one_of(how.others, data), "other_type"))
    unfit = [(schema_id.isin(*how.unfit) & undecoded, "unfit_schema")] if how.unfit else []
    return [
        (data.isNull(), "null_value"),
        (~how.value.framed(data), "not_framed"),
        *unknown,
        *unfit,
        (undecoded, "undecodable"),
    ]


def _is_good(struct: str) -> Column:
    return F.coalesce(F.col(f"{struct}.good"), F.lit(False))


def foreign_schema_ids(
    decoded: DataFrame, most: int, known: Collection[int] = (), side: Literal["key", "value"] = "value"
) -> list[int]:
    """The schema ids of records whose reason is that one side is of an unknown schema, those of the most records first.

    Args:
        decoded: records as `decode` answers them.
        most: how many ids to return. Whoever produces chooses ids, so that there may be as many as records.
        known: ids to leave out.
        side: the side of the records. A key that is not of its format is one of an unknown schema, too.
    """
    data, reason = record(side), {"key": "bad_key", "value": "unknown_schema"}[side]
    is_unknown = (record("reason") == reason) & framing.is_framed(data) & ~framing.names_one_of(known, data)
    counted = decoded.filter(is_unknown).groupBy(framing.id_bytes(data).alias("id")).count()
    # The id makes the choice among equals, and so the decision about a record, the same each time.
    first = counted.orderBy(F.col("count").desc(), "id").limit(most).select("id")
    return [int.from_bytes(row["id"], "big") for row in first.collect()]
