"""Tombstones whose key has another type than its column: they delete the row of exactly this key, or none."""

import io
import json
from dataclasses import dataclass
from datetime import UTC, date, datetime
from decimal import Decimal

import fastavro
import pytest

from lakehouse.config.model import Topic
from lakehouse.formats.schema import RegisteredSchema
from lakehouse.pipeline.schemas import decoding
from spark.decoding.decode import decode
from spark.decoding.decoded import record
from tests.support.fuzz import avro_model
from tests.support.fuzz.decoding import RECORDS, instructions

MONEY = {"type": "bytes", "logicalType": "decimal", "precision": 10, "scale": 2}
WIDE = {"type": "bytes", "logicalType": "decimal", "precision": 20, "scale": 0}
DATE = {"type": "int", "logicalType": "date"}
MOMENT = {"type": "long", "logicalType": "timestamp-micros"}
LOCAL = {"type": "long", "logicalType": "local-timestamp-micros"}
POINT = {"type": "record", "name": "Point", "fields": [{"name": "a", "type": "int"}, {"name": "b", "type": "int"}]}
TURNED = POINT | {"fields": POINT["fields"][::-1]}

NOON = datetime(2024, 1, 1, 12, tzinfo=UTC)
MOST = 2**63 - 1


def hundredths(number):
    return number.to_bytes(8, "big", signed=True)


@dataclass(frozen=True)
class Subjects:
    """A schema registry with an Avro schema for keys, if they have one, and one for values."""

    key: object
    value: object

    def versions(self, subject):
        type_ = self.key if subject.endswith("-key") else self.value
        return [RegisteredSchema(1, json.dumps(schema(type_)))] if type_ else []


def schema(type_):
    return {"type": "record", "name": "R", "fields": [{"name": "id", "type": type_}]}


def deleted(decoder, key_type, column_type, keys, text_format="string"):
    """Return the key of the row that the tombstone of each key deletes; for dead letters, the reason."""
    key_format = "avro" if key_type else text_format
    topic = Topic.model_validate(
        {"name": "keys", "value_format": "avro", "mode": "upsert", "key": "id", "key_format": key_format}
    )
    encoded = [avro_model.encoded(1, schema(key_type), {"id": key}) if key_type else key.encode() for key in keys]
    return decoded_keys(decoder, topic, Subjects(key_type, column_type), encoded)


def decoded_keys(decoder, topic, subjects, encoded, values=None):
    """Return the key of each record's row; for dead letters, the reason. Without values, they are tombstones."""
    known = decoding.resolve_schemas(subjects, topic)
    values = values or [None] * len(encoded)
    pairs = zip(encoded, values, strict=True)
    rows = [(key, value, "keys", 0, offset, NOON, 0, None) for offset, (key, value) in enumerate(pairs)]
    decoded = decode(decoder.session.createDataFrame(rows, RECORDS), instructions(known))
    result = decoded.select("id", record("reason").alias("reason")).toArrow().to_pylist()
    return [row["reason"] or row["id"] for row in result]


TEXTS = [
    ("int", {"7": 7, "007": 7, "-0": 0, "7.5": None, "2147483648": None, "": None}),
    ("long", {str(MOST): MOST, str(MOST + 1): None, "1e2": None}),
    ("double", {"0.10": 0.1, "1e2": 100, "+.5": 0.5, "9007199254740993": None, "1.00000000000000000001": None}),
    ("double", {"1e400": None, "1e-400": None, "0e1": 0, "-1": -1, "1.5d": None}),
    ("float", {"0.1": pytest.approx(0.1), "16777217": None, "16777216": 16777216}),
    (MONEY, {"1.2": Decimal("1.20"), "1.239": None, "0.001": None, "-1.230": Decimal("-1.23")}),
    (DATE, {"2024-01-01": date(2024, 1, 1), "2024-02-30": None, "2024-01-01 12:00": None, "2024-01": None}),
    (DATE, {"2024-01-01T12:00:00Z": None, "2024": None}),
    (MOMENT, {"2024-01-01T12:00:00Z": NOON, "2024-01-01 14:00:00.000+02:00": NOON, "2024-01-01T12:00": None}),
    (MOMENT, {"2024-01-01T12:00:00.0000001Z": None, "2024-01-01": None, "12:30": None, "2024-01-01T12:00:00": None}),
    (LOCAL, {"2024-01-01T12:00:00": NOON.replace(tzinfo=None), "2024-01-01T12:00:00+02:00": None, "2024": None}),
    ("boolean", {"true": True, "yes please": None}),
    ("bytes", {"é": "é".encode()}),
    (POINT, {"1": None}),
    ({"type": "array", "items": "int"}, {"1": None}),
]

