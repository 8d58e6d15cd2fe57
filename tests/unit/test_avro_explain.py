"""Explanations of undecodable Avro messages: field, rule and byte, but no value."""

import io
import json
import pickle
import random
import subprocess
import sys
from decimal import Decimal

import fastavro
import pytest

from lakehouse.formats.schema import RegisteredSchema
from lakehouse.pipeline.schemas.decoding import side_schema
from spark.engine import codec_of
from tools.import_budgets import IN_WORKERS


def record(**fields):
    declarations = [{"name": name, "type": type_} for name, type_ in fields.items()]
    return {"type": "record", "name": "R", "fields": declarations}


def codec(*versions):
    registered = [RegisteredSchema(n, json.dumps(schema)) for n, schema in enumerate(versions, 1)]
    return codec_of(side_schema("avro", registered, "").side)


def framed(body, version=1):
    return b"\0" + version.to_bytes(4, "big") + body


def encoded(schema, value):
    out = io.BytesIO()
    fastavro.schemaless_writer(out, fastavro.parse_schema(json.loads(json.dumps(schema))), value)
    return out.getvalue()


def decimal(precision, **more):
    return {"type": "bytes", "logicalType": "decimal", "precision": precision, "scale": 1, **more}


def fixed(size):
    return {"type": "fixed", "name": "F", "size": size}


def map_of(type_):
    return {"type": "map", "values": {**record(x=type_), "name": "I"}}


LETTERS = {"type": "enum", "name": "E", "symbols": ["A", "B"]}
INNER_INT = {**record(i="int"), "name": "I"}
INNER = {**record(s="string"), "name": "I"}
MILLIS = {"type": "long", "logicalType": "timestamp-millis"}

BROKEN = {
    "cut short": (record(a="int", b="string"), b"\x02\x06ab", "'b': the message ends within the value (byte 7"),
    "nothing": (record(a="int"), b"", "'a': the message ends within the value (byte 5"),
    "bytes behind": (record(a="int"), b"\x02\x00", "the record: bytes follow the record (byte 6"),
    "text": (record(a=INNER), b"\x06a\xc3(", "'a.s': text is not UTF-8 (byte 7"),
    "text in a list": (
        record(a={"type": "array", "items": INNER}),
        b"\x04\x02a\x02\xff\x00",
        "'a[1].s': text is not UTF-8 (byte 9",
    ),
    "key": (
        record(a={"type": "map", "values": "int"}),
        b"\x02\x02\xff\x02\x00",
        "'a[0]': the key is not UTF-8 (byte 7",
    ),
    "enum": (record(a=LETTERS), b"\x04", "'a': the index is not one of the enum's 2 symbols (byte 5"),
    "union": (
        record(a=["null", "int"]),
        b"\x04\x02",
        "'a': the index is not one of the union's 2 branches (byte 5",
    ),
    "negative union": (
        record(a=["null", "int"]),
        b"\x01",
        "'a': the index is not one of the union's 2 branches (byte 5",
    ),
    "negative length": (record(a="bytes"), b"\x01", "'a': a length is negative (byte 5"),
    "long number": (record(a="long"), b"\xff" * 10 + b"\x01", "'a': a number has more than 10 bytes (byte 5"),
    "large int": (
        record(a=INNER_INT),
        b"\x80\x80\x80\x80\x10",
        "'a.i': the number does not fit the 32 bits of an int (byte 5",
    ),
    "digits": (record(a=decimal(2)), b"\x02\x7f", "'a': a decimal has more than 2 digits (byte 5"),
    "no digits": (record(a=decimal(2)), b"\x00", "'a': a decimal has no bytes (byte 5"),
    "moment": (
        record(a=MILLIS),
        b"\xff" * 9 + b"\x01",
        "'a': the timestamp in microseconds does not fit 64 bits (byte 5",
    ),
    "announced items": (
        record(a={"type": "array", "items": "int"}),
        b"\x80\xc4\xaf\xa0\x0b",
        "'a[0]': the message ends within the value (byte 10",
    ),
}


@pytest.mark.parametrize("case", BROKEN)
def test_explain_invalid_bytes_names_field_and_byte(case):
    schema, body, expected = BROKEN[case]
    assert codec(schema).explain(framed(body)) == f"{expected})"


CHANGED = {
    "scale": (
        decimal(4),
        decimal(4, scale=2),
        Decimal("1.5"),
        "'a': decimal of scale 1 on bytes is not decimal of scale 2 on bytes",
    ),
    "decimal to text": (decimal(4), "string", Decimal("1.5"), "'a': decimal of scale 1 on bytes is not string"),
    "bytes to decimal": ("bytes", decimal(4), b"1", "'a': bytes is not decimal of scale 1 on bytes"),
    "moment to number": (MILLIS, "long", 1, "'a': timestamp-millis is not long"),
    "number to moment": ("int", MILLIS, 1, "'a': int is not timestamp-millis"),
    "day to number": ({"type": "int", "logicalType": "date"}, "long", 1, "'a': date is not long"),
    "rounded": ("long", "double", 1, "'a': long does not always fit double"),
    "type": ("string", "int", "1", "'a': string is not int"),
    "null": (["null", "int"], "int", None, "'a': the value is null, and the reader schema does not allow null"),
    "size": (fixed(1), fixed(2), b"x", "'a': fixed of 1 bytes is not fixed of 2"),
    "deep": (map_of("string"), map_of("int"), {"k": {"x": ""}}, "'a[0].x': string is not int"),
}


