"""Tables with many columns and deeply nested types, which are large expressions in Spark."""

import itertools
import json
import struct
from datetime import UTC, date, datetime
from decimal import Decimal

import pytest
from confluent_kafka.schema_registry import Schema

from lakehouse.formats import format_of
from lakehouse.formats.schema import RegisteredSchema
from lakehouse.pipeline.engine_values import Decoding
from lakehouse.pipeline.schemas.decoding import side_schema
from spark.decoding.decode import decode
from spark.decoding.decoded import record, table_columns
from spark.engine import codec_of
from tests.support.protobuf_messages import message_class
from tests.support.topics import Stream, framed, registry

# Twenty more columns than a chain of conditions could once contain.
REQUIRED = [f"required{i}" for i in range(60)]
DEEP = 12
"""Levels of nesting. Code that evaluates a list twice at each level takes 4,096 times as long."""


AVRO = {
    "string": "ä",
    "int": -1,
    "long": 2**62,
    "double": 0.5,
    "bytes": b"\x00\xff",
    "boolean": True,
    '{"type": "int", "logicalType": "date"}': date(2026, 1, 31),
    '{"type": "bytes", "logicalType": "decimal", "precision": 10, "scale": 2}': Decimal("-1.25"),
    '{"type": "long", "logicalType": "timestamp-micros"}': datetime(2026, 1, 31, 1, 2, 3, 4, tzinfo=UTC),
    '{"type": "array", "items": "string"}': ["a", ""],
    '["null", "string", "int"]': None,
    '{"type": "array", "items": {"type": "bytes", "logicalType": "decimal", "precision": 3}}': [Decimal(999)],
}
JSON = {
    '{"type": "string"}': "ä",
    '{"type": "integer"}': 2**62,
    '{"type": "number"}': 0.5,
    '{"type": "boolean"}': False,
    '{"type": "string", "format": "date"}': "2026-01-31",
    '{"type": "string", "format": "date-time"}': "2026-01-31T01:02:03.000004Z",
    '{"type": "array", "items": {"type": "string", "format": "date"}}': ["2026-01-31"],
    '{"type": "object", "additionalProperties": {"type": "number"}}': {"a": 1.5},
    "{}": [1, "a"],
}
PROTOBUF = {
    "string": "ä",
    "int32": -1,
    "uint64": 2**64 - 1,
    "double": 0.5,
    "bytes": b"\x00\xff",
    "bool": True,
    "repeated string": ["a", ""],
    "optional string": "",
    "google.protobuf.Timestamp": datetime(2026, 1, 31, 1, 2, 3, 4, tzinfo=UTC),
}
"""Types as schemas spell them, each with a value."""


def values_of(types, count, within=None):
    """Return a record with `count` fields whose types repeat; with `within`, in one field of that name."""
    values = {f"c{i}": value for i, value in zip(range(count), itertools.cycle(types.values()))}
    return {within: values} if within else values


def avro_schema(count, within=None, beside=0):
    """Return a schema of `count` fields in a field, or at the top; `beside` more fields are beside the field."""

    def fields(length):
        cycle = itertools.cycle(AVRO)
        return [{"name": f"c{i}", "type": avro_type(text)} for i, text in zip(range(length), cycle, strict=False)]

    inner = {"type": "record", "name": "R", "fields": fields(count)}
    outer = {"type": "record", "name": "Outer", "fields": [{"name": within, "type": inner}, *fields(beside)]}
    return json.dumps(outer if within else inner)


def avro_type(text):
    return json.loads(text) if text[0] in "[{" else text


def json_schema(count, within=None, beside=0):
    def properties(length):
        return {f"c{i}": json.loads(text) for i, text in zip(range(length), itertools.cycle(JSON), strict=False)}

    inner = {"type": "object", "properties": properties(count)}
    return json.dumps({"type": "object", "properties": {within: inner, **properties(beside)}} if within else inner)


def protobuf_schema(count, within=None, beside=0):
    def fields(length):
        cycle = itertools.cycle(PROTOBUF)
        return "".join(f"{text} c{i} = {i + 2};" for i, text in zip(range(length), cycle, strict=False))

    outer = f"message Outer {{ R {within} = 1; {fields(beside)} }}" if within else ""
    start = 'syntax = "proto3"; import "google/protobuf/timestamp.proto"; '
    return f"{start}{outer} message R {{ {fields(count)} }}"


SCHEMAS = {"avro": avro_schema, "json_schema": json_schema, "protobuf": protobuf_schema}


@pytest.mark.parametrize(
    ("format_", "within", "count", "beside"),
    [
        *((name, "deep", 1_199, 300) for name in SCHEMAS),
        # In JSON, 1,500 columns beside each other take half a minute, and test_ingest_wide_json reads 300.
        *((name, None, 1_500, 0) for name in SCHEMAS if name != "json_schema"),
    ],
)
def test_decode_many_columns_is_planned(resources, format_, within, count, beside):
    # Of 1,500 columns, at least 125 have the same type. The column around the others is one of the 1,500.
    decoded = undecodable(resources, codec(format_, SCHEMAS[format_](count, within, beside)))

    assert len(table_columns(decoded.columns)) == (1 + beside if within else count)


