"""Unusual but valid Protobuf messages, compared with Protobuf's own parser, and explanations of invalid ones."""

import json
import re
import struct

import pyarrow as pa
import pytest
from google.protobuf import json_format

from lakehouse.formats.schema import RegisteredSchema
from lakehouse.pipeline.schemas.decoding import side_schema
from spark.codecs.protobuf_codec import decoded
from spark.engine import codec_of
from tests.support.protobuf_messages import message_class

ORDER = """syntax = "proto3"; import "google/protobuf/timestamp.proto"; message M {
  map<string, int32> counts = 1; map<int32, Item> items = 2; repeated Item list = 3; Item one = 4;
  oneof choice { int32 x = 5; string z = 6; Item w = 7; } google.protobuf.Timestamp at = 8; repeated fixed32 f = 9;
  message Item { int32 i = 1; oneof sort { int32 a = 2; string b = 3; } map<bool, Item2> deep = 4; }
  message Item2 { string s = 1; } }"""
OLD = """syntax = "proto2"; message M {
  optional Side side = 1; repeated Side sides = 2; optional Item item = 3; repeated Item items = 4;
  map<string, Item> by_name = 5; optional string text = 6; optional Side usual = 7 [default = SELL];
  enum Side { BUY = 0; SELL = 2; } message Item { required int32 id = 1; optional Side side = 2; } }"""
NUMBERS = """syntax = "proto3"; message M { map<int32, Item> by_id = 1; repeated int32 ints = 2;
  message Item { repeated double doubles = 1; repeated sfixed64 longs = 2; } }"""
REQUIRED = 'syntax = "proto2"; message M { required int32 id = 1; optional string b = 2; }'

LIST_AND_MAP = """syntax = "proto3"; message M { map<string, int32> counts = 1; repeated fixed32 f = 2;
  repeated M2 inner = 3; message M2 { map<string, int32> counts = 1; } }"""
ALIKE = """syntax = "proto3"; message M { int32 a_b = 1; int32 ab = 2; int32 _value = 3; int32 value = 4; Item item = 5;
  reserved "f1"; message Item { int32 f2 = 1; int32 f1 = 2; } }"""

BESIDE = """syntax = "proto2"; message M { map<string, int32> counts = 1; optional N n = 2;
  message N { required int32 id = 1; } }"""
METHODS = """syntax = "proto2"; message M { map<string, int32> DESCRIPTOR = 1; optional int32 SerializeToString = 2;
  optional int32 IsInitialized = 3; optional int32 DiscardUnknownFields = 4; optional N HasField = 5;
  optional int32 FindInitializationErrors = 6; optional int32 FromString = 7;
  message N { required int32 DESCRIPTOR = 1; } }"""

