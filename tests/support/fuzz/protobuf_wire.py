"""Messages as other writers may encode them: fields in another order, repeated, empty, or in several parts."""

from __future__ import annotations

from random import Random

from google.protobuf.descriptor import Descriptor, FieldDescriptor

VARINT, FIXED64, BYTES, FIXED32 = 0, 1, 2, 5
"""Wire types (Protocol Buffers, Encoding)."""
EIGHT = (FieldDescriptor.TYPE_DOUBLE, FieldDescriptor.TYPE_FIXED64, FieldDescriptor.TYPE_SFIXED64)
FOUR = (FieldDescriptor.TYPE_FLOAT, FieldDescriptor.TYPE_FIXED32, FieldDescriptor.TYPE_SFIXED32)
NUMBERS = [0, 1, 2**31, 2**32 - 1, 2**63, 2**64 - 1]


def rewritten(random: Random, data: bytes, descriptor: Descriptor) -> bytes:
    """Return a message made of the fields of another one, at every depth.

    Google's runtime for Python drops a map entry with an unknown field, unlike the one for C++: entries get none.
    """
    fields: list[bytes] = []
    for tag, value, whole in _fields(data):
        field = descriptor.fields_by_number.get(tag >> 3)
        if field is None or field.message_type is None or value is None:
            fields.append(whole)
            continue
        inner = rewritten(random, value, field.message_type)
        parts = [whole for _, _, whole in _fields(inner)]
        # A message in two parts is their merger.
        middle = random.randrange(len(parts) + 1) if random.random() < 0.3 else len(parts)
        halves = [b"".join(parts[:middle]), b"".join(parts[middle:])]
        fields += [_varint(tag) + _varint(len(half)) + half for half in halves[: 1 + (middle < len(parts))]]
    if fields and random.random() < 0.4:
        fields.append(random.choice(fields))
    if random.random() < 0.3:
        random.shuffle(fields)
    if random.random() < 0.1 and not descriptor.GetOptions().map_entry:
        fields.append(_varint(random.randrange(3_000, 4_000) << 3) + _varint(random.choice(NUMBERS)))
    if descriptor.fields and random.random() < 0.3:
        fields.append(_simple(random, random.choice(list(descriptor.fields))))
    return b"".join(fields)


def _simple(random: Random, field: FieldDescriptor) -> bytes:
    """Return a field with an empty value, or a number at a limit."""
    if field.message_type or field.type in (FieldDescriptor.TYPE_STRING, FieldDescriptor.TYPE_BYTES):
        return _varint(field.number << 3 | BYTES) + b"\0"
    if field.type in EIGHT:
        return _varint(field.number << 3 | FIXED64) + bytes(8)
    if field.type in FOUR:
        return _varint(field.number << 3 | FIXED32) + bytes(4)
    return _varint(field.number << 3) + _varint(random.choice(NUMBERS))


def _fields(data: bytes) -> list[tuple[int, bytes | None, bytes]]:
    """Return the fields of a message: tag, content if it has a length, and all bytes of the field."""
    fields, position = [], 0
    while position < len(data):
        begin, content = position, None
        tag, position = _number(data, position)
        match tag & 7:
            case 0:
                _, position = _number(data, position)
            case 1 | 5:
                position += 8 if tag & 7 == FIXED64 else 4
            case _:
                size, position = _number(data, position)
                content, position = data[position : position + size], position + size
        fields.append((tag, content, data[begin:position]))
    return fields


def _number(data: bytes, position: int) -> tuple[int, int]:
    number = shift = 0
    while True:
        byte = data[position]
        number, shift, position = number | (byte & 127) << shift, shift + 7, position + 1
        if byte < 128:
            return number, position


def _varint(number: int) -> bytes:
    out = b""
    while number > 127:
        out, number = out + bytes([number & 127 | 128]), number >> 7
    return out + bytes([number])
