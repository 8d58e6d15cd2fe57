"""Message bytes → rows, or the reason why not.

Decoding stays in the JVM. Each writer schema id decodes with its own writer schema into the table's schema; the frame
is Confluent's: a zero byte, the schema id as four bytes big endian, then the body (Schema Registry, Wire format).
"""

from __future__ import annotations

import secrets
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from functools import reduce
from typing import Literal, Protocol

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.avro.functions import from_avro

from lakehouse.avro import DECODED, END, ended, field_names, misread, shape, with_long_decimals
from lakehouse.schema import RegisteredSchema
from spark.fitting import fit

FRAME_BYTES = 5

ENDING = secrets.token_bytes(8)
"""Bytes that nobody can have put where a record ends: every process has others."""

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
}
"""Why a record is a dead letter: a stable code and a sentence. New ones go last: tables hold their numbers."""


class Codec(Protocol):
    """How one side of a message, key or value, becomes columns. Every format is one of these."""

    @property
    def columns(self) -> list[str]:
        """The columns it yields, in order."""
        ...

    def decode(self, data: Column) -> Column:
        """A struct of `columns`, and of what `decoded` asks for."""
        ...

    def finished(self, struct: Column) -> Column:
        """What becomes of the struct that `decode` made, once it is there to be looked at more than once."""
        return struct

    def decoded(self, struct: str) -> Column:
        """Whether the struct of that name is a decoded record."""
        return F.col(f"{struct}.{DECODED}")

    def schema_id(self, data: Column) -> Column:
        """The id of the writer's schema where it is known, else null."""
        ...

    def framed(self, data: Column) -> Column:
        """Whether `data` looks like this format at all."""
        ...

    def explain(self, data: bytes) -> str | None:
        """Return why a message does not decode; None if nothing is found.

        It names the field, the rule and, where one is known, the byte, and never a value. Lists have their index in
        brackets, values of maps are `value`. Workers call it without Spark or a catalog.

        Args:
            data: The whole message, with its frame.
        """
        return None

    def other(self, data: Column) -> Column:
        """Whether `data` is of a known schema, and not of the record type that this codec decodes."""
        return F.lit(False)


@dataclass(frozen=True)
class AvroCodec(Codec):
    """Avro records in the Confluent wire format.

    Known bytes are appended to each body, and to each schema a field that takes them: a record that ends elsewhere than
    its bytes do, where Avro would not mind, does not find them.

    Parameters: `writers` are the schemas that records were written with, by registry id; `reader` is the schema all of
    them are resolved to (Avro specification, Schema Resolution).
    """

    writers: Mapping[int, str]
    reader: str

    @property
    def columns(self) -> list[str]:
        return field_names(self.reader)

    def decode(self, data: Column) -> Column:
        reader = ended(with_long_decimals(self.reader), len(ENDING))
        # Spark 2 wrote another calendar before 1582, so Spark asks which one this is: Avro's, the proleptic Gregorian.
        options = {"mode": "PERMISSIVE", "avroSchema": reader, "datetimeRebaseMode": "CORRECTED"}
        body = F.concat(F.substring(data, F.lit(FRAME_BYTES + 1), F.octet_length(data)), F.lit(ENDING))

        def read(id_: int) -> Column:
            # What Avro would read as something else is not read at all.
            apart = misread(self.writers[id_], self.reader)
            bytes_ = body if apart is None else F.lit(None).cast("binary")
            return from_avro(bytes_, reader if apart else ended(self.writers[id_], len(ENDING)), options)

        return self._by_writer(data, read)

    def decoded(self, struct: str) -> Column:
        whole = F.col(f"{struct}.{END}") == F.lit(ENDING)
        fits = fit(F.col(struct), shape([RegisteredSchema(0, self.reader)]).struct)
        return whole if fits is None else whole & fits

    def schema_id(self, data: Column) -> Column:
        return self._by_writer(data, F.lit)

    def framed(self, data: Column) -> Column:
        return (F.octet_length(data) > FRAME_BYTES) & (F.substring(data, 1, 1) == F.lit(b"\x00"))

    def _by_writer(self, data: Column, then) -> Column:
        frame = F.substring(data, 1, FRAME_BYTES)
        branches = [(frame == F.lit(b"\x00" + id_.to_bytes(4, "big")), then(id_)) for id_ in sorted(self.writers)]
        return reduce(lambda chain, branch: chain.when(*branch), branches, F)


