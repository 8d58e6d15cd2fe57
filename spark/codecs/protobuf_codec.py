"""Decode Protobuf messages in compiled code over Arrow (ptars), without a Python object per message."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property

import pyarrow as pa
import pyarrow.compute as pc
from google.protobuf import json_format, struct_pb2
from google.protobuf.message import DecodeError
from pyspark.sql import Column
from pyspark.sql import functions as F
from pyspark.sql import types as T

from lakehouse.formats.format import MessageSchema
from lakehouse.formats.protobuf import protobuf_format
from lakehouse.formats.protobuf.protobuf_explain import FIRST_SECOND, LAST_SECOND, explain
from lakehouse.formats.protobuf.protobuf_messages import MessageField, fits, other_indexes, own_indexes, partners
from lakehouse.formats.schema import FRAME_BYTES, RegisteredSchema, frame, schema_id
from spark.codecs.protobuf_handler import name, structs
from spark.codecs.protobuf_wire import NONE, doubts, is_doubtful, message_class, plain
from spark.decoding import framing_columns
from spark.decoding.conditions import first_of, some
from spark.decoding.decode import Codec


def decoder(schema: MessageSchema, reader: tuple[MessageField, ...]) -> ProtobufCodec:
    """Return the codec that decodes each message by the version that it was written with."""
    return ProtobufCodec({version.id: version for version in schema.versions}, reader, schema.record)


@dataclass(frozen=True)
class ProtobufCodec(Codec):
    """Codec of Protobuf messages in the Confluent wire format.

    Each message is decoded by its writer's schema; fields are then matched by number.

    Attributes:
        writers: The schemas by registry id.
        fields: The columns.
        record: The full name of the message; empty for the first one of each file.
    """

    writers: Mapping[int, RegisteredSchema]
    fields: tuple[MessageField, ...]
    record: str = ""

    @property
    def columns(self) -> list[str]:
        return [field.name for field in self.fields]

    @property
    def json_columns(self) -> frozenset[str]:
        return frozenset(field.name for field in self.fields if field.kind == "json")

    @property
    def control(self) -> bytes:
        """An empty message of one of the writers."""
        id_ = max(self.writers)
        return frame(id_) + self._indexes[id_][0]

    @property
    def heads(self) -> frozenset[bytes]:
        of_others = {
            frame(id_) + index
            for id_, schema in self.writers.items()
            for index in other_indexes(protobuf_format.message(schema, self.record))
        }
        return frozenset(
            of_others.union(frame(id_) + index for id_, indexes in self._indexes.items() for index in indexes)
        )

    def decode(self, data: Column) -> Column:
        bodies = []
        for id_, indexes in self._indexes.items():
            for head in (frame(id_) + index for index in indexes):
                body = F.substring(data, len(head) + 1, MAX_LENGTH)
                bodies.append((F.substring(data, 1, len(head)) == F.lit(head), body))
        read = F.arrow_udf(self._decoder(), self._type)  # type: ignore[call-overload]  # its stub lacks this form
        return read(self.schema_id(data), first_of(bodies))

    def schema_id(self, data: Column) -> Column:
        return framing_columns.by_schema_id(data, self.writers, F.lit)

    def framed(self, data: Column) -> Column:
        return framing_columns.is_framed(data)

    def other(self, data: Column) -> Column:
        """Return whether a message has a known schema and selects another message of it than this table's."""
        by_length: dict[int, list[bytes]] = {}
        for id_, schema in self.writers.items():
            for index in sorted(other_indexes(protobuf_format.message(schema, self.record))):
                head = frame(id_) + index
                by_length.setdefault(len(head), []).append(head)
        return some([F.substring(data, 1, length).isin(heads) for length, heads in by_length.items()])

    def explain(self, data: bytes) -> str | None:
        id_ = schema_id(data)
        if id_ is None or id_ not in self.writers or len(data) == FRAME_BYTES:
            return None
        index = next((index for index in self._indexes[id_] if data.startswith(index, FRAME_BYTES)), None)
        if index is None:
            return f"byte {FRAME_BYTES} of the value does not select message '{self.sources[id_][1]}'"
        start = FRAME_BYTES + len(index)
        descriptors, message, written = self.sources[id_]
        return explain(data, start, message_class(descriptors, message), written, self.fields)

    @cached_property
    def sources(self) -> dict[int, Source]:
        """The decoders of each writer's messages, by registry id. The cached value is pickled with the codec."""
        return {
            id_: (
                protobuf_format.compiled(schema).SerializeToString(),
                protobuf_format.message(schema, self.record).full_name,
                protobuf_format.message_fields(schema, self.record),
            )
            for id_, schema in self.writers.items()
        }

    @cached_property
    def _indexes(self) -> dict[int, list[bytes]]:
        """The message indexes that select this table's message, by registry id."""
        return {
            id_: sorted(own_indexes(protobuf_format.message(schema, self.record)))
            for id_, schema in sorted(self.writers.items())
        }

    @property
    def _type(self) -> T.StructType:
        row = T.StructType([T.StructField(field.name, _spark_type(field)) for field in self.fields])
        return T.StructType([T.StructField("row", row), T.StructField("good", T.BooleanType())])

    def _decoder(self) -> Callable[[pa.Array, pa.Array], pa.Array]:
        """Return the function that Spark's Python workers run. It contains descriptors and fields, and no
        connections."""
        wanted, sources = self.fields, self.sources

        def decode(ids: pa.Array, bodies: pa.Array) -> pa.Array:
            return decoded(ids, bodies, sources, wanted)

        return decode


