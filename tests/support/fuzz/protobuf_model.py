"""Protobuf schemas and messages. Google's runtime defines the content of a message."""

from __future__ import annotations

import struct
from collections.abc import Callable
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any

from google.protobuf import json_format
from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message import DecodeError, Message
from hypothesis import strategies as st

from lakehouse.formats.schema import RegisteredSchema
from tests.support.fuzz.cells import JsonText, in_order
from tests.support.fuzz.model import HOSTILE, Case, Record, Type, Value, refusal, rows_of
from tests.support.fuzz.protobuf_wire import rewritten
from tests.support.protobuf_messages import message_class

NAMES = st.one_of(
    st.sampled_from([name for name in HOSTILE if name.isascii()]),
    # For a map `_0`, protoc names the entry `0Entry`, which is not a valid name.
    st.from_regex(r"_*[a-zA-Z][a-zA-Z0-9_]{0,5}", fullmatch=True),
)


def json_name(name: str) -> str:
    """Return the part of a field name that is unique in a message (Protocol Buffers language guide, ProtoJSON)."""
    return name.lower().replace("_", "") or "_" * len(name)


INT32, INT64 = (st.integers(-(2**bits), 2**bits - 1) for bits in (31, 63))
UINT32, UINT64 = (st.integers(0, 2**bits - 1) for bits in (32, 64))
ROWS = {
    "int": "`int32`, `sint32`, `sfixed32`",
    "long": "`int64`, `sint64`, `sfixed64`, `uint32`, `fixed32`",
    "decimal(20, 0)": "`uint64`, `fixed64`",
}
OTHERS = "`float`, `double`, `bool`, `string`, `bytes`"
SCALARS: dict[str, tuple[str, st.SearchStrategy[Any]]] = {
    **{name: ("int", INT32) for name in ("int32", "sint32", "sfixed32")},
    **{name: ("long", INT64) for name in ("int64", "sint64", "sfixed64")},
    **{name: ("long", UINT32) for name in ("uint32", "fixed32")},
    **{name: ("decimal(20, 0)", UINT64) for name in ("uint64", "fixed64")},
    "float": ("float", st.floats(width=32)),
    "double": ("double", st.floats()),
    "bool": ("boolean", st.booleans()),
    "string": ("string", st.text(max_size=12)),
    "bytes": ("binary", st.binary(max_size=12)),
}
KEYS = [name for name in SCALARS if name not in ("float", "double", "bytes")]
WRAPPED = {"Bool": "bool", "Bytes": "bytes", "Double": "double", "Float": "float", "Int32": "int32", "Int64": "int64"}
WRAPPED |= {"String": "string", "UInt32": "uint32", "UInt64": "uint64"}
IMPORTS = {
    "google.protobuf.Timestamp ": "google/protobuf/timestamp.proto",
    "google.protobuf.Duration ": "google/protobuf/duration.proto",
    "google.protobuf.Any ": "google/protobuf/any.proto",
    "google.protobuf.Empty ": "google/protobuf/empty.proto",
    "google.protobuf.FieldMask ": "google/protobuf/field_mask.proto",
    "google.type.Date ": "google/type/date.proto",
    "google.type.Money ": "google/type/money.proto",
    **{f"google.protobuf.{name} ": "google/protobuf/struct.proto" for name in ("Struct", "Value", "ListValue")},
    **{f"google.protobuf.{name}Value ": "google/protobuf/wrappers.proto" for name in WRAPPED},
}
"""Files by the names of the types that they define."""
WRAPPERS = "wrappers (`StringValue` …)"
JSON_ROW = "`google.protobuf.Struct`, `Value`, `ListValue`"
KNOWN_ROW = "`google.protobuf.Any`, `FieldMask`, `google.type.*`, `confluent.type.Decimal`"
EMPTY_ROW = "message without fields, such as `google.protobuf.Empty`"
FIRST, LAST = -62_135_596_800, 253_402_300_799
JSON = st.recursive(
    st.one_of(st.none(), st.booleans(), st.floats(allow_nan=False, allow_infinity=False), st.text(max_size=6)),
    lambda inner: st.one_of(st.lists(inner, max_size=2), st.dictionaries(st.text(max_size=4), inner, max_size=2)),
    max_leaves=4,
)


@dataclass
class Draft:
    """A file under construction, with the definitions beside its first message and all names."""

    draw: Callable
    proto2: bool
    definitions: list[str] = field(default_factory=list)
    names: set[str] = field(default_factory=set)

    def name(self, prefix: str) -> str:
        """Return an unused type name."""
        name = f"{prefix}{len(self.names)}"
        self.names.add(name)
        return name


