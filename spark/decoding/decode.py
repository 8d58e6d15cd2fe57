"""Decode message bytes to rows, or to the reason why they are dead letters.

Decoding runs in the JVM. Records are decoded with the schema that they were written with into the columns of the table.
The frame is Confluent's: a zero byte, the schema id as four bytes in big endian, then the body (Schema Registry, Wire
format). The first two may be in a header instead.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal, Protocol

from pyspark.errors import AnalysisException, PySparkException
from pyspark.errors.exceptions.connect import SparkConnectGrpcException
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql import types as T

from lakehouse.core.tables.metadata_columns import internal, registered
from lakehouse.formats.schema import FRAME_BYTES, HEADERS, MAGIC, guid
from lakehouse.pipeline.engine_values import Decoding
from spark.decoding import framing_columns
from spark.decoding.conditions import first_of, is_true, none_of, some
from spark.decoding.decoded import PREFIX, record
from spark.decoding.exact_keys import exactly, member_of_json, text_of_json
from spark.decoding.row_tests import outcome
from spark.decoding.unavailable_values import is_unavailable

EXTREMES = "0001-01-01T00:00:00Z", "9999-12-31T23:59:59.999999Z"
"""The first and last moment of a row."""

SNAPSHOT_STARTS = ("first", "first_in_data_collection")
"""Marks of the first event of a snapshot of the source, of all tables or of one (Debezium, `source.snapshot`)."""

OLD_KEY = "__debezium.oldkey"
"""The header of a creation with the previous key of its row (Debezium, PostgreSQL connector: Primary key updates)."""


class Codec(Protocol):
    """Decodes the key or value of a message to columns. Every format has an implementation."""

    @property
    def columns(self) -> list[str]:
        """The names of the columns, in order."""
        ...

    @property
    def json_columns(self) -> frozenset[str]:
        """The names of the columns that contain JSON text."""
        return frozenset()

    @property
    def control(self) -> bytes:
        """A message that a working decoder decodes or refuses, and that aborts no job."""
        return b""

    @property
    def heads(self) -> frozenset[bytes] | None:
        """All bytes before a body that select a message of this codec or of another type; None without schema ids."""
        return None

    def decode(self, data: Column) -> Column:
        """Return a struct parsed from bytes, in the form that `finished` expects."""
        ...

    def revised(self, decoded: str) -> Column:
        """Return the result of `decode`, decoded again where that may have a better result.

        It is a column of its own, because an expression that uses another one twice would evaluate it twice.

        Args:
            decoded: The name of the column with the result of `decode`.
        """
        return F.col(decoded)

    def finished(self, decoded: str) -> tuple[Column, Column]:
        """Return the row as a struct of the columns, and whether the bytes were decoded.

        They are two columns, because Spark's optimizer copies a struct wherever one of its fields is read: each column
        of the table would have a copy of the conditions on all columns.

        Args:
            decoded: The name of the column with the result of `decode`, which is computed once however often it is
                used.
        """
        return F.col(decoded)["row"], F.col(decoded)["good"]

    def schema_id(self, data: Column) -> Column:
        """Return the id of the writer's schema if it is known, else null."""
        ...

    def framed(self, data: Column) -> Column:
        """Return whether `data` has the framing of this format."""
        ...

    def explain(self, data: bytes) -> str | None:
        """Return why a message does not decode: field, rule and position, but no value; None if unknown.

        It also runs in Spark's Python workers, where no session is available.

        Args:
            data: The complete message bytes.
        """
        return None

    @property
    def is_text(self) -> bool:
        """True if a message is text as a whole, which never begins with the frame of a schema."""
        return False

    def other(self, data: Column) -> Column:
        """Return whether `data` has a known schema, but not the record type that this codec decodes."""
        return F.lit(False)