MAX_LENGTH = 2**31 - 1

Source = tuple[bytes, str, tuple[MessageField, ...]]
"""A writer: its serialized descriptors, the full name of the message, and its fields."""


def decoded(
    ids: pa.Array, bodies: pa.Array, sources: Mapping[int, Source], wanted: tuple[MessageField, ...]
) -> pa.Array:
    """Return messages as a struct array of `row`, the wanted fields, and `good`; null if a message does not decode.

    Args:
        ids: The registry id of each message's writer, or null.
        bodies: The bytes of each message, or null.
        sources: The writers by registry id.
        wanted: The columns.
    """
    if bodies.type != pa.binary():
        bodies = bodies.cast(pa.binary())
    parts: list[Part] = []
    usable = bodies.is_valid()
    for id_ in pc.unique(ids.filter(usable)).to_pylist():
        rows = pc.indices_nonzero(pc.fill_null(pc.and_(pc.equal(ids, id_), usable), False))
        descriptors, message, _ = sources[id_]
        rows, messages = rows.cast(pa.int64()), bodies.take(rows)
        if is_plain := is_doubtful(descriptors, message):
            messages = plain(messages, descriptors, message)
            rows, messages = rows.filter(messages.is_valid()), messages.drop_null()
        if len(rows):
            parts += _decode(rows, messages, sources[id_], wanted, is_plain=is_plain)
    if not parts:
        return pa.nulls(len(bodies), pa.struct([("row", _struct_type(wanted)), ("good", pa.bool_())]))
    order = pa.concat_arrays([rows for rows, _ in parts])
    positions = pa.array(range(len(bodies)), pa.int64())
    return pa.concat_arrays([part for _, part in parts]).take(pc.index_in(positions, order))


Part = tuple[pa.Array, pa.Array]
"""Decoded messages: the indices of their rows, and their structs of `row` and `good`."""


def _decode(
    rows: pa.Array, bodies: pa.Array, source: Source, wanted: tuple[MessageField, ...], *, is_plain: bool = False
) -> list[Part]:
    """Return the messages of some rows that decode. A bad message is isolated by bisection.

    Messages that ptars refuses, or may read differently from Protobuf's own parser, are first read by that parser, one
    by one; `is_plain` is true then.
    """
    descriptors, message, written = source
    parts: list[Part] = []
    try:
        read = structs(bodies, descriptors, message)
        doubtful = NONE if is_plain else doubts(read, written)
        certain, certain_rows = read, rows
        if len(doubtful):
            certain_indices = pc.indices_nonzero(pc.invert(pc.is_in(pa.array(range(len(rows))), doubtful)))
            certain, certain_rows = read.take(certain_indices), rows.take(certain_indices)
        converted = _struct(certain, written, wanted)
        flags = pa.array([True] * len(converted), pa.bool_())
        parts.append((certain_rows, pa.StructArray.from_arrays([converted, flags], ["row", "good"])))
    except (ValueError, pa.ArrowException):
        if len(bodies) > 1:
            half = len(bodies) // 2
            halves = [(rows.slice(0, half), bodies.slice(0, half)), (rows.slice(half), bodies.slice(half))]
            # Copy each half, because ptars ignores the offset of a slice.
            return [
                part
                for half_rows, half_bodies in halves
                for part in _decode(half_rows, pa.concat_arrays([half_bodies]), source, wanted, is_plain=is_plain)
            ]
        doubtful = NONE if is_plain else pa.array([0], pa.int64())
    if len(doubtful):
        read = plain(bodies.take(doubtful), descriptors, message)
        rows = rows.take(doubtful).filter(read.is_valid())
        if len(rows):
            parts += _decode(rows, read.drop_null(), source, wanted, is_plain=True)
    return parts


def _struct(array: pa.Array, written: tuple[MessageField, ...], wanted: tuple[MessageField, ...]) -> pa.Array:
    """Return a struct array with the wanted fields; fields that the writer does not have are null."""
    written_fields = partners(wanted, written)
    children = []
    for field in wanted:
        written_field = written_fields.get(field.name)
        index = array.type.get_field_index(name(written_field.number)) if written_field else -1
        # Fields of an absent message have default values in the array.
        if written_field is None or (not fits(written_field, field) and _is_empty(array.drop_null().field(index))):
            children.append(pa.nulls(len(array), _arrow_type(field)))
        else:
            children.append(_converted(array.field(index), written_field, field))
    return pa.StructArray.from_arrays(children, fields=list(_struct_type(wanted)), mask=array.is_null())


