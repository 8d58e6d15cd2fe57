"""Explanations of undecodable JSON texts: field, rule and position, but no value."""

import json
import pickle
import struct

import pytest

from lakehouse.formats.json.json_format import reader
from lakehouse.formats.mistaken_format import document_fault
from lakehouse.formats.schema import RegisteredSchema
from spark.codecs.json_codec import JsonCodec
from spark.codecs.plain_codecs import JsonTextCodec

INTEGER = {"type": "integer"}
INNER = {"type": "object", "properties": {"x": INTEGER, "t": {"type": "string"}}, "required": ["x"]}
SCHEMA = {
    "properties": {
        "id": INTEGER,
        "real": {"type": "number"},
        "flag": {"type": "boolean"},
        "day": {"type": "string", "format": "date"},
        "at": {"type": "string", "format": "date-time"},
        "inner": INNER,
        "list": {"type": "array", "items": INNER},
        "map": {"type": "object", "additionalProperties": INTEGER},
        "days": {"type": "object", "additionalProperties": {"type": "string", "format": "date"}},
        "any": {},
    },
    "required": ["id"],
}
FIELDS = reader([RegisteredSchema(1, json.dumps(SCHEMA), "JSON")])
CODEC = JsonCodec(FIELDS, {1: FIELDS})
FRAME = struct.pack(">bI", 0, 1)

REASONS = {
    '{"id": 1, "id": }': "the text is not JSON (Expecting value), at byte 21 of the value",
    '{"id": 1} x': "the text is not JSON (Extra data), at byte 15 of the value",
    '{"id": NaN}': "the text is not JSON: it contains NaN or Infinity",
    '["secret"]': "an object is expected, but the text is a list",
    "null": "an object is expected, but the text is null",
    "{}": "id: it is required, but missing",
    '{"id": null}': "id: it is required, but null",
    '{"id": "secret"}': "id: a number is expected, but it is text",
    '{"id": 1.5}': "id: an integer is expected, but it has a fraction",
    '{"id": 1e19}': "id: an integer does not fit 64 bits",
    '{"id": 1e9999999999}': "id: the exponent of a number has more than nine digits",
    '{"id": "1", "id": 1}': "id: a number is expected, but it is text",
    '{"id": 9223372036854775808}': "id: an integer does not fit 64 bits",
    '{"id": 1, "real": -1e400}': "real: a number does not fit a double",
    '{"id": 1, "flag": 1}': "flag: true or false is expected, but it is a number",
    '{"id": 1, "day": "2026-02-30"}': "day: a date as in RFC 3339 is expected, such as 2026-01-31",
    '{"id": 1, "day": 7}': "day: a date as in RFC 3339 is expected, such as 2026-01-31",
    '{"id": 1, "at": "2026-01-01 00:00"}': "at: a date and time as in RFC 3339 is expected, with a zone of at most 18 "
    "hours and at most microseconds, such as 2026-01-31T23:59:59.123456Z",
    '{"id": 1, "at": "2026-01-01T00:00:00+18:01"}': "at: a date and time as in RFC 3339 is expected, with a zone of at "
    "most 18 hours and at most microseconds, such as 2026-01-31T23:59:59.123456Z",
    '{"id": 1, "inner": [1]}': "inner: an object is expected, but it is a list",
    '{"id": 1, "inner": {"t": "a"}}': "inner.x: it is required, but missing",
    '{"id": 1, "list": {}}': "list: a list is expected, but it is an object",
    '{"id": 1, "list": [{"x": 1}, {"x": true}]}': "list[1].x: a number is expected, but it is true or false",
    '{"id": 1, "map": {"secret": 1, "b": "secret"}}': "map.value: a number is expected, but it is text",
    '{"id": 1, "days": {"secret": "2026-02-30", "secret": "2026-01-31"}}': "days.value: a date as in RFC 3339 is "
    "expected, such as 2026-01-31",
    '{"id": 1, "any": [{"a": 1e400}]}': "any: a number does not fit a double",
    '{"id": 1, "inner": {"x": 1, "t": -1e400}}': "inner.t: a number does not fit a double",
    '{"id": 1, "inner": {"x": 1, "t": [{"secret": 1e999, "secret": 1}]}}': "inner.t: a number does not fit a double",
    '{"id": 1, "any": [{"secret": 1, "secret": 2}]}': "any: an object repeats a member",
    '{"id": 1, "any": "ä\\ud800"}': "half of a surrogate pair is escaped alone, at byte 25 of the value",
    '{"id": 1, "x": "\\\\\\udc00"}': "half of a surrogate pair is escaped alone, at byte 23 of the value",
}
VALID = [
    {"id": -(2**63), "real": 1, "flag": None, "inner": None, "list": [], "map": {"": 1}, "any": None},
    {"id": 1, "day": "0001-01-01", "at": "2026-01-31t23:59:59.1234567z".replace("7z", "z")},
    {"id": 1, "at": "2026-01-31T23:59:59.123456000+02:00", "any": "\\ud800"},
    {"id": 1, "inner": {"x": 1, "t": ["1e400", 1e308, {"a": None}]}},
    {"id": 1, "any": "😀", "inner": {"x": 1, "unknown": 1e300}},
]


@pytest.mark.parametrize("text", REASONS)
def test_explain_invalid_text_names_field_rule_and_position(text):
    explanation = pickle.loads(pickle.dumps(CODEC)).explain(FRAME + text.encode())  # noqa: S301 (pickled by this test)
    assert explanation == REASONS[text]
    assert "secret" not in explanation


@pytest.mark.parametrize("record", VALID)
def test_explain_valid_record_returns_none(record):
    assert CODEC.explain(FRAME + json.dumps(record).encode()) is None


def test_explain_invalid_bytes_depth_and_length():
    assert CODEC.explain(FRAME + b'{"id": "\xff"}') == "the text is not valid UTF-8, at byte 13 of the value"
    assert CODEC.explain(FRAME + b'{"any":' + b"[" * 5000) == "values are nested more than 1000 levels deep"
    assert CODEC.explain(FRAME + b'{"id": ' + b"1" * 5000 + b"}") == "id: a number has more than 1,000 characters"


def test_explain_text_without_schema_id_expects_no_frame():
    assert JsonCodec(CODEC.fields).explain(b"{}") == "id: it is required, but missing"


def test_explain_text_with_a_frame_names_the_schema_id_and_the_format():
    for codec in (JsonCodec(CODEC.fields), JsonTextCodec("value")):
        assert codec.explain(FRAME + b"\x02a") == (
            "it begins with a zero byte and the schema id 1, and is no text: write 'value_format: avro', or the format "
            "of that schema"
        )
    assert JsonTextCodec("value").explain(b"{} {}") == "'value': text is not one JSON value"


@pytest.mark.parametrize(
    ("data", "is_json"),
    [(b' {"a": 1}', True), (b"[]", True), (b"5", False), (b"{", False), (b'{"\xff": 1}', False), (b"[" * 10**5, False)],
)
def test_document_is_an_object_or_a_list(data, is_json):
    assert bool(document_fault(data)) is is_json
