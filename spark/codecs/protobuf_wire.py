"""Detect messages that ptars reads differently from Protobuf's own parser, and read them with that parser.

Writers may send what readers must not keep: repeated map keys or several members of a oneof, of which the last one
counts; numbers that a closed enum does not have, which count as absent; and messages without a required field, which
are invalid (Protocol Buffers, Encoding; proto2 language guide). Messages whose packed fixed-size numbers are truncated
are invalid as well, but ptars drops the last number. A message in two parts is their merger, but ptars only reads the
last part if it takes the message as bytes.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc
from google.protobuf.descriptor_pb2 import FileDescriptorSet
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message import DecodeError
from google.protobuf.message_factory import GetMessageClass

from lakehouse.formats.protobuf.protobuf_explain import FIXED, lost_entries
from lakehouse.formats.protobuf.protobuf_format import JSON
from lakehouse.formats.protobuf.protobuf_messages import MessageField
from spark.codecs.protobuf_handler import name

if TYPE_CHECKING:
    from google.protobuf.descriptor import Descriptor
    from google.protobuf.message import Message

NONE = pa.array([], pa.int64())
FIXED_SIZES = {type_ for types in FIXED.values() for type_ in types}


def doubts(structs: pa.StructArray, fields: tuple[MessageField, ...]) -> pa.Array:
    """Return the indices of the rows that ptars may have read differently, in order."""
    doubtful_rows = [rows for rows in _of_struct(structs, fields) if len(rows)]
    return pc.unique(pa.concat_arrays(doubtful_rows)).sort() if doubtful_rows else NONE


@lru_cache(maxsize=128)
def is_doubtful(descriptors: bytes, message: str) -> bool:
    """Return whether ptars may read messages of this type differently without a trace in its result.

    Args:
        descriptors: The files that define the message, as a serialized set.
        message: The full name of the message.
    """
    return _is_doubtful(message_class(descriptors, message).DESCRIPTOR, set())


def plain(bodies: pa.Array, descriptors: bytes, message: str) -> pa.Array:
    """Return messages re-encoded by Protobuf's own parser, so that every reader agrees; null for invalid messages.

    Args:
        bodies: The messages.
        descriptors: The files that define the message, as a serialized set.
        message: The full name of the message.
    """
    kind = message_class(descriptors, message)
    return pa.array([_plain(kind, body) for body in bodies.to_pylist()], pa.binary())


@lru_cache(maxsize=128)
def message_class(descriptors: bytes, message: str) -> type[Message]:
    """Return the class of a message; cached per process."""
    pool = DescriptorPool()
    for file in FileDescriptorSet.FromString(descriptors).file:
        pool.Add(file)
    return GetMessageClass(pool.FindMessageTypeByName(message))


def _plain(kind: type[Message], body: bytes) -> bytes | None:
    try:
        parsed = kind.FromString(body)
    except DecodeError:
        return None
    # The methods of the class, because a field can have the name of a method.
    if not kind.IsInitialized(parsed) or any(lost_entries(parsed)):
        return None
    # Unknown fields include numbers that a closed enum does not have.
    kind.DiscardUnknownFields(parsed)
    return kind.SerializeToString(parsed)


def _is_doubtful(descriptor: Descriptor, seen: set[str]) -> bool:
    """Return whether a message or a nested one has lists of fixed-size numbers, or a JSON value outside of a list."""
    seen.add(descriptor.full_name)
    for field in descriptor.fields:
        message = field.message_type
        if field.is_repeated and field.type in FIXED_SIZES:
            return True
        if message is None or message.full_name in seen:
            continue
        if message.full_name in JSON:
            if not field.is_repeated:
                return True
        elif _is_doubtful(message, seen):
            return True
    return False


def _of_struct(array: pa.StructArray, fields: tuple[MessageField, ...]) -> Iterator[pa.Array]:
    members: dict[str, list[pa.Array]] = {}
    for field in fields:
        if not (field.required or field.oneof or _has_doubts(field)):
            continue
        values = array.field(array.type.get_field_index(name(field.number)))
        if field.required:
            yield _rows(pc.and_(array.is_valid(), values.is_null()))
        if field.oneof:
            members.setdefault(field.oneof, []).append(values.is_valid().cast(pa.int32()))
        yield from _of(values, field)
    for counts in members.values():
        if len(counts) > 1:
            total = counts[0]
            for count in counts[1:]:
                total = pc.add(total, count)
            yield _rows(pc.greater(total, 1))


def _of(array: pa.Array, field: MessageField) -> Iterator[pa.Array]:
    """Yield the indices of rows with a doubtful value in a field, or in an element of a list or map."""
    match field.kind:
        case "enum" if field.closed:
            numbers = pa.array([number for number, _ in field.symbols], pa.int32())
            yield _rows(pc.and_(array.is_valid(), pc.invert(pc.is_in(array, numbers))))
        case "struct" if _has_doubts(field):
            yield from _of_struct(array, field.fields)
        case "list" if _has_doubts(field.fields[0]):
            parents = pc.list_parent_indices(array).cast(pa.int64())
            yield from (parents.take(rows) for rows in _of(array.flatten(), field.fields[0]))
        case "map":
            parents = pc.list_parent_indices(pa.ListArray.from_arrays(array.offsets, array.keys)).cast(pa.int64())
            counted = (
                pa.table({"row": parents, "key": array.keys}).group_by(["row", "key"]).aggregate([([], "count_all")])
            )
            yield counted.filter(pc.greater(counted["count_all"], 1))["row"].combine_chunks()
            yield from (parents.take(rows) for rows in _of(array.items, field.fields[1]))


def _has_doubts(field: MessageField) -> bool:
    if field.kind == "map" or field.closed:
        return True
    return any(inner.required or inner.oneof or _has_doubts(inner) for inner in field.fields)


def _rows(condition: pa.Array) -> pa.Array:
    return pc.indices_nonzero(condition).cast(pa.int64())