def decode(records: DataFrame, decoding: Decoding[Codec], *, headers: bool = False) -> DataFrame:
    """Decode records to rows, or to the reason why they are dead letters.

    Args:
        records: The records in the columns of spark.records, with the headers if the instructions need them.
        decoding: The instructions.
        headers: Whether to return the message headers, which `records` must have.

    Returns:
        The table's columns and metadata columns by their names in the table, and the columns of spark.decoding.decoded.
    """
    data = F.col("framed_value")
    decoded = _framed(records, decoding).select(
        "*",
        decoding.value.decode(data).alias("v"),
        decoding.value.schema_id(data).alias("schema_id"),
        (decoding.key.decode(F.col("framed_key")) if decoding.key else F.lit(None)).alias("k"),
    )
    sides = [("v", decoding.value), ("k", decoding.key)]
    if decoding.mode == "debezium" and decoding.key and "headers" in records.columns:
        old_key = F.try_element_at(F.filter("headers", lambda header: header["key"] == OLD_KEY), F.lit(1))["value"]
        decoded = decoded.withColumn("old_key", old_key).withColumn("o", decoding.key.decode(F.col("old_key")))
        sides.append(("o", decoding.key))
    for name, codec in sides:
        if codec:
            decoded = decoded.withColumn(name, codec.revised(name))
            row, good = codec.finished(name)
            decoded = decoded.withColumns({name: row, f"{name}_good": good})
    if decoding.mode == "debezium":
        decoded = _without_wrapper(decoded)
    rows = _change_events(decoded, decoding) if decoding.mode == "debezium" else _records(decoding)
    message_keys = _message_keys(decoded, decoding)
    columns = _columns(decoded, decoding, rows, message_keys)
    if decoding.mode == "debezium":
        rows = replace(rows, event=_event(decoded, decoding, columns))
    filtered = is_true(rows.filtered)
    if decoding.has_other_types:
        filtered |= is_true(decoding.value.other(data))
        filtered |= is_true(decoding.value.framed(data)) & framing_columns.names_one_of(decoding.other_type_ids, data)
    row_faults = list(rows.faults)
    if decoding.key:
        row_faults.append((F.col("key").isNotNull() & ~_is_good("k"), "bad_key"))
        if decoding.key.is_text:
            row_faults.append((framing_columns.is_framed(F.col("key")), "bad_key"))
    row_faults += [(columns[name].isNull() & ~rows.truncate, "bad_key") for name in decoding.key_columns]
    row_faults += _disagreements(rows, message_keys)
    reason = F.when(
        ~filtered, F.coalesce(F.when(~is_true(rows.empty), _first(_value_faults(decoding, data))), _first(row_faults))
    )
    # Spark pushes filters below projections unless an expression is non-deterministic. A filter by the reason would
    # otherwise decode once for each column that the reason depends on.
    reason = F.when(F.monotonically_increasing_id() >= 0, reason)
    outcome_columns = {"filtered": filtered, "tombstone": rows.deleted, "truncate": rows.truncate, "reason": reason}
    result = _result(decoded, columns, decoding, outcome_columns | rows.event, headers)
    return result if decoding.mode == "debezium" else checked(result, decoding)


def checked(result: DataFrame, decoding: Decoding[Codec]) -> DataFrame:
    """Return decoded records, of which those that fail a check are dead letters."""
    if not decoding.quarantine:
        return result
    good = record("reason").isNull() & ~record("filtered") & ~record("tombstone") & ~record("truncated")
    tests = decoding.quarantine.items()
    check = F.when(good, first_of((~is_true(outcome(test)), F.lit(name)) for name, test in tests))
    result = result.withColumn(PREFIX + "check", check)
    reason = F.when(record("check").isNotNull(), "check").otherwise(record("reason"))
    return result.withColumn(PREFIX + "reason", reason)