def codec(format_, schema):
    return codec_of(side_schema(format_, [RegisteredSchema(1, schema, format_of(format_).schema_type)], "").side)


def undecodable(resources, codec):
    """Return a message of one invalid byte, decoded, after verifying that it is undecodable."""
    names = {"key": "binary", "value": "binary", "topic": "string", "partition": "int", "offset": "long"}
    names |= {"timestamp": "timestamp", "timestampType": "int"}
    ddl = ", ".join(f"{name} {type_}" for name, type_ in names.items())
    message = (None, b"\x00\x00\x00\x00\x01\xff", "t", 0, 0, datetime.now(UTC), 0)
    records = resources.spark.session({}).createDataFrame([message], ddl)
    decoded = decode(records, Decoding(codec, None, tuple(codec.columns), (), "append"))
    [row] = decoded.select("*", record("reason").alias("why")).collect()
    assert row["why"] == "undecodable"
    return decoded


def test_ingest_wide_avro_rows_keep_values(resources):
    schema = json.loads(avro_schema(300, "deep", beside=300))
    lists = nested("string", lambda items: {"type": "array", "items": items})
    schema["fields"].append({"name": "lists", "type": lists})
    expected = values_of(AVRO, 300, "deep") | values_of(AVRO, 300) | {"lists": nested("ä", lambda x: [x])}
    stream = Stream(resources, partitions=1, settings={"key": []})
    schema_id = stream.schema(json.dumps(schema))
    stream.produce([{"value": framed(schema_id, json.dumps(schema), expected)}])

    stream.ingest()

    [row] = stream.rows()
    assert {name: row[name] for name in expected} == expected


def test_ingest_wide_protobuf_rows_keep_values(resources):
    sent = values_of(PROTOBUF, 300)
    stream = Stream(resources, partitions=1, settings={"key": [], "value_format": "protobuf"})
    schema = protobuf_schema(300)
    schema_id = registry().register_schema(f"{stream.name}-value", Schema(schema, "PROTOBUF"))
    message = message_class(schema, "R")(**sent)
    stream.produce([{"value": struct.pack(">bI", 0, schema_id) + b"\x00" + message.SerializeToString()}])

    stream.ingest()

    [row] = stream.rows()
    assert {name: row[name] for name in sent} == sent


def nested(value, wrap):
    for _ in range(DEEP):
        value = wrap(value)
    return value


def deep(text):
    """Return deeply nested values of JSON that contain a text."""
    return {"lists": nested(text, lambda x: [x]), "structs": nested(text, lambda x: {"x": x})}


@pytest.fixture(scope="module")
def wide_json(resources):
    """A table of optional columns of each type, required columns, and deep ones, after the ingestion of five records.

    The first one is good. The others differ from it in one field.
    """
    day = {"type": "string", "format": "date"}
    schema = json.loads(json_schema(300))
    schema["properties"] |= dict.fromkeys(REQUIRED, day) | {
        "lists": nested(day, lambda items: {"type": "array", "items": items}),
        "structs": nested(day, lambda inner: {"type": "object", "properties": {"x": inner}, "required": ["x"]}),
    }
    schema["required"] = REQUIRED
    good = values_of(JSON, 300) | dict.fromkeys(REQUIRED, "2026-01-31") | deep("2026-01-31")
    changes = (
        {REQUIRED[-1]: "2026-02-31"},
        {REQUIRED[5]: None},
        {"lists": deep("never")["lists"]},
        {"structs": nested({}, lambda x: {"x": x})["x"]},
    )
    stream = Stream(resources, partitions=1, settings={"key": [], "value_format": "json_schema"})
    schema_id = registry().register_schema(f"{stream.name}-value", Schema(json.dumps(schema), "JSON"))
    records = [good, *(good | change for change in changes)]
    stream.produce([{"value": struct.pack(">bI", 0, schema_id) + json.dumps(record).encode()} for record in records])
    stream.ingest()
    return stream


def test_ingest_wide_json_rows_keep_values(wide_json):
    as_columns = {
        '"2026-01-31"': date(2026, 1, 31),
        '"2026-01-31T01:02:03.000004Z"': datetime(2026, 1, 31, 1, 2, 3, 4, tzinfo=UTC),
        '["2026-01-31"]': [date(2026, 1, 31)],
        '{"a": 1.5}': [("a", 1.5)],
        '[1, "a"]': '[1,"a"]',
    }
    [row] = wide_json.rows()
    for name, value in values_of(JSON, 300).items():
        assert row[name] == as_columns.get(json.dumps(value), value), name
    assert {row[name] for name in REQUIRED} == {date(2026, 1, 31)}


def test_ingest_deep_json_rows_keep_values(wide_json):
    [row] = wide_json.rows()
    assert {name: row[name] for name in ("lists", "structs")} == deep(date(2026, 1, 31))


def test_ingest_wide_json_table_checks_each_column(wide_json):
    letters = wide_json.dead_letters()
    assert [letter["kafka_offset"] for letter in letters] == [1, 2, 3, 4]
    assert {letter["error_reason"] for letter in letters} == {"undecodable"}
    fields = (REQUIRED[-1], REQUIRED[5], "lists", "structs")
    for letter, field in zip(letters, fields, strict=True):
        assert field in letter["error_message"]