VALID = {
    "names of methods": (METHODS, "0a050a01611001" * 2 + "1005" + "1801" + "2001" + "2a020801" + "3001" + "3801"),
    "names that differ by underscores only": (ALIKE, "08011002180320042a0408051006"),
    "key of a map twice": (ORDER, "0a050a0161100a" + "0a050a016110630a050a01621002"),
    "keys of a map in turn": (ORDER, "0a050a01611001" + "0a050a01621002" + "0a050a01611003"),
    "entry without its key": (ORDER, "0a0210070a021008"),
    "entry without its value": (ORDER, "0a030a0161"),
    "entry without its message": (ORDER, "12020805" + "12020806"),
    "message of a map twice": (ORDER, "1206080112020801" + "1206080112020802"),
    "two members of a oneof": (ORDER, "2801" + "32017a"),
    "two members, the other first": (ORDER, "32017a" + "2801"),
    "a message in a oneof, twice": (ORDER, "3a020801" + "3a021002"),
    "a message in a oneof, and another between": (ORDER, "3a020801" + "2807" + "3a021002"),
    "two members in a list": (ORDER, "1a020801" + "1a05" + "10011a017a" + "1a020802"),
    "two members in a map": (ORDER, "1209080312051001" + "1a017a"),
    "key of a map twice in a map in a list": (ORDER, "1a14" + "2208080112040a026161" * 2),
    "a message in two parts": (ORDER, "22020801" + "22021005"),
    "unknown number of a closed enum": (OLD, "0863"),
    "unknown after a known number": (OLD, "08020863"),
    "unknown numbers in a list": (OLD, "1002" + "1063" + "1000"),
    "unknown packed numbers": (OLD, "1203026300"),
    "unknown number in a message": (OLD, "1a0408011063"),
    "unknown number in a list of messages": (OLD, "22040801106322040802" + "1002"),
    "unknown number of an enum with a default": (OLD, "3863"),
    "packed numbers in two parts": (ORDER, "4a0401000000" + "4a0402000000" + "4a00"),
    "packed numbers in a map": (NUMBERS, "0a0e0801120a0a08" + "000000000000f03f" + "12020102"),
    "required field in its place": (REQUIRED, "0801"),
}
INVALID = {
    "required field missing beside names of methods": (
        METHODS,
        "0a050a016110012a00",
        "HasField.DESCRIPTOR: a required",
    ),
    "required field missing": (REQUIRED, "120161", "id: a required field is missing"),
    "empty message with a required field": (REQUIRED, "", "id: a required field is missing"),
    "required field missing within": (OLD, "1a00", "item.id: a required field is missing"),
    "required field missing in a list": (OLD, "22020801" + "2200", r"items\[1\].id: a required field is missing"),
    "required field missing in a map": (OLD, "2a050a01611200", "by_name.*id: a required field is missing"),
    "required field missing beside a map": (BESIDE, "0a050a01611001" + "1200", "n.id: a required field is missing"),
    "no UTF-8": (OLD, "3203" + "61ff62", "text: text is not valid UTF-8, at byte 9 of the value"),
    "cut": (ORDER, "32" + "0561", "z: 5 bytes are announced, but 1 follow, at byte 7 of the value"),
    "cut within": (ORDER, "1a020801" + "1a0210ff", r"list\[1\].a: the message ends within a number, at byte 13"),
    "field number 0": (ORDER, "0000", "a field has number 0, at byte 6"),
    "packed numbers cut": (ORDER, "4a05" + "01000000ff", r"f\[0\]: packed values of 4 bytes do not fill 5"),
    "packed numbers cut in a map": (NUMBERS, "0a0908011205" + "0a03010203", r"by_id.*doubles.*: packed values of 8"),
    "packed number without its end": (NUMBERS, "120180", r"ints\[0\]: the message ends within a number"),
    "wire type 7": (ORDER, "2f", "x: wire type 7 does not begin a value"),
    "long number": (ORDER, "28" + "ff" * 10 + "01", "x: a number has more than 10 bytes, at byte 7"),
    "group without end": (ORDER, "a306", "100: a group does not end"),
    "entry of a map with another field, beside a list of fixed-size numbers": (
        LIST_AND_MAP,
        "0a070a016110011805" + "0a050a01621002" + "1204" + "01000000",
        "counts: an entry has a field beside its key and value",
    ),
    "entry with another field in a list": (
        LIST_AND_MAP,
        "1a09" + "0a070a016110011805",
        r"inner\[0\].counts: an entry has a field beside its key and value",
    ),
    "nanoseconds": (ORDER, "42021001", "at: a timestamp is finer than microseconds"),
    "year 10000": (ORDER, "4207" + "088083d1ffaf07", "at: a timestamp is not within the years"),
}


def codec(text):
    return codec_of(side_schema("protobuf", [RegisteredSchema(1, text, "PROTOBUF")], "").side)


def read(text, *bodies):
    """Return each message as a row, with None for an undecodable one."""
    protobuf_codec = codec(text)
    rows = decoded(
        pa.array([1] * len(bodies), pa.int32()),
        pa.array(bodies, pa.binary()),
        protobuf_codec.sources,
        protobuf_codec.fields,
    )
    return [row and row["row"] for row in rows.to_pylist()]


def expected(message):
    """Return a message as a row, using only the official runtime."""

    def value_of(field, value):
        if field.enum_type:
            return {v.number: v.name for v in field.enum_type.values}.get(value, str(value))
        return expected(value) if field.message_type else value

    row = {}
    for field in type(message).DESCRIPTOR.fields:
        value = getattr(message, field.name)
        if field.message_type and field.message_type.GetOptions().map_entry:
            row[field.name] = {key: value_of(field.message_type.fields_by_name["value"], value[key]) for key in value}
        elif field.is_repeated:
            row[field.name] = [value_of(field, item) for item in value]
        elif field.has_presence and not type(message).HasField(message, field.name):
            row[field.name] = None
        else:
            row[field.name] = value_of(field, value)
    return row


def with_dictionaries(actual, reference):
    """Return a row whose maps are dictionaries, where `reference` has one; keys must be unique."""
    if isinstance(reference, dict) and isinstance(actual, list):
        assert len(dict(actual)) == len(actual)
        actual = dict(actual)
    if isinstance(reference, dict):
        return {name: with_dictionaries(value, reference.get(name)) for name, value in actual.items()}
    return (
        [with_dictionaries(*pair) for pair in zip(actual, reference, strict=True)]
        if isinstance(reference, list)
        else actual
    )


def equals(row, parsed):
    reference = expected(parsed)
    return with_dictionaries(row, reference) == reference


@pytest.mark.parametrize("name", VALID)
def test_decode_unusual_message_equals_official_parser(name):
    text, body = VALID[name]
    parsed = message_class(text, "M").FromString(bytes.fromhex(body))
    assert type(parsed).IsInitialized(parsed)
    [row] = read(text, bytes.fromhex(body))
    assert equals(row, parsed), (row, parsed)


@pytest.mark.parametrize("name", INVALID)
def test_decode_invalid_message_is_no_row_and_is_explained(name):
    text, body, reason = INVALID[name]
    body = bytes.fromhex(body)
    assert read(text, body) == [None]
    explanation = codec(text).explain(struct.pack(">bI", 0, 1) + b"\x00" + body)
    assert re.match(reason, explanation), explanation