def _framed(records: DataFrame, decoding: Decoding[Codec]) -> DataFrame:
    """Add the key and value of each record in the wire format: with the schema id of its headers, if they have one.

    Spark does not compile the conditions on headers. Where they are not read, whether a record has such a header is
    added, which costs little.
    """
    framed, has_id = {"framed_value": F.col("value"), "framed_key": F.col("key")}, []
    for side, codec in (("value", decoding.value), ("key", decoding.key)):
        heads = codec.heads if codec else None
        if heads is None:
            continue
        if decoding.reads_header_ids:
            framed[f"framed_{side}"] = framing_columns.framed_by_header(side, HEADERS[side], heads, decoding.guids.ids)
        elif decoding.needs_headers:
            has_id.append(F.array_contains(F.col("headers")["key"], HEADERS[side]))
    return records.withColumns(framed | {"ignored_header_id": some(has_id)})


def refused(records: DataFrame, decoding: Decoding[Codec], reason: str, *, headers: bool = False) -> DataFrame:
    """Return records in the form of `decode`, all of them undecoded dead letters with one reason."""
    records = _framed(records, decoding).withColumn("schema_id", F.lit(None).cast("int"))
    columns = {name: F.lit(None) for name in decoding.columns}
    never = F.lit(False)
    # Not a constant, because Spark would then optimize away the observation that counts these records.
    outcome_columns = {name: never for name in ("filtered", "tombstone", "truncate")}
    return _result(
        records, columns, decoding, outcome_columns | {"reason": F.when(F.col("offset") >= 0, reason)}, headers
    )


def _result(
    records: DataFrame,
    columns: Mapping[str, Column],
    decoding: Decoding[Codec],
    technical: Mapping[str, Column],
    headers: bool,
) -> DataFrame:
    metadata = {internal(name): F.expr(column.expression) for name, column in registered().items()}
    names = [
        "partition",
        "offset",
        "timestamp",
        "schema_id",
        "key",
        "value",
        "framed_key",
        "framed_value",
        "ignored_header_id",
    ]
    names += ["headers"] if headers else []
    technical = {name: F.col(name) for name in names} | {
        "timestamp_type": metadata["kafka_timestamp_type"],
        "check": F.lit(None).cast("string"),
        "truncated": F.lit(False),
        "snapshot_start": F.lit(False),
        **technical,
        **{name: is_true(technical[name]) for name in ("filtered", "tombstone", "truncate")},
    }
    return records.select(
        *(column.alias(name) for name, column in columns.items()),
        *(metadata[known].alias(name) for known, name in decoding.metadata.items()),
        *(column.alias(PREFIX + name) for name, column in technical.items()),
    )


def is_decodable(decoded: DataFrame) -> bool:
    """Return whether Spark can decode all records without aborting, whether good or bad; nothing is written.

    Raises:
        PySparkException: The plan is invalid, or the connection to Spark was lost. No record causes either.
    """
    try:
        decoded.write.format("noop").mode("overwrite").save()
    except PySparkException as error:
        # PySpark raises the base class itself if the server did not report the failure.
        if isinstance(error, AnalysisException) or type(error) is SparkConnectGrpcException:
            raise
        return False
    return True


@dataclass(frozen=True)
class _Rows:
    """Columns of decoded records from which a mode builds rows.

    Attributes:
        row: The row after the change, as a struct.
        empty: Whether the record has no value to decode.
        deleted: Whether the record deletes the row of its key, or all rows.
        truncate: Whether the record deletes all rows.
        filtered: Whether the record is ignored.
        faults: Further conditions for dead letters, with their reasons.
        event: Technical columns of change events.
    """

    row: Column
    empty: Column
    deleted: Column
    truncate: Column
    filtered: Column
    faults: list[tuple[Column, str]]
    event: dict[str, Column] = field(default_factory=dict)


def _records(decoding: Decoding[Codec]) -> _Rows:
    """Return the rows of a topic whose values are rows; in mode upsert, a null value deletes the row of its key."""
    never = F.lit(False)
    empty = F.col("value").isNull() if decoding.mode == "upsert" and decoding.key else never
    deleted = empty
    if decoding.deletion:
        name, value = decoding.deletion
        column = F.col("v")[name]
        text = text_of_json(column) if name in decoding.value.json_columns else column.cast("string")
        deleted |= is_true(text == value)
    return _Rows(F.col("v"), empty=empty, deleted=deleted, truncate=never, filtered=never, faults=[])


