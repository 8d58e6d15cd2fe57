"""Tables of many columns and of deep ones, which Spark's expressions have to hold."""

import json
import struct
from datetime import date

from confluent_kafka.schema_registry import Schema
from support import Stream, framed, registry

# Twenty more than a chain of conditions could be long.
WIDE = [f"c{i}" for i in range(60)]
DEEP = 12
"""Levels. What looked at a list cost twice as much at each."""


def json_stream(resources, schema, records):
    stream = Stream(resources, partitions=1, settings={"key": [], "value_format": "json_schema"})
    schema_id = registry().register_schema(f"{stream.name}-value", Schema(json.dumps(schema), "JSON"))
    stream.produce([{"value": struct.pack(">bI", 0, schema_id) + json.dumps(record).encode()} for record in records])
    return stream


def avro_stream(resources, schema, records):
    stream = Stream(resources, partitions=1, settings={"key": []})
    schema_id = stream.schema(json.dumps(schema))
    stream.produce([{"value": framed(schema_id, json.dumps(schema), record)} for record in records])
    return stream


def test_a_json_table_of_many_columns_checks_each(resources):
    schema = {
        "type": "object",
        "properties": dict.fromkeys(WIDE, {"type": "string", "format": "date"}),
        "required": WIDE,
    }
    good = dict.fromkeys(WIDE, "2026-01-31")
    stream = json_stream(resources, schema, [good, good | {WIDE[-1]: "2026-02-31"}, good | {WIDE[5]: None}])

    [published] = stream.ingest()

    assert (published.counts.rows, published.counts.dead_letters) == (1, 2)
    assert [[row[name] for name in WIDE] for row in stream.rows()] == [[date(2026, 1, 31)] * len(WIDE)]


def test_an_avro_table_of_many_columns_checks_each(resources):
    schema = {"type": "record", "name": "R", "fields": [{"name": name, "type": "string"} for name in WIDE]}
    stream = avro_stream(resources, schema, [dict.fromkeys(WIDE, "ä")])

    stream.ingest()

    assert [[row[name] for name in WIDE] for row in stream.rows()] == [["ä"] * len(WIDE)]


def nested(value, wrap):
    for _ in range(DEEP):
        value = wrap(value)
    return value


def test_deep_lists_and_structs_are_read(resources):
    day = {"type": "string", "format": "date"}
    lists = nested(day, lambda items: {"type": "array", "items": items})
    structs = nested(day, lambda inner: {"type": "object", "properties": {"x": inner}, "required": ["x"]})
    schema = {"type": "object", "properties": {"lists": lists, "structs": structs}}

    def record(text):
        return {"lists": nested(text, lambda x: [x]), "structs": nested(text, lambda x: {"x": x})}

    missing = nested({}, lambda x: {"x": x})["x"]
    stream = json_stream(resources, schema, [record("2026-01-31"), record("never"), {"structs": missing}])
    [published] = stream.ingest()
    assert (published.counts.rows, published.counts.dead_letters) == (1, 2)
    wanted = date(2026, 1, 31)
    [row] = stream.rows()
    assert row["lists"] == nested(wanted, lambda x: [x])
    assert row["structs"] == nested(wanted, lambda x: {"x": x})

    avro = {"type": "record", "name": "R", "fields": []}
    avro["fields"].append({"name": "lists", "type": nested("string", lambda items: {"type": "array", "items": items})})
    stream = avro_stream(resources, avro, [{"lists": nested("ä", lambda x: [x])}])
    stream.ingest()
    assert [row["lists"] for row in stream.rows()] == [nested("ä", lambda x: [x])]