def _scalar(name: str) -> Type:
    column, values = SCALARS[name]
    return Type(row_of(name), name, column, values.map(lambda value: Value(value, None)))


def row_of(scalar: str) -> str:
    """Return the row of docs/types.md for a scalar type."""
    return ROWS.get(SCALARS[scalar][0], OTHERS)


def _sent(values: st.SearchStrategy[Any]) -> st.SearchStrategy[Value]:
    return values.map(lambda value: Value(value, None))


def _known() -> list[Type]:
    seconds = st.one_of(st.integers(FIRST, LAST), st.integers(FIRST - 10, LAST + 10), INT64)
    nanos = st.one_of(st.integers(0, 999_999).map(lambda n: n * 1000), st.integers(-1, 10**9))
    at = _sent(st.fixed_dictionaries({"seconds": seconds, "nanos": nanos}))
    took = _sent(st.fixed_dictionaries({"seconds": INT64, "nanos": INT32}))
    any_ = _sent(st.fixed_dictionaries({"type_url": st.text(max_size=4), "value": st.binary(max_size=4)}))
    mask = _sent(st.fixed_dictionaries({"paths": st.lists(st.text(max_size=4), max_size=2)}))
    day = _sent(st.fixed_dictionaries({"year": INT32, "month": INT32, "day": INT32}))
    money = _sent(st.fixed_dictionaries({"currency_code": st.text(max_size=3), "units": INT64, "nanos": INT32}))
    objects = st.dictionaries(st.text(max_size=4), JSON, max_size=2)
    p = "google.protobuf."
    return [
        Type("`google.protobuf.Timestamp`", f"{p}Timestamp", "timestamptz", at),
        Type("`google.protobuf.Timestamp`", f"{p}Timestamp", "timestamptz", at),
        Type("`google.protobuf.Duration`", f"{p}Duration", ("struct", (("seconds", "long"), ("nanos", "int"))), took),
        Type(JSON_ROW, f"{p}Struct", "string", _sent(objects)),
        Type(JSON_ROW, f"{p}Value", "string", _sent(JSON)),
        Type(JSON_ROW, f"{p}ListValue", "string", _sent(st.lists(JSON, max_size=2))),
        Type(KNOWN_ROW, f"{p}Any", ("struct", (("type_url", "string"), ("value", "binary"))), any_),
        Type(EMPTY_ROW, f"{p}Empty", "boolean", _sent(st.just({}))),
        Type(KNOWN_ROW, f"{p}FieldMask", ("struct", (("paths", ("list", "string")),)), mask),
        Type(KNOWN_ROW, "google.type.Date", ("struct", (("year", "int"), ("month", "int"), ("day", "int"))), day),
        Type(
            KNOWN_ROW,
            "google.type.Money",
            ("struct", (("currency_code", "string"), ("units", "long"), ("nanos", "int"))),
            money,
        ),
        *(
            Type(WRAPPERS, f"{p}{name}Value", SCALARS[of][0], _sent(SCALARS[of][1].map(lambda value: {"value": value})))
            for name, of in WRAPPED.items()
        ),
    ]


KNOWN = _known()


def imports_of(body: str) -> str:
    """Return the imports that messages need."""
    # The declaration of a map has the type of its values before a bracket.
    used = {file for name, file in IMPORTS.items() if name in body.replace(">", " ")}
    return "".join(f'import "{file}";' for file in sorted(used))


@st.composite
def types(draw, draft: Draft, depth: int) -> Type:
    """Generate the type of one value."""
    match draw(st.sampled_from(["scalar"] * 3 + ["known", "enum", "empty"] + ["message"] * (2 * (depth > 0)))):
        case "known":
            return draw(st.sampled_from(KNOWN))
        case "enum":
            return draw(_enums(draft))
        case "empty":
            name = draft.name("M")
            draft.definitions.append(f"message {name} {{ }}")
            return Type(EMPTY_ROW, name, "boolean", _sent(st.just({})))
        case "message":
            return draw(messages(draft, depth - 1, draft.name("M"), st.integers(1, 3)))
    return _scalar(draw(st.sampled_from(sorted(SCALARS))))


@st.composite
def _enums(draw, draft: Draft) -> Type:
    name = draft.name("E")
    numbers = [0, *draw(st.lists(st.integers(-5, 5).filter(bool), unique=True, max_size=3))]
    draft.definitions.append(f"enum {name} {{ {' '.join(f'{name}_{i} = {n};' for i, n in enumerate(numbers))} }}")
    # A closed enum has no unknown values.
    values = st.sampled_from(numbers) if draft.proto2 else st.one_of(st.sampled_from(numbers), st.integers(-9, 9))
    return Type("enum", name, "string", _sent(values))