def _change_events(decoded: DataFrame, decoding: Decoding[Codec]) -> _Rows:
    """Return the rows of Debezium change events.

    `after` is the row for create, update and snapshot read. A delete has the key of its row in the message key only:
    `before` has an empty text, 0 or a default in other columns that are not null, unless the replica identity is full
    (Debezium, PostgreSQL connector: Replica identity). The null value that follows a delete repeats it; without a key
    it has no meaning.
    """
    row = F.col("v")
    null, operation = F.col("value").isNull(), row["op"]
    is_truncate = is_true(operation == "t")
    truncate = is_truncate if decoding.truncate == "apply" else F.lit(False)
    deleted = is_true((operation == "d") | (null if decoding.key else F.lit(False))) | truncate
    filtered = is_true(operation == "m") | (is_truncate if decoding.truncate == "ignore" else F.lit(False))
    if not decoding.key:
        filtered |= null
    faults = [
        (is_truncate & ~truncate, "truncate"),
        (~null & ~is_true(operation.isin("c", "r", "u", "d", "t")), "unknown_operation"),
        (operation.isin("c", "r", "u") & row["after"].isNull(), "no_row"),
        *((is_extreme, "out_of_range") for is_extreme in _extremes(row["after"], _row_type(decoded, decoding))),
    ]
    return _Rows(row["after"], empty=null, deleted=deleted, truncate=truncate, filtered=filtered, faults=faults)


def _without_wrapper(decoded: DataFrame) -> DataFrame:
    """Return the events themselves where they are the `payload` of a message (Kafka Connect, JsonConverter)."""
    types = _field_types(decoded.schema["v"].dataType)
    payload = types.get("payload")
    if not isinstance(payload, T.StructType) or "after" not in payload.fieldNames():
        return decoded
    row, names = F.col("v"), [name for name in payload.fieldNames() if name in types]
    is_wrapped = is_true(row["payload"].isNotNull() & row["op"].isNull())
    fields = (F.when(is_wrapped, row["payload"][name]).otherwise(row[name]).alias(name) for name in names)
    return decoded.withColumn("v", F.struct(*fields))


def _extremes(value: Column, type_: T.DataType) -> list[Column]:
    """Return, for each date or timestamp in a value, whether it is outside of years 1 to 9999, as an infinity is."""
    match type_:
        case T.DateType() | T.TimestampType() | T.TimestampNTZType():
            first, last = (F.lit(text).cast(type_) for text in EXTREMES)
            return [is_true((value < first) | (value > last))]
        case T.StructType():
            return [part for field in type_ for part in _extremes(value[field.name], field.dataType)]
        case T.ArrayType(elementType=inner):
            return _extreme_items(value, inner)
        case T.MapType(valueType=inner):
            return _extreme_items(F.map_values(value), inner)
    return []


def _extreme_items(items: Column, type_: T.DataType) -> list[Column]:
    if not _extremes(F.lit(None), type_):
        return []
    return [is_true(F.exists(items, lambda item: some(_extremes(item, type_))))]