VALUES = [
    ("int", "int", [(7, 7), (2**31, None), (3 * 10**9, None), (-(2**31) - 1, None)]),
    ("int", "long", [(7, 7), (2**31, None)]),
    ("long", "int", [(7, 7), (2**31, None)]),
    ("long", "double", [(2**53, 2**53), (2**53 + 1, None), (MOST, None)]),
    ("long", "float", [(MOST, None), (5, 5)]),
    ("long", MONEY, [(7, Decimal("7.00"))]),
    ("long", "boolean", [(1, True), (2, None)]),
    ("long", "string", [(7, "7")]),
    ("double", "long", [(7.0, 7), (7.5, None), (2.0**63, None), (-(2.0**63), -(2**63)), (float("nan"), None)]),
    ("float", "long", [(2.0**63, None), (2.0**24, 2**24)]),
    ("double", "float", [(0.5, 0.5), (0.1, None)]),
    ("double", MONEY, [(1.25, Decimal("1.25")), (1.255, None)]),
    ("float", "double", [(0.5, 0.5)]),
    (MONEY, "int", [(hundredths(700), 7), (hundredths(701), None)]),
    (MONEY, WIDE, [(hundredths(700), 7), (hundredths(701), None)]),
    # The unit of a number is unknown, and a local time or a date is no moment.
    ("long", MOMENT, [(1_700_000_000, None)]),
    ("long", LOCAL, [(1_700_000_000, None)]),
    (MOMENT, "long", [(1_700_000_000_000_000, None)]),
    (MOMENT, "double", [(0, None)]),
    ("int", DATE, [(0, None)]),
    (DATE, "int", [(0, None)]),
    (DATE, MOMENT, [(0, None)]),
    (DATE, LOCAL, [(0, None)]),
    (MOMENT, DATE, [(0, None)]),
    (LOCAL, MOMENT, [(0, None)]),
    (MOMENT, LOCAL, [(0, None)]),
    (MOMENT, "string", [(0, None)]),
    (DATE, "string", [(19_723, "2024-01-01")]),
    ("boolean", "string", [(True, "true")]),
    ("bytes", "string", [("é".encode(), "é"), (b"\xff", None)]),
    ("bytes", "int", [(b"\0\0\0\1", None)]),
    (POINT, ["null", POINT], [({"a": 1, "b": 2}, {"a": 1, "b": 2})]),
    (POINT, TURNED, [({"a": 1, "b": 2}, None)]),
    (POINT, "string", [({"a": 1, "b": 2}, None)]),
]


UUID = {"type": "string", "logicalType": "uuid"}
IDENTITY = "0b8f2c1e-5d3a-4f6b-9c7d-1e2f3a4b5c6d"