@st.composite
def messages(draw, draft: Draft, depth: int, name: str, count: st.SearchStrategy[int]) -> Type:
    """Generate a message with fields; the fields of the outermost message are the columns."""
    wanted = draw(count)
    names = (
        [f"c{i}" for i in range(wanted)]
        if wanted > 10
        else draw(st.lists(NAMES, min_size=wanted, max_size=wanted, unique_by=json_name))
    )
    numbers = draw(st.lists(st.integers(1, 3000), min_size=wanted, max_size=wanted, unique=True))
    lines: list[str] = []
    parts: list[Type] = []
    values: dict[str, st.SearchStrategy[Any]] = {}
    choice: list[str] = []
    for field_name, number in zip(names, numbers, strict=True):
        type_ = draw(types(draft, depth))
        declared = f"{type_.schema} {field_name} = {number};"
        sent = type_.values.map(lambda value: value.sent)
        match draw(st.sampled_from(["one", "one", "optional", "repeated", "map", "oneof"])):
            case "repeated":
                lines.append(f"repeated {declared}")
                values[field_name] = st.lists(sent, max_size=3)
                type_ = Type("`repeated`", "", ("list", type_.column), type_.values, (type_,))
            case "map":
                key = _scalar(draw(st.sampled_from(KEYS)))
                lines.append(f"map<{key.schema}, {type_.schema}> {field_name} = {number};")
                values[field_name] = st.dictionaries(key.values.map(lambda value: value.sent), sent, max_size=3)
                type_ = Type("`map<K, V>`", "", ("map", key.column, type_.column), type_.values, (type_, key))
            case "oneof":
                choice.append(declared)
                values[field_name] = st.one_of(st.none(), sent)
                type_ = Type("`oneof`", "", type_.column, type_.values, (type_,))
                # Members are adjacent, independently of their numbers.
            case "optional":
                lines.append(f"optional {declared}")
                values[field_name] = st.one_of(st.none(), sent)
                type_ = Type("`optional`, messages", "", type_.column, type_.values, (type_,))
            case "one":
                label = draw(st.sampled_from(["optional ", "required "])) if draft.proto2 else ""
                lines.append(label + declared)
                values[field_name] = st.one_of(st.none(), sent)
                if label == "required ":
                    values[field_name] = sent.filter(lambda value: value is not None)
                    type_ = Type("`required` (proto2)", "", type_.column, type_.values, (type_,))
        parts.append(type_)
    if choice:
        lines.append(f"oneof choice_of_{name} {{ {' '.join(choice)} }}")
    body = f"message {name} {{ {' '.join(lines)} }}"
    draft.definitions.append(body)
    # Columns have the order of the declarations.
    order = [n for n in names if not any(f" {n} = " in line for line in choice)]
    order += [n for n in names if n not in order]
    columns = dict(zip(names, (part.column for part in parts), strict=True))
    column = ("struct", tuple((n, columns[n]) for n in order))
    return Type("message", name, column, _sent(st.fixed_dictionaries(values)), tuple(parts))


def filled(message: Message, sent: dict[str, Any]) -> Message:
    """Return a message with values; None stays absent."""
    for name, value in sent.items():
        if value is None:
            continue
        field_ = message.DESCRIPTOR.fields_by_name[name]
        if field_.message_type and field_.message_type.GetOptions().map_entry:
            for key, item in value.items():
                if field_.message_type.fields_by_name["value"].message_type:
                    _fill(getattr(message, name)[key], item)
                else:
                    getattr(message, name)[key] = item
        elif field_.is_repeated and field_.message_type:
            for item in value:
                _fill(getattr(message, name).add(), item)
        elif field_.is_repeated:
            getattr(message, name).extend(value)
        elif field_.message_type:
            getattr(message, name).SetInParent()
            _fill(getattr(message, name), value)
        else:
            setattr(message, name, value)
    return message


def _fill(message: Message, value: Any) -> None:
    if message.DESCRIPTOR.full_name in ("google.protobuf.Struct", "google.protobuf.Value", "google.protobuf.ListValue"):
        json_format.ParseDict(value, message)
    else:
        filled(message, value)


