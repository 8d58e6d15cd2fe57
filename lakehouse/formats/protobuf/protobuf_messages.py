"""Fields of Protobuf messages, which columns and decoders have in common, pairs of versions, and message indexes.

Fields with the same number are the same field, whatever their names (Protocol Buffers, Updating a message type). Fields
with the same name and different numbers are the same too, if neither number belongs to another field.

Message indexes of the wire format select one message of a file (Confluent, Wire format). They follow the schema id: the
position of the message among its siblings, for each level from the outermost in, as zigzag varints after their count.
The first message of the file is abbreviated to a single zero. Clients number nested messages in two ways: some count
the entries of maps, which the compiler declares as messages, and those that parse the registered source do not
(Confluent's ProtobufSchema.toMessageIndexes).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from google.protobuf.descriptor import Descriptor

from lakehouse.core.errors import SchemaError

Kind = Literal[
    "int", "long", "decimal", "float", "double", "boolean", "string", "binary", "enum", "struct", "timestamp", "json",
    "list", "map",
]  # fmt: skip


@dataclass(frozen=True)
class MessageField:
    """A field of a message, the element of a list, or the key or value of a map.

    `fields` are those of a struct, the one element of a list, or the key and value of a map; the column of a struct
    without fields is a boolean, which is true where it is set. `symbols` are the numbers
    and names of an enum, which is `closed` if other numbers are not valid. `previous_names` are the names of its
    number in earlier versions. Fields with the same `oneof` exclude each other; a `required` one is in every message.
    """

    name: str
    number: int
    kind: Kind
    fields: tuple[MessageField, ...] = ()
    symbols: tuple[tuple[int, str], ...] = ()
    message: str = ""
    previous_names: tuple[str, ...] = ()
    closed: bool = False
    oneof: str = ""
    required: bool = False


WIDER = {("int", "long"), ("int", "decimal"), ("long", "decimal"), ("float", "double")}
"""Pairs (from, to) of kinds such that every value of one fits the other."""


def fits(written: MessageField, wanted: MessageField) -> bool:
    """Return whether all values of a written field fit the kind of the wanted field."""
    if written.kind == wanted.kind:
        # The column of a message without fields has no room for the fields of another version.
        return written.kind != "struct" or bool(wanted.fields) or not written.fields
    return (written.kind, wanted.kind) in WIDER


def partners(wanted: Sequence[MessageField], written: Sequence[MessageField]) -> Mapping[str, MessageField]:
    """Return the written fields by the names of their wanted fields: paired by number, then by name."""
    by_number, by_name = {f.number: f for f in written}, {f.name: f for f in written}
    pairs = {field.name: by_number[field.number] for field in wanted if field.number in by_number}
    paired = {field.number for field in pairs.values()}
    for field in wanted:
        other = by_name.get(field.name)
        if field.name not in pairs and other and other.number not in paired:
            pairs[field.name] = other
    return pairs


def merged(
    newer: tuple[MessageField, ...], older: tuple[MessageField, ...], within: str = ""
) -> tuple[MessageField, ...]:
    """Return the newer fields with their former names, then the fields that only the older version has.

    Args:
        within: The path of the message with a trailing dot; empty at the top.
    """
    pairs, fields = partners(newer, older), []
    for field in newer:
        path, old = f"{within}{field.name}", pairs.get(field.name)
        if old and old.name != field.name:
            _require_free_name(field, old, older, path)
            if old.name not in field.previous_names:
                field = replace(field, previous_names=(*field.previous_names, old.name))
        if old and old.number != field.number and not fits(old, field):
            raise SchemaError(
                f"Protobuf field '{path}' is of type {field.kind} with number {field.number}, and was of type "
                f"{old.kind} with number {old.number} in an older version (UNSUPPORTED_TYPE_CHANGE). Values of the "
                f"older version would be lost. Give the new field another name"
            )
        if old and old.kind == field.kind:
            field = replace(field, fields=merged(field.fields, old.fields, f"{path}."))
        fields.append(field)
    names, remaining = {field.name.lower(): field.name for field in newer}, {field.number for field in pairs.values()}
    dropped = [field for field in older if field.number not in remaining]
    for field in dropped:
        if name := names.get(field.name.lower()):
            raise SchemaError(
                f"Protobuf field '{within}{field.name}' of an older version is '{within}{name}' with another number in "
                f"a newer one, but column names are case-insensitive (CASE_COLLISION). Give the new field another name"
            )
    return (*fields, *dropped)


def _require_free_name(field: MessageField, old: MessageField, older: Sequence[MessageField], path: str) -> None:
    """Refuse a new name that another field had, because a table may contain values of both fields under it."""
    for other in older:
        if other.name.lower() == field.name.lower() and other.number != field.number:
            raise SchemaError(
                f"Protobuf field '{path}' has number {field.number}, which was '{old.name}' in an older version, where "
                f"'{other.name}' had number {other.number} (NAME_REUSED). One column would contain values of two "
                f"fields. Give the field a name that no version has used"
            )


def own_indexes(message: Descriptor) -> frozenset[bytes]:
    """Return the indexes that select a message, one for each way to number it."""
    return frozenset(_index(message, counts_maps) for counts_maps in (True, False))


def other_indexes(message: Descriptor) -> frozenset[bytes]:
    """Return the indexes that select another message of the same file."""
    others = (other for other in _declared(message.file.message_types_by_name.values()) if other != message)
    return frozenset(index for other in others for index in own_indexes(other))


def require_distinct(message: Descriptor) -> None:
    """Require that no index selects a message in one way and another message in the other way."""
    if own_indexes(message) & other_indexes(message):
        raise SchemaError(
            f"Clients number Protobuf message '{message.full_name}' in two ways, because a message around it declares "
            f"a map before other messages. Their records cannot be distinguished from those of another message. "
            f"Declare the maps below the nested messages, or '{message.name}' outside of other messages"
        )


def _index(message: Descriptor, counts_maps: bool) -> bytes:
    path: list[int] = []
    while (parent := message.containing_type) is not None:
        siblings = [one for one in parent.nested_types if counts_maps or not one.GetOptions().map_entry]
        path.insert(0, siblings.index(message))
        message = parent
    path.insert(0, list(message.file.message_types_by_name).index(message.name))
    return b"\x00" if path == [0] else b"".join(_varint(2 * n) for n in (len(path), *path))


def _declared(messages: list[Descriptor]) -> Iterator[Descriptor]:
    """Yield messages and the messages within them, without the entries of maps."""
    for message in messages:
        if not message.GetOptions().map_entry:
            yield message
            yield from _declared(message.nested_types)


def _varint(n: int) -> bytes:
    out = b""
    while n > 127:
        out, n = out + bytes([n & 127 | 128]), n >> 7
    return out + bytes([n])