def _event(decoded: DataFrame, decoding: Decoding[Codec], columns: Mapping[str, Column]) -> dict[str, Column]:
    """Return the technical columns of change events."""
    row, types = F.col("v"), _row_types(decoded, decoding)
    omitted = [
        F.when(is_true(is_omitted), F.lit(name))
        for name in omittable(types, decoding)
        if (is_omitted := is_unavailable(row["after"][name], types[name], decoding.unavailable)) is not None
    ]
    is_row = is_true(row["op"].isin("c", "r", "u"))
    source = _field_types(decoded.schema["v"].dataType).get("source")
    in_source = _field_types(source) if isinstance(source, T.StructType) else {}
    has_position, has_mark = "lsn" in in_source, isinstance(in_source.get("snapshot"), T.StringType)
    event = {
        "snapshot_start": is_true(row["source"]["snapshot"].isin(*SNAPSHOT_STARTS)) if has_mark else F.lit(False),
        "created": is_true(row["op"].isin("c", "r")),
        "unchanged": F.when(is_row, F.array_compact(F.array(*omitted))) if omitted else F.array().cast("array<string>"),
        "position": row["source"]["lsn"].cast("long") if has_position else F.lit(None).cast("long"),
    }
    if "old_key" in decoded.columns and decoding.key:
        key_types, text = _field_types(decoded.schema["o"].dataType), F.col("old_key").cast("string")
        parts = []
        for name in decoding.key_columns:
            # Header converters differ from those of keys; by default they write JSON.
            of_key = exactly(
                member_of_json(text, name, is_only=len(decoding.key_columns) == 1), T.StringType(), types[name]
            )
            if name in key_types and not decoding.key.json_columns:
                framed = exactly(F.col("o")[name], key_types[name], types[name])
                of_key = F.coalesce(F.when(_is_good("o"), framed), of_key)
            parts.append(of_key.alias(name))
        is_complete = none_of([part.isNull() for part in parts])
        event["old_key"] = F.when(F.col("old_key").isNotNull() & is_complete, F.struct(*parts))
    return event


def omittable(types: Mapping[str, T.DataType], decoding: Decoding[Codec]) -> list[str]:
    """Return the columns whose values change events may omit, given the types of all columns."""
    if not decoding.unavailable:
        return []
    names = [name for name in decoding.columns if name in types and name not in decoding.key_columns]
    return [name for name in names if is_unavailable(F.lit(None), types[name], decoding.unavailable) is not None]


def _message_keys(decoded: DataFrame, decoding: Decoding[Codec]) -> dict[str, tuple[Column, Column]]:
    """Return the key columns that rows and message keys both have: of the message key as it is, and in the row's type.

    The latter is null if the type does not represent the key exactly.
    """
    if not decoding.key:
        return {}
    types, key_types = _row_types(decoded, decoding), _field_types(decoded.schema["k"].dataType)
    message_keys = {}
    for name in decoding.key_columns:
        if name not in types:
            continue
        if decoding.key.is_text and decoding.key.json_columns and name not in decoding.value.json_columns:
            [column] = decoding.key.json_columns
            text = member_of_json(F.col("k")[column], name, is_only=len(decoding.key_columns) == 1)
            # The key of change events may have other columns than `key`.
            key = text if decoding.mode == "debezium" else F.col("k")[column]
            message_keys[name] = key, exactly(text, T.StringType(), types[name])
        elif name in key_types:
            key = F.col("k")[name]
            message_keys[name] = key, exactly(key, key_types[name], types[name])
    return message_keys


def _disagreements(rows: _Rows, message_keys: Mapping[str, tuple[Column, Column]]) -> list[tuple[Column, str]]:
    """Return the faults of records whose message key is not the key in their value.

    Their tombstones, which have the message key only, would not delete their row, or another one.
    """
    has_both = {name: rows.row[name].isNotNull() & key.isNotNull() for name, (key, _) in message_keys.items()}
    unfit = [(has_both[name] & key.isNull(), "bad_key") for name, (_, key) in message_keys.items()]
    return [*unfit, *((rows.row[name] != key, "key_mismatch") for name, (_, key) in message_keys.items())]


def _columns(
    decoded: DataFrame, decoding: Decoding[Codec], rows: _Rows, message_keys: Mapping[str, tuple[Column, Column]]
) -> dict[str, Column]:
    """Return the columns of the row. Missing key columns are taken from the message key."""
    from_key = set(decoding.key.columns) if decoding.key else set()
    types = _row_types(decoded, decoding) if from_key or decoding.mode == "debezium" else {}
    in_value = (
        set(decoding.value.columns)
        if decoding.mode != "debezium"
        else set(decoding.columns) - (from_key - types.keys())
    )
    columns = {}
    for name in decoding.columns:
        if name not in in_value:
            columns[name] = F.col("k")[name]
            continue
        columns[name] = rows.row[name]
        if name not in decoding.key_columns or decoding.mode not in ("upsert", "debezium"):
            continue
        if name in message_keys:
            columns[name] = F.coalesce(columns[name], message_keys[name][1])
    return columns


