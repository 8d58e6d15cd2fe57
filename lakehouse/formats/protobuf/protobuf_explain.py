"""Reasons why a Protobuf message does not decode: the field, the rule, and the byte, but no content of the value.

The message is parsed in plain Python, after the fast decoder refused it (Protocol Buffers, Encoding).
"""

from collections import Counter
from collections.abc import Iterator
from typing import Any

from google.protobuf import json_format
from google.protobuf.descriptor import Descriptor, FieldDescriptor
from google.protobuf.message import DecodeError, Message
from google.protobuf.message_factory import GetMessageClass
from google.protobuf.unknown_fields import UnknownFieldSet

from lakehouse.formats.protobuf.protobuf_messages import MessageField, fits, partners

MAX_LEVELS = 100
"""Maximum levels of messages within messages that Protobuf's parsers support."""

FIXED = {8: (1, 6, 16), 4: (2, 7, 15)}
"""Type numbers of descriptors by the fixed size of their values in bytes."""

FIRST_SECOND, LAST_SECOND = -62_135_596_800, 253_402_300_799
"""Range of google.protobuf.Timestamp, the years 1 to 9999."""


class _Fault(Exception):
    """A rule that a message breaks, with the index of the byte and the path of the field."""

    def __init__(self, rule: str, position: int, path: str = ""):
        super().__init__(rule)
        self.rule, self.position, self.path = rule, position, path


def explain(
    data: bytes, start: int, kind: type[Message], written: tuple[MessageField, ...], wanted: tuple[MessageField, ...]
) -> str | None:
    """Return the reason why a message does not decode; None if there is none.

    Args:
        data: The whole value.
        start: The index of the first byte of the message.
        kind: The class of the message.
        written: The fields of the message.
        wanted: The fields of the columns.
    """
    try:
        _Walk(data).message(start, len(data), kind.DESCRIPTOR, "", 1)
    except _Fault as fault:
        where = f"{fault.path}: " if fault.path else ""
        return f"{where}{fault.rule}, at byte {fault.position} of the value"
    try:
        message = kind.FromString(data[start:])
    except DecodeError:
        return "Protobuf's parser refuses it"
    if missing := next(_missing(message, ""), None):
        return f"{missing}: a required field is missing"
    if lost := next(lost_entries(message), None):
        return f"{lost}: an entry has a field beside its key and value"
    return next(_of_message(message, written, wanted, ""), None)


def _missing(message: Message, path: str) -> Iterator[str]:
    """Yield the required fields that are missing.

    Protobuf's own FindInitializationErrors ends the process if such a message has a map of scalars (protobuf 6.33.6).
    """
    # The methods of the class, because a field can have the name of a method.
    kind = type(message)
    for field in kind.DESCRIPTOR.fields:
        if field.is_required and not kind.HasField(message, field.name):
            yield f"{path}{field.name}"
    for inner, inner_path in _messages_in(message, path):
        yield from _missing(inner, inner_path)


def lost_entries(message: Message, path: str = "") -> Iterator[str]:
    """Yield the maps of which Protobuf's parser left out an entry that has a field beside its key and value.

    Such a field is to be ignored, but the parser in C treats the whole entry as an unknown field (protobuf 6.33.6). So
    it does if a closed enum does not have the entry's value, which counts as absent and is no loss.

    Args:
        message: The parsed message, whose unknown fields were not discarded.
        path: The path of the message, with a dot at its end.
    """
    fields = type(message).DESCRIPTOR.fields_by_number
    for unknown in UnknownFieldSet(message):
        field = fields.get(unknown.field_number)
        entry = field.message_type if field else None
        if entry is None or not entry.GetOptions().map_entry or not isinstance(unknown.data, bytes):
            continue
        members = UnknownFieldSet(GetMessageClass(entry).FromString(unknown.data))
        if any(member.field_number not in entry.fields_by_number for member in members):
            yield f"{path}{field.name}"
    for inner, inner_path in _messages_in(message, path):
        yield from lost_entries(inner, inner_path)


def _messages_in(message: Message, path: str) -> Iterator[tuple[Message, str]]:
    """Yield the messages in the fields, lists and maps of a message, each with its path and a dot."""
    for field, value in type(message).ListFields(message):
        field_path, inner = f"{path}{field.name}", field.message_type
        if inner is None:
            continue
        if inner.GetOptions().map_entry:
            if inner.fields_by_name["value"].message_type:
                yield from ((value[key], f"{field_path}.value.") for key in value)
        elif field.is_repeated:
            yield from ((item, f"{field_path}[{i}].") for i, item in enumerate(value))
        else:
            yield value, f"{field_path}."


def _of_message(
    message: Message, written: tuple[MessageField, ...], wanted: tuple[MessageField, ...], path: str
) -> Iterator[str]:
    pairs = partners(wanted, written)
    for column in wanted:
        field = pairs.get(column.name)
        if field is None or _is_unset(message, field.name):
            continue
        field_path = f"{path}{field.name}"
        if not fits(field, column):
            yield f"{field_path}: values of type {field.kind} do not fit the column's {column.kind}"
        elif field.kind in ("list", "map"):
            values = getattr(message, field.name)
            element, column_element = field.fields[-1], column.fields[-1]
            for i, key in enumerate(values):
                if field.kind == "map":
                    yield from _of_value(values[key], element, column_element, f"{field_path}.value")
                else:
                    yield from _of_value(key, element, column_element, f"{field_path}[{i}]")
            for key_or_element, other in zip(field.fields, column.fields, strict=True):
                if not fits(key_or_element, other):
                    yield f"{field_path}: values of type {key_or_element.kind} do not fit the column's {other.kind}"
        else:
            yield from _of_value(getattr(message, field.name), field, column, field_path)