AGREEMENT = [
    ("string", None, "string", "42", {"42": True, "042": False, " 42": False, '"42"': False, "": False}),
    ("string", None, "string", "Zoë", {"Zoë": True, "zoë": False, "Zoe\u0308": False}),
    ("string", None, "int", 42, {"42": True, "042": True, "+42": True, "43": False, "x": "bad_key"}),
    ("string", None, "long", -7, {"-7": True, "-007": True, "7": False, "-7.0": "bad_key"}),
    (
        "string",
        None,
        "double",
        0.5,
        {"0.5": True, ".50": True, "5e-1": True, "0.51": False, "NaN": False, "x": "bad_key"},
    ),
    ("string", None, "double", -0.0, {"0": True, "-0": True}),
    ("string", None, MONEY, hundredths(120), {"1.2": True, "1.20": True, "1.21": False, "1.201": "bad_key"}),
    ("string", None, UUID, IDENTITY, {IDENTITY: True, IDENTITY.upper(): False}),
    ("string", None, DATE, 19_723, {"2024-01-01": True, "2024-01-02": False, "19723": "bad_key"}),
    ("string", None, "bytes", b"\xc3\xa9", {"é": True, "e": False}),
    ("string", None, "boolean", True, {"true": True, "false": False}),
    ("json", None, "string", "42", {'"42"': True, "42": True, '"042"': False, ' "42" ': True, "[42]": "bad_key"}),
    ("json", None, "string", "a", {'{"id": "a"}': True, '{"id": "A"}': False, '{"x": "a"}': "bad_key"}),
    ("json", None, "int", 42, {"42": True, '"42"': True, '"042"': True, "42.5": "bad_key", "null": "bad_key"}),
    ("json", None, UUID, IDENTITY, {f'"{IDENTITY}"': True, f'"{IDENTITY.upper()}"': False}),
    ("long", None, "int", 42, {(42).to_bytes(8): True, (43).to_bytes(8): False, (42).to_bytes(4): "bad_key"}),
    ("long", None, "string", "42", {(42).to_bytes(8): True, (2**40 + 42).to_bytes(8): False}),
    ("long", None, "string", "042", {(42).to_bytes(8): False}),
    ("int", None, "long", -1, {b"\xff\xff\xff\xff": True, (2**31 - 1).to_bytes(4): False}),
    ("bytes", None, "bytes", b"\0\xff", {b"\0\xff": True, b"\0": False}),
    ("bytes", None, "string", "k", {b"k": True, b"K": False, b"\xff": "bad_key"}),
    ("avro", "long", "string", "42", {42: True, 43: False}),
    ("avro", "string", "long", 42, {"42": True, "042": True, "43": False, "x": "bad_key"}),
    ("avro", "double", "long", 42, {42.0: True, 42.5: "bad_key", 43.0: False}),
    ("avro", MONEY, "int", 42, {hundredths(4200): True, hundredths(4201): "bad_key", hundredths(4300): False}),
    ("avro", "double", "double", float("nan"), {float("nan"): True, 1.0: False}),
    ("avro", "bytes", "string", "é", {"é".encode(): True, b"e": False}),
    ("avro", DATE, DATE, 19_723, {19_723: True, 19_724: False}),
    ("avro", UUID, "string", IDENTITY, {IDENTITY: True, IDENTITY.upper(): False}),
    ("avro", ["null", "string"], "string", "k", {None: True, "k": True, "K": False}),
]
"""Key format, type of keys in Avro, type of the column, key in the value, and message keys: true if both agree, false
if the keys differ, or the reason of a dead letter."""


def name(value):
    return value if isinstance(value, str) else value.get("logicalType") if isinstance(value, dict) else None


@pytest.mark.parametrize(("column_type", "texts"), TEXTS, ids=name)
def test_key_of_text_is_exactly_that_of_row_or_bad_key(decoder, column_type, texts):
    expected = ["bad_key" if key is None else key for key in texts.values()]

    assert deleted(decoder, None, column_type, texts) == expected


@pytest.mark.parametrize(("key_type", "column_type", "examples"), VALUES, ids=name)
def test_key_of_other_type_is_exactly_that_of_row_or_bad_key(decoder, key_type, column_type, examples):
    keys = [key for key, _ in examples]
    expected = ["bad_key" if key is None else key for _, key in examples]

    assert deleted(decoder, key_type, column_type, keys) == expected