def _row_types(decoded: DataFrame, decoding: Decoding[Codec]) -> dict[str, T.DataType]:
    """Return the types of a row's fields by name."""
    return _field_types(_row_type(decoded, decoding))


def _row_type(decoded: DataFrame, decoding: Decoding[Codec]) -> T.DataType:
    row: Any = decoded.schema["v"].dataType
    return row["after"].dataType if decoding.mode == "debezium" else row


def _field_types(struct: Any) -> dict[str, T.DataType]:
    return {field.name: field.dataType for field in struct}


def _first(faults: list[tuple[Column, str]]) -> Column:
    """Return the reason of the first fault that applies, else null.

    Conditions are not combined, because Spark's optimizer is slow with conjunctions that read every column.
    """
    return first_of(faults) if faults else F.lit(None).cast("string")


def _value_faults(decoding: Decoding[Codec], data: Column) -> list[tuple[Column, str]]:
    """Return the possible faults of a value's bytes, in order of precedence."""
    schema_id, undecoded = F.col("schema_id"), ~_is_good("v")
    unknown = [(schema_id.isNull(), "unknown_schema")] if decoding.registered else []
    if decoding.unusable_ids is not None:
        unknown.insert(
            0,
            (
                schema_id.isNull()
                & ~framing_columns.names_one_of(decoding.unusable_ids | decoding.other_type_ids, data),
                "schema_limit",
            ),
        )
    if decoding.other_type_ids:
        unknown.insert(0, (framing_columns.names_one_of(decoding.other_type_ids, data), "other_type"))
    if decoding.conflicts and decoding.registered:
        unknown.insert(0, (framing_columns.names_one_of(decoding.conflicts, data), "unfit_schema"))
    unfit_faults = [(schema_id.isin(*decoding.unfit_ids) & undecoded, "unfit_schema")] if decoding.unfit_ids else []
    return [
        (data.isNull(), "null_value"),
        (~is_true(decoding.value.framed(data)), "not_framed"),
        *unknown,
        *unfit_faults,
        (undecoded, "undecodable"),
    ]


def _is_good(side: Literal["v", "k", "o"]) -> Column:
    return is_true(F.col(f"{side}_good"))


def foreign_schema_ids(
    decoded: DataFrame,
    most: int,
    known: Collection[int] = (),
    side: Literal["key", "value"] = "value",
    *,
    registered: bool = True,
) -> list[int | str]:
    """Return the schema ids of records whose key or value has an unknown schema, by descending number of records.

    A record whose header has a GUID in place of an id counts under the GUID.

    Args:
        decoded: The decoded records.
        most: The maximum number of ids. Producers choose ids, so there may be as many as records.
        known: Ids to leave out.
        side: Whether to inspect keys or values. A key that is not in the key's format counts as one of an unknown
            schema.
        registered: Whether the format of values has schemas. Otherwise, a value that does not decode counts.
    """
    of_value = "unknown_schema" if registered else "undecodable"
    data, reason = record(f"framed_{side}"), {"key": "bad_key", "value": of_value}[side]
    is_unknown = (
        is_true(record("reason") == reason)
        & framing_columns.is_framed(data)
        & ~framing_columns.names_one_of(known, data)
    )
    counted = decoded.filter(is_unknown).groupBy(framing_columns.id_or_guid(data).alias("id")).count()
    # Ties are broken by id, so that every run makes the same decision about a record.
    first = counted.orderBy(F.col("count").desc(), "id").limit(most).select("id")
    return [guid(row["id"]) or int.from_bytes(row["id"][len(MAGIC) : FRAME_BYTES], "big") for row in first.collect()]
