"""Defaults of fields that older versions lack, in the compiled decoder."""

import io
import json
import struct
from datetime import date
from decimal import Decimal

import fastavro
import pyarrow.parquet as pq
import pytest

from lakehouse.config.model import Topic
from lakehouse.formats.columns import table_schema
from lakehouse.formats.schema import RegisteredSchema
from lakehouse.pipeline.schemas import decoding
from spark.engine import with_codecs
from spark.native import plan
from tests.support.fuzz.decoding import Versions

lakehouse_native = pytest.importorskip("lakehouse_native")

OLD = {"type": "record", "name": "r", "fields": [{"name": "id", "type": "int"}]}
COLOURS = {"type": "enum", "name": "c", "symbols": ["red", "blue"]}
POINT = {
    "type": "record",
    "name": "p",
    "fields": [{"name": "x", "type": "int"}, {"name": "y", "type": ["null", "double"], "default": None}],
}


def decode(wrote, reads, body, *others):
    """Return the rows of values, the first of the older version, and the places of those that do not become rows."""
    versions = [RegisteredSchema(n, json.dumps(schema), "AVRO") for n, schema in ((1, wrote), (2, reads))]
    known = decoding.resolve_schemas(Versions(versions), Topic.model_validate({"name": "t"}))
    schema = table_schema({}, known.struct, None)
    codec = with_codecs(known.decoding()).value
    layout = plan.layout(codec.writers, codec.reader, schema, {})
    files, left = lakehouse_native.decide_values(json.dumps(layout), [struct.pack(">bI", 0, 1) + body, *others])
    tables = [pq.read_table(io.BytesIO(file)) for _, file in files]
    return [row for table in tables for row in table.to_pylist(maps_as_pydicts="strict")], left


def written(schema, record):
    body = io.BytesIO()
    fastavro.schemaless_writer(body, fastavro.parse_schema(schema), record)
    return body.getvalue()


@pytest.mark.parametrize(
    "type_, default, expected",
    [
        ("boolean", True, True),
        ("int", -(2**31), -(2**31)),
        ("long", 2**63 - 1, 2**63 - 1),
        ("long", -(2**63), -(2**63)),
        ("float", 0.1, 0.10000000149011612),
        ("double", 3, 3.0),
        ("string", "ä€", "ä€"),
        ("bytes", "\x00\xff", b"\x00\xff"),
        ({"type": "fixed", "name": "f", "size": 2}, "\x80a", b"\x80a"),
        (COLOURS, "blue", "blue"),
        ({"type": "array", "items": "long"}, [1, -300, 7], [1, -300, 7]),
        ({"type": "array", "items": "long"}, [], []),
        ({"type": "map", "values": COLOURS}, {"a": "red", "b": "blue"}, {"a": "red", "b": "blue"}),
        (["string", "null"], "text", "text"),
        (["long", "null"], 5, 5),
        (["null", "string"], None, None),
        (POINT, {"x": 7}, {"x": 7, "y": None}),
        (POINT, {"x": 7, "y": None}, {"x": 7, "y": None}),
        ({"type": "array", "items": POINT}, [{"x": 1}], [{"x": 1, "y": None}]),
        ({"type": "bytes", "logicalType": "decimal", "precision": 5, "scale": 2}, "\x00\xff", Decimal("2.55")),
        ({"type": "int", "logicalType": "date"}, -1, date(1969, 12, 31)),
    ],
)
def test_row_without_the_field_has_its_default(type_, default, expected):
    reads = OLD | {"fields": [*OLD["fields"], {"name": "added", "type": type_, "default": default}]}

    assert decode(OLD, reads, written(OLD, {"id": 7})) == ([{"id": 7, "added": expected}], [])


def test_default_within_a_nested_record_is_read():
    def nested(*fields):
        inner = {"type": "record", "name": "n", "fields": [{"name": "x", "type": "int"}, *fields]}
        return OLD | {"fields": [{"name": "items", "type": {"type": "array", "items": inner}}]}

    body = written(nested(), {"items": [{"x": 1}, {"x": 2}]})

    rows, left = decode(nested(), nested({"name": "y", "type": "string", "default": "d"}), body)

    assert rows == [{"items": [{"x": 1, "y": "d"}, {"x": 2, "y": "d"}]}]
    assert left == []


def test_record_with_a_default_that_spark_does_not_read_is_left():
    type_ = [{"type": "array", "items": "int"}, "string"]
    reads = OLD | {"fields": [*OLD["fields"], {"name": "added", "type": type_, "default": []}]}
    newer = struct.pack(">bI", 0, 2) + written(reads, {"id": 7, "added": [5]})

    assert decode(OLD, reads, written(OLD, {"id": 7}), newer) == (
        [{"id": 7, "added": {"member0": [5], "member1": None}}],
        [0],
    )


def test_record_with_a_default_beyond_the_column_is_left():
    type_ = {"type": "bytes", "logicalType": "decimal", "precision": 2, "scale": 0}
    reads = OLD | {"fields": [*OLD["fields"], {"name": "added", "type": type_, "default": "\x7f\xff"}]}

    assert decode(OLD, reads, written(OLD, {"id": 7})) == ([], [0])