@pytest.mark.parametrize("mode", ["upsert", "dedup"])
@pytest.mark.parametrize(("key_format", "key_type", "column_type", "id_", "keys"), AGREEMENT, ids=name)
def test_message_key_agrees_with_key_in_value_or_is_dead_letter(
    decoder, mode, key_format, key_type, column_type, id_, keys
):
    settings = {"name": "keys", "mode": mode, "key": "id", "key_format": key_format}
    topic, subjects = Topic.model_validate(settings), Subjects(key_type, column_type)
    plain = [key.encode() if isinstance(key, str) else key for key in keys]
    encoded = [avro_model.encoded(1, schema(key_type), {"id": key}) for key in keys] if key_type else plain
    value = avro_model.encoded(1, schema(column_type), {"id": id_})

    decoded = decoded_keys(decoder, topic, subjects, encoded, [value] * len(keys))

    reasons = {True: None, False: "key_mismatch"}
    actual = [key if key in ("bad_key", "key_mismatch") else None for key in decoded]
    assert actual == [reasons.get(agrees, agrees) for agrees in keys.values()]


@pytest.mark.parametrize(
    ("column_type", "texts"),
    [
        ("string", {'"abc"': "abc", r' "\u00e9\"\ud83d\ude00" ': 'é"😀', '""': "", "5": "5", "true": "true"}),
        ("string", {"null": None, '{"a": 1}': None, "[1]": None, r'"\ud800"': None, '"open': None, '"a" "b"': None}),
        ("int", {"7": 7, '"7"': 7, "7.5": None, '"x"': None}),
        (DATE, {'"2024-01-01"': date(2024, 1, 1), '"2024-01"': None}),
        ("int", {'{"id": 7}': 7, '{"id": "007", "other": [1]}': 7, '{"other": 7}': None, '{"id": 7.5}': None}),
        ("string", {'{"id": "a"}': "a", '{"id": 7}': "7", '{"id": null}': None, '{"id": [1]}': None, "{}": None}),
        ("string", {'{"schema": {"type": "struct"}, "payload": {"id": "a"}}': "a", '{"id": {"id": "a"}}': None}),
    ],
    ids=name,
)
def test_key_of_json_is_its_text_number_or_boolean(decoder, column_type, texts):
    expected = ["bad_key" if key is None else key for key in texts.values()]

    assert deleted(decoder, None, column_type, texts, "json") == expected


def test_key_of_json_has_all_columns_by_name(decoder):
    fields = [{"name": "user", "type": "long"}, {"name": "client", "type": "string"}]
    text = json.dumps({"type": "record", "name": "R", "fields": fields})

    class Registry:
        def versions(self, subject):
            return [] if subject.endswith("-key") else [RegisteredSchema(1, text)]

    settings = {"name": "keys", "mode": "upsert", "key": ["user", "client"], "key_format": "json"}
    known = decoding.resolve_schemas(Registry(), Topic.model_validate(settings))
    keys = ['{"client": "a", "user": 7}', '{"user": 7}', '"a"', "7"]
    rows = [(key.encode(), None, "keys", 0, offset, NOON, 0, None) for offset, key in enumerate(keys)]
    decoded = decode(decoder.session.createDataFrame(rows, RECORDS), instructions(known))
    result = decoded.select("user", "client", record("reason").alias("reason")).toArrow().to_pylist()
    assert [(row["user"], row["client"]) for row in result if not row["reason"]] == [(7, "a")]
    assert [row["reason"] for row in result] == [None, "bad_key", "bad_key", "bad_key"]


@pytest.mark.parametrize(
    ("root", "column_type", "keys"),
    [
        ("string", "string", {"k": "k", "": ""}),
        ("string", "int", {"42": 42, "042": 42, "x": "bad_key"}),
        ("long", "string", {42: "42"}),
        ({"type": "int"}, "long", {42: 42}),
        (["null", "string"], "string", {"k": "k", None: "bad_key"}),
        ({"type": "enum", "name": "Side", "symbols": ["BUY", "SELL"]}, "string", {"SELL": "SELL"}),
    ],
    ids=name,
)
def test_key_of_avro_without_record_is_one_column(decoder, root, column_type, keys):
    class Registry:
        def versions(self, subject):
            is_key = subject.endswith("-key")
            return [RegisteredSchema(1, json.dumps(root if is_key else schema(column_type)))]

    def encoded(key):
        body = io.BytesIO()
        fastavro.schemaless_writer(body, fastavro.parse_schema(root), key)
        return b"\0\0\0\0\x01" + body.getvalue()

    settings = {"name": "keys", "mode": "upsert", "key": "id", "key_format": "avro"}
    topic, sent = Topic.model_validate(settings), [encoded(key) for key in keys]

    assert decoded_keys(decoder, topic, Registry(), sent) == list(keys.values())