def _is_unset(message: Message, name: str) -> bool:
    kind = type(message)
    field = kind.DESCRIPTOR.fields_by_name[name]
    if field.is_repeated:
        return not getattr(message, name)
    return field.has_presence and not kind.HasField(message, name)


def _of_value(value: Any, field: MessageField, column: MessageField, path: str) -> Iterator[str]:
    if not fits(field, column):
        return
    match field.kind:
        case "struct":
            yield from _of_message(value, field.fields, column.fields, f"{path}.")
        case "timestamp":
            if not (FIRST_SECOND <= value.seconds <= LAST_SECOND and 0 <= value.nanos < 10**9):
                yield f"{path}: a timestamp is not within the years 1 to 9999, or has more nanoseconds than a second"
            elif value.nanos % 1000:
                yield f"{path}: a timestamp is finer than microseconds"
        case "json":
            try:
                json_format.MessageToJson(value)
            except (json_format.Error, ValueError, TypeError):
                yield f"{path}: the value cannot be written as JSON"


class _Walk:
    """A parser of the bytes of one message."""

    def __init__(self, data: bytes):
        self.data = data

    def message(self, position: int, end: int, descriptor: Descriptor | None, path: str, level: int) -> None:
        """Read a message, or the content of a field that the schema does not have.

        Raises:
            _Fault: The bytes are not a message of this type.
        """
        if level > MAX_LEVELS:
            raise _Fault(f"messages are nested more than {MAX_LEVELS} levels deep", position, path.rstrip("."))
        fields = {} if descriptor is None else descriptor.fields_by_number
        counts: Counter[int] = Counter()
        while position < end:
            begin = position
            tag, position = self.varint(position, end, path)
            number, wire = tag >> 3, tag & 7
            if not 0 < number < 2**29:
                raise _Fault(f"a field has number {number}", begin, path.rstrip("."))
            field = fields.get(number)
            name = f"{path}{field.name if field else number}"
            if field and field.is_repeated:
                name, counts[number] = f"{name}[{counts[number]}]", counts[number] + 1
            position = self.value(position, end, wire, number, field, name, level)

    def value(  # noqa: PLR0913 (the place and the type of one value)
        self, position: int, end: int, wire: int, number: int, field: FieldDescriptor | None, path: str, level: int
    ) -> int:
        """Read a value and return the index of the byte after it."""
        match wire:
            case 0:
                return self.varint(position, end, path)[1]
            case 1 | 5:
                size = 8 if wire == 1 else 4
                if position + size > end:
                    raise _Fault(f"{size} bytes are expected, but the message ends", position, path)
                return position + size
            case 2:
                size, content = self.varint(position, end, path)
                if content + size > end:
                    raise _Fault(f"{size:,} bytes are announced, but {end - content:,} follow", position, path)
                if field:
                    self.content(content, content + size, field, path, level)
                return content + size
            case 3:
                return self.group(position, end, number, path, level)
        raise _Fault(f"wire type {wire} does not begin a value", position, path)

    def content(self, position: int, end: int, field: FieldDescriptor, path: str, level: int) -> None:
        """Read the content of a field with a length."""
        if field.type == field.TYPE_STRING:
            try:
                self.data[position:end].decode()
            except UnicodeDecodeError as error:
                raise _Fault("text is not valid UTF-8", position + error.start, path) from error
        elif field.type == field.TYPE_MESSAGE:
            self.message(position, end, field.message_type, f"{path}.", level + 1)
        elif field.is_repeated and field.type != field.TYPE_BYTES:
            size = next((size for size, types in FIXED.items() if field.type in types), None)
            if size and (end - position) % size:
                raise _Fault(f"packed values of {size} bytes do not fill {end - position:,} bytes", position, path)
            while not size and position < end:
                position = self.varint(position, end, path)[1]

    def group(self, position: int, end: int, number: int, path: str, level: int) -> int:
        """Skip a group, which can only be an unknown field, because schemas with groups are refused."""
        if level > MAX_LEVELS:
            raise _Fault(f"groups are nested more than {MAX_LEVELS} levels deep", position, path)
        while position < end:
            tag, position = self.varint(position, end, path)
            if tag & 7 == 4:
                if tag >> 3 != number:
                    raise _Fault("a group ends that did not begin", position, path)
                return position
            position = self.value(position, end, tag & 7, tag >> 3, None, path, level + 1)
        raise _Fault("a group does not end", position, path)

    def varint(self, position: int, end: int, path: str) -> tuple[int, int]:
        """Return a number and the index of the byte after it."""
        value, begin = 0, position
        for shift in range(0, 70, 7):
            if position >= end:
                raise _Fault("the message ends within a number", begin, path.rstrip("."))
            byte = self.data[position]
            value, position = value | (byte & 127) << shift, position + 1
            if byte < 128:
                return value, position
        raise _Fault("a number has more than 10 bytes", begin, path.rstrip("."))