def cells(message: Message, faults: list[str]) -> dict[str, Any]:
    """Return the cells of a message that Google's runtime has parsed.

    Args:
        message: The parsed message.
        faults: List to which values without a cell are appended.
    """
    row = {}
    for field_ in message.DESCRIPTOR.fields:
        value = getattr(message, field_.name)
        if field_.message_type and field_.message_type.GetOptions().map_entry:
            key, item = (field_.message_type.fields_by_name[part] for part in ("key", "value"))
            entries = [(_cell(key, k, faults), _cell(item, value[k], faults)) for k in value]
            row[field_.name] = in_order(entries)
        elif field_.is_repeated:
            row[field_.name] = [_cell(field_, item, faults) for item in value]
        elif field_.has_presence and not message.HasField(field_.name):
            row[field_.name] = None
        else:
            row[field_.name] = _cell(field_, value, faults)
    return row


def _cell(field_: FieldDescriptor, value: Any, faults: list[str]) -> Any:
    if field_.type == FieldDescriptor.TYPE_ENUM:
        known = field_.enum_type.values_by_number.get(value)
        return known.name if known else str(value)
    if field_.type in (FieldDescriptor.TYPE_UINT64, FieldDescriptor.TYPE_FIXED64):
        return Decimal(value)
    if field_.message_type is None:
        return value
    name = field_.message_type.full_name
    if name == "google.protobuf.Timestamp":
        if not (FIRST <= value.seconds <= LAST and 0 <= value.nanos < 10**9 and value.nanos % 1000 == 0):
            faults.append(str(value))
        return value.seconds * 1_000_000 + value.nanos // 1000
    if name in ("google.protobuf.Struct", "google.protobuf.Value", "google.protobuf.ListValue"):
        return JsonText(json_format.MessageToDict(value))
    if name.startswith("google.protobuf.") and name.endswith("Value"):
        return _cell(field_.message_type.fields_by_name["value"], value.value, faults)
    return cells(value, faults) if field_.message_type.fields else True


@dataclass(frozen=True)
class File:
    """A file with the message `fuzz.Top`: its type, class and index, and the setting `record` of the topic."""

    text: str
    top: Type
    message_type: type[Message]
    index: bytes
    record: str


@st.composite
def files(draw) -> File:
    """Generate a file, whose first message may be another one."""
    draft = Draft(draw, draw(st.integers(0, 3)) == 0)
    wide = draw(st.integers(0, 19)) == 0
    top = draw(messages(draft, 0 if wide else 2, "Top", st.just(45) if wide else st.integers(1, 5)))
    decoy = draw(st.booleans())
    # The first message of a file is its root, unless the topic selects another one.
    root = draft.definitions.pop()
    others = draft.definitions
    body = "\n".join(["message Decoy { optional string d = 1; }", *others, root] if decoy else [root, *others])
    text = f'syntax = "{"proto2" if draft.proto2 else "proto3"}";\npackage fuzz;\n{imports_of(body)}\n{body}\n'
    index = b"\x00"
    if decoy:
        place = sum(definition.startswith("message") for definition in others) + 1
        index = bytes([2]) + _zigzag(place)
    return File(text, top, message_class(text, "fuzz.Top"), index, "fuzz.Top" if decoy else "")


@st.composite
def cases(draw) -> Case:
    """Generate a schema with one version, and records."""
    file: File = draw(files())
    top, message_type = file.top, file.message_type
    records, head = [], struct.pack(">bI", 0, 1) + file.index
    encoded_messages = [
        filled(message_type(), draw(top.values).sent).SerializeToString() for _ in range(draw(st.integers(1, 5)))
    ]
    if draw(st.booleans()):
        # Concatenated messages are one message: the last value wins, and lists are joined (Encoding: Last One Wins).
        encoded_messages.append(encoded_messages[0] + encoded_messages[-1])
        encoded_messages.append(encoded_messages[0] + bytes.fromhex("f8ff0105"))
    random = draw(st.randoms(use_true_random=False))
    for _ in range(draw(st.integers(0, 4))):
        encoded_messages.append(rewritten(random, random.choice(encoded_messages), message_type.DESCRIPTOR))
    for data in encoded_messages:
        faults: list[str] = []
        row: dict[str, Any] = {}
        try:
            message = message_type.FromString(data)
            row = cells(message, faults)
            faults += [] if message_type.IsInitialized(message) else ["a required field is missing"]
        except (DecodeError, json_format.Error) as error:
            faults.append(str(error))
        records.append(Record(head + data, row, "letter" if faults else "row"))
    version = RegisteredSchema(1, file.text, "PROTOBUF")
    return Case("protobuf", [version], dict(top.column[1]), records, refusal(top), rows_of(top), file.record)


def _zigzag(number: int) -> bytes:
    number, out = 2 * number, b""
    while number > 127:
        out, number = out + bytes([number & 127 | 128]), number >> 7
    return out + bytes([number])