@pytest.mark.parametrize(
    ("root", "column_type", "keys"),
    [
        (
            {"type": "string", "title": "OrderId"},
            "string",
            {
                '"k"': "k",
                ' "k" ': "k",
                '""': "",
                "k": "bad_key",
                "null": "bad_key",
                '{"id": "k"}': '{"id":"k"}',
                '"k","id":"x"': "bad_key",
                '"k"}': "bad_key",
                '"k" "x"': "bad_key",
                "": "bad_key",
            },
        ),
        ({"type": "string"}, "int", {'"042"': 42, '"x"': "bad_key"}),
        ({"type": "integer"}, "string", {"42": "42", "42.0": "42", "42.5": "bad_key", '"42"': "bad_key"}),
        ({"type": ["null", "integer"]}, "long", {"42": 42, "null": "bad_key"}),
        ({"type": "number"}, "long", {"42": 42, "42.5": "bad_key"}),
        ({"$ref": "#/definitions/Id", "definitions": {"Id": {"enum": ["a", "b"]}}}, "string", {'"a"': "a"}),
        ({"type": "string", "format": "date"}, DATE, {'"2024-01-01"': date(2024, 1, 1), '"2024"': "bad_key"}),
    ],
    ids=name,
)
def test_key_of_json_schema_without_object_is_one_column(decoder, root, column_type, keys):
    class Registry:
        def versions(self, subject):
            if subject.endswith("-key"):
                return [RegisteredSchema(1, json.dumps(root), "JSON")]
            return [RegisteredSchema(2, json.dumps(schema(column_type)))]

    settings = {"name": "keys", "mode": "upsert", "key": "id", "key_format": "json_schema"}
    topic, sent = Topic.model_validate(settings), [b"\0\0\0\0\x01" + key.encode() for key in keys]

    assert decoded_keys(decoder, topic, Registry(), sent) == list(keys.values())


def test_key_of_json_schema_is_decoded_by_its_version(decoder):
    of_object = {"type": "object", "properties": {"id": {"type": "string"}}, "required": ["id"]}

    class Registry:
        def versions(self, subject):
            if subject.endswith("-key"):
                texts = json.dumps({"type": "string"}), json.dumps(of_object)
                return [RegisteredSchema(id_, text, "JSON") for id_, text in enumerate(texts, 1)]
            return [RegisteredSchema(3, json.dumps(schema("string")))]

    settings = {"name": "keys", "mode": "upsert", "key": "id", "key_format": "json_schema"}
    sent = [bytes([0, 0, 0, 0, id_]) + key for id_, key in ((1, b'"a"'), (2, b'{"id": "a"}'), (2, b'"a"'), (1, b"[1]"))]

    keys = decoded_keys(decoder, Topic.model_validate(settings), Registry(), sent)
    assert keys == ["a", "a", "bad_key", "[1]"]


def test_key_of_json_is_unchanged_for_column_of_json_text(decoder):
    class Registry:
        def versions(self, subject):
            return [RegisteredSchema(1, '{"title": "R", "type": "object", "properties": {"id": {}}}')]

    settings = {"name": "keys", "value_format": "json_schema", "mode": "upsert", "key": "id", "key_format": "json"}
    texts = ['"abc"', '{"a":1}', "5"]

    assert decoded_keys(decoder, Topic.model_validate(settings), Registry(), [t.encode() for t in texts]) == texts
