"""Why an Avro message is no row: the field, the rule and the byte, and never a value."""

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
from lakehouse.pipeline.codecs import side


def record(**fields):
    made = [{"name": name, "type": type_} for name, type_ in fields.items()]
    return {"type": "record", "name": "R", "fields": made}


def codec(*versions):
    found = [RegisteredSchema(n, json.dumps(schema)) for n, schema in enumerate(versions, 1)]
    return side("avro", found, "").codec


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
INNER = {**record(s="string"), "name": "I"}
MILLIS = {"type": "long", "logicalType": "timestamp-millis"}

BROKEN = {
    "cut short": (record(a="int", b="string"), b"\x02\x06ab", "'b': the value is cut short (byte 7"),
    "nothing": (record(a="int"), b"", "'a': the value is cut short (byte 5"),
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
    "enum": (record(a=LETTERS), b"\x04", "'a': an enum of 2 symbols has none of the number written (byte 5"),
    "union": (
        record(a=["null", "int"]),
        b"\x04\x02",
        "'a': a union of 2 branches has none of the number written (byte 5",
    ),
    "negative union": (
        record(a=["null", "int"]),
        b"\x01",
        "'a': a union of 2 branches has none of the number written (byte 5",
    ),
    "negative length": (record(a="bytes"), b"\x01", "'a': a length is negative (byte 5"),
    "long number": (record(a="int"), b"\xff" * 5 + b"\x01", "'a': a number has more than 5 bytes (byte 5"),
    "digits": (record(a=decimal(2)), b"\x02\x7f", "'a': a decimal has more than 2 digits (byte 5"),
    "no digits": (record(a=decimal(2)), b"\x00", "'a': a decimal has no bytes (byte 5"),
    "moment": (
        record(a=MILLIS),
        b"\xff" * 9 + b"\x01",
        "'a': the moment is beyond what microseconds in 64 bits hold (byte 5",
    ),
    "announced items": (
        record(a={"type": "array", "items": "int"}),
        b"\x80\xc4\xaf\xa0\x0b",
        "'a[0]': the value is cut short (byte 10",
    ),
}


@pytest.mark.parametrize("case", BROKEN)
def test_bytes_that_are_no_record_say_where(case):
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
    "null": (["null", "int"], "int", None, "'a': null, which the schema that reads it does not allow"),
    "size": (fixed(1), fixed(2), b"x", "'a': fixed of 1 bytes is not fixed of 2"),
    "deep": (map_of("string"), map_of("int"), {"k": {"x": ""}}, "'a[0].x': string is not int"),
}


@pytest.mark.parametrize("case", CHANGED)
def test_a_value_that_has_another_meaning_in_the_newest_schema_says_which(case):
    before, after, value, expected = CHANGED[case]
    found = codec(record(a=before), record(a=after)).explain(framed(encoded(record(a=before), {"a": value})))
    assert found.rpartition(" (byte ")[0] == expected


def test_a_record_that_lacks_what_is_required_says_what():
    old, new = record(a="int"), record(a="int", b="int")
    found = [RegisteredSchema(n, json.dumps(schema)) for n, schema in enumerate((old, new), 1)]
    decoder = side("avro", found, "", found[1:]).codec
    assert decoder.explain(framed(b"\x02")).startswith("the record: the record has no 'b', which has no default")


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


def test_what_another_reader_takes_has_no_fault_and_what_it_refuses_has_one():
    decoder, parsed, chance = codec(EVERYTHING), fastavro.parse_schema(EVERYTHING), random.Random(7)
    refused = 0
    for value in VALUES:
        body = encoded(EVERYTHING, value)
        assert decoder.explain(framed(body)) is None
        assert all(decoder.explain(framed(body[:n])) for n in range(len(body)))
        for _ in range(300):
            broken = bytearray(body)
            broken[chance.randrange(len(body))] ^= 1 << chance.randrange(8)
            stream = io.BytesIO(broken)
            try:
                fastavro.schemaless_reader(stream, parsed, None)
                whole = not stream.read()
            except Exception:
                whole = False
            refused += not whole
            assert whole or decoder.explain(framed(bytes(broken))), broken
    assert refused > 100


def test_items_without_bytes_are_not_counted_one_by_one():
    schema = record(a="int", b={"type": "array", "items": {"type": "fixed", "name": "F", "size": 0}})
    body = b"\x02" + b"\xfe" + b"\xff" * 8 + b"\x01" + b"\x00"
    assert codec(schema).explain(framed(body)) is None


def test_it_goes_to_workers_and_costs_no_import_of_servers():
    explain = pickle.dumps(codec(EVERYTHING).explain)
    program = (
        "import pickle, sys; explain = pickle.load(sys.stdin.buffer); print(explain(b'\\0\\0\\0\\0\\1\\7'));"
        "sys.exit(bool({'dagster', 'pyiceberg.types', 'confluent_kafka'} & set(sys.modules)))"
    )
    ended = subprocess.run([sys.executable, "-c", program], input=explain, capture_output=True, check=False)
    assert ended.returncode == 0, ended.stderr
    assert b"'a': a union of 4 branches" in ended.stdout


@pytest.mark.parametrize("data", [b"", b"\0\0", b"\1\0\0\0\1\2", b"\0\0\0\0\7\2"])
def test_a_message_of_no_known_schema_is_not_explained(data):
    assert codec(record(a="int")).explain(data) is None