@dataclass(frozen=True)
class Decoding:
    """How a topic's records become rows.

    `key` is the codec of message keys where they are decoded. `key_columns` must not be null. `columns` are the
    table's own columns. `several` says that the topic holds records of other types too, `others` are those of their
    schema ids that are known. `unfit` are those of versions that do not fit the table. `absent` are ids that the
    registry has no usable schema of, where it was not asked about every other one too. `metadata` are metadata columns
    by their internal names. `quarantine` are checks by name: conditions in SQL under which a row is no row.
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
    metadata: tuple[str, ...] = ("kafka_partition", "kafka_offset", "kafka_timestamp", "kafka_schema_id")
    quarantine: Mapping[str, str] = field(default_factory=dict)

    @property
    def needs_headers(self) -> bool:
        """Whether rows hold headers, which Spark reads only when asked to."""
        return "kafka_headers" in self.metadata


def decode(records: DataFrame, how: Decoding) -> DataFrame:
    """Records → the table's columns beside the raw record.

    Parameters: `records` as spark.records reads them.
    Returns: the table's columns and metadata columns; `__key`, `__value` (and `__headers`) as they came;
    `__timestamp_type`, `__filtered` (not this table's), `__tombstone` (deletes the row of its key), `__reason` (a
    key of REASONS, or null where the record is good) and `__check` (the check that quarantines it, else null).
    """
    data = F.col("value")
    decoded = records.select(
        "*",
        how.value.decode(data).alias("v"),
        how.value.schema_id(data).alias("kafka_schema_id"),
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
    if how.others:
        filtered |= how.value.framed(data) & _names_one_of(how.others, data)
    faults = [(~rows.empty & fault, reason) for fault, reason in _value_faults(how, data)]
    faults += rows.faults
    if how.key:
        faults.append((F.col("key").isNotNull() & _undecoded(how.key, "k"), "bad_key"))
    faults += [(columns[name].isNull(), "bad_key") for name in how.key_columns]
    reason = reduce(lambda chain, fault: chain.when(*fault), [(filtered, F.lit(None)), *faults], F)
    metadata = _metadata()
    result = decoded.select(
        *(F.col(name).alias(f"__{name}") for name in ("key", "value", "headers") if name in records.columns),
        *(column.alias(name) for name, column in columns.items()),
        *(metadata[name].alias(name) for name in dict.fromkeys((*how.metadata, *INTERNAL))),
        metadata["kafka_timestamp_type"].alias("__timestamp_type"),
        filtered.alias("__filtered"),
        rows.deleted.alias("__tombstone"),
        reason.alias("__reason"),
    )
    good = F.col("__reason").isNull() & ~F.col("__filtered") & ~F.col("__tombstone")
    failed = [(good & F.expr(fails), F.lit(name)) for name, fails in how.quarantine.items()]
    check = reduce(lambda chain, branch: chain.when(*branch), failed, F) if failed else F.lit(None).cast("string")
    result = result.withColumn("__check", check)
    return result.withColumn("__reason", F.when(F.col("__check").isNotNull(), "check").otherwise(F.col("__reason")))


def refused(records: DataFrame, how: Decoding, reason: str) -> DataFrame:
    """Records as `decode` answers them, none of them touched, all of them for one reason."""
    metadata = _metadata() | {"kafka_schema_id": F.lit(None).cast("int")}
    return records.select(
        *(F.lit(None).alias(name) for name in how.columns),
        *(metadata[name].alias(name) for name in dict.fromkeys((*how.metadata, *INTERNAL))),
        *(F.col(name).alias(f"__{name}") for name in ("key", "value", "headers") if name in records.columns),
        metadata["kafka_timestamp_type"].alias("__timestamp_type"),
        F.lit(False).alias("__filtered"),
        F.lit(False).alias("__tombstone"),
        F.lit(None).cast("string").alias("__check"),
        # Not a constant, which would let Spark leave out the work that counts these records.
        F.when(F.col("offset") >= 0, reason).alias("__reason"),
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


INTERNAL = ("kafka_partition", "kafka_offset", "kafka_timestamp", "kafka_schema_id")
"""Metadata columns that the work itself needs, whether the table has them or not."""


@dataclass(frozen=True)
class _Rows:
    """Where a mode finds the rows in decoded records: `row` and `old` are structs, the row after and before."""

    row: str
    old: str | None
    empty: Column
    deleted: Column
    filtered: Column
    faults: list[tuple[Column, str]]


def _records(how: Decoding) -> _Rows:
    """Each value is a row; in an upsert, a null value deletes."""
    null = F.col("value").isNull()
    if how.mode == "upsert":
        return _Rows("v", None, empty=null, deleted=null, filtered=F.lit(False), faults=[])
    never = F.lit(False)
    return _Rows("v", None, empty=never, deleted=never, filtered=never, faults=[])


def _change_events(decoded: DataFrame, how: Decoding) -> _Rows:
    """Debezium's envelope: `after` is the row for create, update and snapshot read, `before` for delete (Debezium, Data
    change events). The null value that follows a delete says it once more; without a key it says nothing."""
    null, operation = F.col("value").isNull(), F.col("v.op")
    deleted = F.coalesce((operation == "d") | (null if how.key else F.lit(False)), F.lit(False))
    filtered = F.coalesce(operation == "m", F.lit(False))
    if not how.key:
        filtered |= null
    old = "v.before" if "before" in decoded.schema["v"].dataType.fieldNames() else None
    faults = [
        (~null & ~F.coalesce(operation.isin("c", "r", "u", "d"), F.lit(False)), "unknown_operation"),
        (operation.isin("c", "r", "u") & F.col("v.after").isNull(), "no_row"),
    ]
    return _Rows("v.after", old, empty=null, deleted=deleted, filtered=filtered, faults=faults)


def _columns(decoded: DataFrame, how: Decoding, rows: _Rows) -> dict[str, Column]:
    """The table's columns: the row's; a key that the row does not tell is the message's, or the row's before."""
    from_key = set(how.key.columns) if how.key else set()
    in_value = set(how.value.columns) if rows.row == "v" else set(how.columns) - (from_key - _fields(decoded, rows.row))
    columns = {}
    for name in how.columns:
        if name not in in_value:
            columns[name] = F.col(f"k.`{name}`")
            continue
        columns[name] = F.col(f"{rows.row}.`{name}`")
        if name not in how.key_columns or how.mode not in ("upsert", "debezium"):
            continue
        gone = [F.col(f"{rows.old}.`{name}`")] if rows.old else []
        if name in from_key:
            # The key may spell a value in another type: what does not convert is a bad key, not a failed batch.
            type_ = reduce(lambda t, part: t[part].dataType, [*rows.row.split("."), name], decoded.schema)
            gone.append(F.col(f"k.`{name}`").try_cast(type_))
        columns[name] = F.coalesce(columns[name], *gone)
    return columns


def _fields(decoded: DataFrame, path: str) -> set[str]:
    return set(reduce(lambda t, part: t[part].dataType, path.split("."), decoded.schema).fieldNames())


def _value_faults(how: Decoding, data: Column) -> list[tuple[Column, str]]:
    """What can be wrong with a value's bytes, in the order in which it is told."""
    schema_id, undecoded = F.col("kafka_schema_id"), _undecoded(how.value, "v")
    unknown = [(schema_id.isNull(), "unknown_schema")] if how.registered else []
    if how.absent is not None:
        unknown.insert(0, (schema_id.isNull() & ~_names_one_of(how.absent, data), "schema_limit"))
    unfit = [(schema_id.isin(*how.unfit) & undecoded, "unfit_schema")] if how.unfit else []
    return [
        (data.isNull(), "null_value"),
        (~how.value.framed(data), "not_framed"),
        *unknown,
        *unfit,
        (undecoded, "undecodable"),
    ]