def test_decode_valid_messages_beside_invalid_ones():
    for text in (ORDER, OLD, REQUIRED):
        message_type = message_class(text, "M")
        bodies = [bytes.fromhex(body) for schema, body, *_ in (*VALID.values(), *INVALID.values()) if schema == text]
        invalid = {bytes.fromhex(body) for schema, body, _ in INVALID.values() if schema == text}
        rows = read(text, *bodies * 3)
        for row, body in zip(rows, bodies * 3, strict=True):
            assert (row is None) == (body in invalid)
            assert row is None or equals(row, message_type.FromString(body))


def test_explain_valid_message_returns_none():
    message = message_class(ORDER, "M")(counts={"a": 1}, one={"i": 1}, z="ä", f=[1, 2])
    assert codec(ORDER).explain(struct.pack(">bI", 0, 1) + b"\x00" + message.SerializeToString()) is None


@pytest.mark.parametrize("name", ["a", "DESCRIPTOR", "HasField"])
def test_explain_value_of_incompatible_version_names_types(name):
    texts = [f'syntax = "proto3"; message M {{ {type_} {name} = 1; }}' for type_ in ("int64", "int32")]
    versions = [RegisteredSchema(i, text, "PROTOBUF") for i, text in enumerate(texts, 1)]
    protobuf_codec = codec_of(side_schema("protobuf", versions, "").side)
    assert (
        protobuf_codec.explain(struct.pack(">bI", 0, 1) + b"\x00\x08\x01")
        == f"{name}: values of type long do not fit the column's int"
    )


@pytest.mark.parametrize("kind", ["Struct", "Value", "ListValue"])
def test_decode_required_json_value_missing_is_dead_letter(kind):
    text = f"""syntax = "proto2"; import "google/protobuf/struct.proto";
      message M {{ required google.protobuf.{kind} x = 1; optional N n = 2; }}
      message N {{ required google.protobuf.{kind} y = 1; }}"""
    message = message_class(text, "M")()
    value = {"Struct": {"a": 1}, "Value": "a", "ListValue": [1]}[kind]
    for part in (message.x, message.n.y):
        json_format.ParseDict(value, part)
    with_nested = message.SerializeToString()
    message.ClearField("n")
    outer_only = message.SerializeToString()

    rows = read(text, outer_only, with_nested, b"", outer_only + b"\x12\x00")

    values = [row and json.loads(row["x"]) for row in rows]
    assert values == [value, value, None, None]
    assert json.loads(rows[1]["n"]["y"]) == value and rows[0]["n"] is None


@pytest.mark.parametrize("label", ["optional", "required"])
def test_decode_json_value_in_parts_is_merged(label):
    text = f"""syntax = "proto2"; import "google/protobuf/struct.proto";
      message M {{ {label} google.protobuf.ListValue x = 1; optional N n = 2; }}
      message N {{ {label} google.protobuf.Struct y = 1; }}"""
    message_type = message_class(text, "M")
    bodies = []
    for value in (1, 2):
        part = message_type()
        json_format.ParseDict([value], part.x)
        json_format.ParseDict({str(value): value}, part.n.y)
        bodies.append(part.SerializeToString())

    [row] = read(text, b"".join(bodies))

    assert json.loads(row["x"]) == [1, 2]
    assert json.loads(row["n"]["y"]) == {"1": 1, "2": 2}


def test_decode_wrapper_in_parts_is_merged():
    text = """syntax = "proto3"; import "google/protobuf/wrappers.proto"; message M {
      google.protobuf.StringValue s = 1; google.protobuf.Int32Value i = 2; N n = 3; oneof o {
      google.protobuf.BoolValue b = 4; int32 x = 5; } repeated google.protobuf.UInt64Value list = 6;
      map<string, google.protobuf.DoubleValue> map = 7; message N { google.protobuf.BytesValue y = 1; } }"""
    message_type = message_class(text, "M")
    set_, empty = message_type(), message_type()
    set_.s.value, set_.i.value, set_.n.y.value, set_.b.value = "a", 5, b"c", True
    set_.list.add(value=7)
    set_.map["k"].value = 0.5
    for wrapper in (empty.s, empty.i, empty.n.y, empty.b, empty.list.add()):
        wrapper.SetInParent()

    parts = [part.SerializeToString() for part in (set_, empty)]
    rows = read(text, b"".join(parts), b"".join(reversed(parts)), parts[1], b"")

    filled = {"s": "a", "i": 5, "n": {"y": b"c"}, "b": True, "x": None, "map": [("k", 0.5)]}
    assert rows[:2] == [filled | {"list": [7, 0]}, filled | {"list": [0, 7]}]
    assert rows[2] == {"s": "", "i": 0, "n": {"y": b""}, "b": False, "x": None, "list": [0], "map": []}
    assert rows[3] == dict.fromkeys(filled) | {"list": [], "map": []}