def _converted(array: pa.Array, written: MessageField, wanted: MessageField) -> pa.Array:
    """Convert a writer's field to the type of the column, without loss.

    Raises:
        ValueError: A value cannot be converted (ArrowInvalid is a subclass).
    """
    if pa.types.is_struct(array.type) and written.kind not in ("struct", "timestamp"):
        # The message of a wrapped value.
        [array] = array.flatten()
    if not fits(written, wanted):
        if _is_empty(array):
            return pa.nulls(len(array), _arrow_type(wanted))
        raise ValueError(f"{written.kind} cannot be converted to {wanted.kind}")
    match wanted.kind:
        case "struct" if wanted.fields:
            return _struct(array, written.fields, wanted.fields)
        case "struct":
            return pc.if_else(array.is_valid(), True, pa.scalar(None, pa.bool_()))
        case "list":
            values = _converted(array.values, written.fields[0], wanted.fields[0])
            return pa.ListArray.from_arrays(array.offsets, values, type=_arrow_type(wanted), mask=array.is_null())
        case "map":
            keys, items = (
                _converted(part, *pair)
                for part, pair in zip(
                    (array.keys, array.items), zip(written.fields, wanted.fields, strict=True), strict=True
                )
            )
            return pa.MapArray.from_arrays(array.offsets, keys, items, type=_arrow_type(wanted))
        case "enum":
            numbers, names = zip(*written.symbols, strict=True)
            named = pa.array(names).take(pc.index_in(array, pa.array(numbers, pa.int32())))
            return pc.coalesce(named, array.cast(pa.string()))
        case "timestamp":
            return _timestamps(array)
        case "json":
            return pa.array([_json(written.message, value) for value in array.to_pylist()], pa.string())
    return array.cast(_arrow_type(wanted))


def _is_empty(array: pa.Array) -> bool:
    """Return whether all fields are absent, or all lists or maps are empty."""
    if pa.types.is_list(array.type) or pa.types.is_map(array.type):
        return len(array.flatten() if pa.types.is_list(array.type) else array.keys) == 0
    return array.null_count == len(array)


def _timestamps(array: pa.Array) -> pa.Array:
    """Convert seconds and nanoseconds to microseconds."""
    valid = array.is_valid()
    # Their numbers in google/protobuf/timestamp.proto are 1 and 2.
    all_seconds, all_nanos = (array.field(name(number)) for number in (1, 2))
    seconds, nanos = all_seconds.filter(valid), all_nanos.filter(valid)
    if len(seconds):
        span, fraction = pc.min_max(seconds).as_py(), pc.min_max(nanos).as_py()
        if span["min"] < FIRST_SECOND or span["max"] > LAST_SECOND or fraction["min"] < 0 or fraction["max"] >= 10**9:
            raise ValueError("a timestamp is out of range")
    micros = pc.divide(all_nanos, 1000)
    if not pc.all(pc.equal(pc.multiply(pc.divide(nanos, 1000), 1000), nanos), min_count=0).as_py():
        raise ValueError("a timestamp is not in whole microseconds")
    since = pc.add(pc.multiply(all_seconds, 1_000_000), micros.cast(pa.int64()))
    return pc.if_else(valid, since, None).cast(pa.timestamp("us", "UTC"))


def _json(message: str, value: bytes | None) -> str | None:
    """Convert a JSON value, which is a recursive message in Protobuf, to text."""
    if value is None:
        return None
    try:
        parsed = getattr(struct_pb2, message.rpartition(".")[2]).FromString(value)
        return json_format.MessageToJson(parsed, indent=None)
    except (DecodeError, json_format.Error) as error:
        raise ValueError(str(error)) from error


def _struct_type(fields: tuple[MessageField, ...]) -> pa.StructType:
    return pa.struct([pa.field(field.name, _arrow_type(field)) for field in fields])


def _arrow_type(field: MessageField) -> pa.DataType:
    match field.kind:
        case "struct" if field.fields:
            return _struct_type(field.fields)
        case "list":
            return pa.list_(pa.field("element", _arrow_type(field.fields[0])))
        case "map":
            return pa.map_(*(_arrow_type(part) for part in field.fields))
    return {
        "int": pa.int32(),
        "long": pa.int64(),
        "decimal": pa.decimal128(20, 0),
        "float": pa.float32(),
        "double": pa.float64(),
        "boolean": pa.bool_(),
        "struct": pa.bool_(),
        "binary": pa.binary(),
        "timestamp": pa.timestamp("us", "UTC"),
    }.get(field.kind, pa.string())


def _spark_type(field: MessageField) -> T.DataType:
    match field.kind:
        case "struct" if field.fields:
            return T.StructType([T.StructField(part.name, _spark_type(part)) for part in field.fields])
        case "list":
            return T.ArrayType(_spark_type(field.fields[0]))
        case "map":
            key, value = field.fields
            return T.MapType(_spark_type(key), _spark_type(value))
    return {
        "int": T.IntegerType(),
        "long": T.LongType(),
        "decimal": T.DecimalType(20, 0),
        "float": T.FloatType(),
        "double": T.DoubleType(),
        "boolean": T.BooleanType(),
        "struct": T.BooleanType(),
        "binary": T.BinaryType(),
        "timestamp": T.TimestampType(),
    }.get(field.kind, T.StringType())