def _names_one_of(ids: Collection[int], data: Column) -> Column:
    """Whether a framed value names one of the schema ids."""
    if not ids:
        return F.lit(False)
    return F.substring(data, 2, 4).isin([id_.to_bytes(4, "big") for id_ in sorted(ids)])


def _undecoded(codec: Codec, struct: str) -> Column:
    return ~F.coalesce(codec.decoded(struct), F.lit(False))


def _metadata() -> dict[str, Column]:
    """The metadata columns by their internal names (lakehouse.metadata)."""
    type_ = F.col("timestampType")
    return {
        "kafka_topic": F.col("topic"),
        "kafka_partition": F.col("partition"),
        "kafka_headers": F.col("headers"),
        "kafka_offset": F.col("offset"),
        "kafka_timestamp": F.col("timestamp"),
        "kafka_timestamp_type": F.when(type_ == 0, "CreateTime").when(type_ == 1, "LogAppendTime"),
        "kafka_raw_key": F.col("key"),
        "kafka_raw_value": F.col("value"),
        "kafka_schema_id": F.col("kafka_schema_id"),
    }


def first_faults(decoded: DataFrame, limit: int = 5) -> list[tuple[int, int, str]]:
    """The first records that have a reason, in order of partition and offset, as (partition, offset, sentence)."""
    bad = decoded.filter(F.col("__reason").isNotNull() & F.col("__check").isNull())
    bad = bad.select("kafka_partition", "kafka_offset", "__reason")
    rows = bad.orderBy("kafka_partition", "kafka_offset").limit(limit).collect()
    return [(row["kafka_partition"], row["kafka_offset"], REASONS[row["__reason"]]) for row in rows]


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
    data, reason = F.col(f"__{side}"), {"key": "bad_key", "value": "unknown_schema"}[side]
    framed = (F.octet_length(data) > FRAME_BYTES) & (F.substring(data, 1, 1) == F.lit(b"\x00"))
    unknown = decoded.filter((F.col("__reason") == reason) & framed & ~_names_one_of(known, data))
    counted = unknown.groupBy(F.substring(data, 2, 4).alias("frame")).count()
    # The frame makes the choice among equals, and so the decision about a record, the same each time.
    first = counted.orderBy(F.col("count").desc(), "frame").limit(most).select("frame")
    return [int.from_bytes(row["frame"], "big") for row in first.collect()]