@pytest.mark.parametrize("case", CHANGED)
def test_explain_incompatible_reader_schema_names_both_types(case):
    before, after, value, expected = CHANGED[case]
    explanation = codec(record(a=before), record(a=after)).explain(framed(encoded(record(a=before), {"a": value})))
    assert explanation.rpartition(" (byte ")[0] == expected


def test_explain_missing_required_field_names_it():
    old, new = record(a="int"), record(a="int", b="int")
    registered = [RegisteredSchema(n, json.dumps(schema)) for n, schema in enumerate((old, new), 1)]
    decoder = codec_of(side_schema("avro", registered, "", registered[1:]).side)
    assert decoder.explain(framed(b"\x02")).startswith("the record: the record has no 'b', which has no default")


def test_explain_default_that_avro_for_java_does_not_read_names_it():
    old, new = record(a="int"), record(a="int", b=[{"type": "array", "items": "int"}, "string"])
    new["fields"][1]["default"] = []
    registered = [RegisteredSchema(n, json.dumps(schema)) for n, schema in enumerate((old, new), 1)]
    decoder = codec_of(side_schema("avro", registered, "", registered[1:]).side)
    assert "no 'b', whose default is an empty array in a union of several types" in decoder.explain(framed(b"\x02"))


def test_explain_symbol_that_reader_lacks_names_it_despite_default():
    old, new = (record(a={**LETTERS, "symbols": symbols, "default": "A"}) for symbols in (["A", "B"], ["A", "C"]))
    registered = [RegisteredSchema(n, json.dumps(schema)) for n, schema in enumerate((old, new), 1)]
    decoder = codec_of(side_schema("avro", registered, "", registered[:1]).side)
    assert decoder.explain(framed(b"\x02", 2)) == "'a': the enum of the reader schema does not have the symbol (byte 5)"


EVERYTHING = record(
    a=["null", "string", LETTERS, {**record(x="long", y={"type": "fixed", "name": "F", "size": 3}), "name": "X"}],
    b={"type": "array", "items": {"type": "map", "values": ["null", "double", "bytes"]}},
    c="float",
    d="boolean",
)
VALUES = [
    {"a": "grün", "b": [{"k": 0.5, "l": b"\xff"}, {}], "c": 1.5, "d": True},
    {"a": {"x": -(2**60), "y": b"abc"}, "b": [], "c": 0, "d": False},
    {"a": None, "b": [{"": None}], "c": -1, "d": True},
]


def test_explain_agrees_with_independent_decoder():
    decoder, parsed, random_bits = codec(EVERYTHING), fastavro.parse_schema(EVERYTHING), random.Random(7)
    invalid = 0
    for value in VALUES:
        body = encoded(EVERYTHING, value)
        assert decoder.explain(framed(body)) is None
        assert all(decoder.explain(framed(body[:n])) for n in range(len(body)))
        for _ in range(300):
            damaged = bytearray(body)
            damaged[random_bits.randrange(len(body))] ^= 1 << random_bits.randrange(8)
            stream = io.BytesIO(damaged)
            try:
                fastavro.schemaless_reader(stream, parsed, None)
                valid = not stream.read()
            except Exception:
                valid = False
            invalid += not valid
            assert valid or decoder.explain(framed(bytes(damaged))), damaged
    assert invalid > 100


def test_explain_huge_count_of_empty_items_is_fast():
    schema = record(a="int", b={"type": "array", "items": {"type": "fixed", "name": "F", "size": 0}})
    body = b"\x02" + b"\xfe" + b"\xff" * 8 + b"\x01" + b"\x00"
    assert codec(schema).explain(framed(body)) is None


def test_explain_unpickled_imports_no_heavy_libraries():
    decoder = codec(EVERYTHING)
    assert decoder.explain(b"\0\0\0\0\1\7"), "what it has looked up does not travel"
    explain = pickle.dumps(decoder.explain)
    program = (
        "import pickle, sys; explain = pickle.load(sys.stdin.buffer); print(explain(b'\\0\\0\\0\\0\\1\\7'));"
        "sys.exit(bool(set(sys.argv[1:]) & set(sys.modules)))"
    )
    command = [sys.executable, "-c", program, *IN_WORKERS]
    result = subprocess.run(command, input=explain, capture_output=True, check=False)
    assert result.returncode == 0, result.stderr
    assert b"'a': the index is not one of the union's 4 branches" in result.stdout


@pytest.mark.parametrize("data", [b"", b"\0\0", b"\1\0\0\0\1\2", b"\0\0\0\0\7\2"])
def test_explain_unknown_schema_returns_none(data):
    assert codec(record(a="int")).explain(data) is None
