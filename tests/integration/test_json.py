"""JSON messages as rows, compared with the values that Python reads from the same bytes."""

import json
import struct
from datetime import date, datetime

import pytest
from confluent_kafka.schema_registry import Schema, SchemaReference

from lakehouse.core.errors import SchemaError
from tests.support.topics import Stream, registry

ADDRESS = {"type": "object", "properties": {"street": {"type": "string"}, "no": {"type": "integer"}}}
EVERYTHING = {
    "type": "object",
    "properties": {
        "text": {"type": "string"},
        "number": {"type": "integer"},
        "real": {"type": "number"},
        "flag": {"type": "boolean"},
        "day": {"type": "string", "format": "date"},
        "at": {"type": "string", "format": "date-time"},
        "maybe": {"type": ["null", "integer"]},
        "one": {"oneOf": [{"type": "null"}, {"type": "string"}]},
        "either": {"oneOf": [{"type": "integer"}, {"type": "string"}]},
        "any": {},
        "inner": {"$ref": "#/$defs/inner"},
        "list": {"type": "array", "items": {"$ref": "#/$defs/inner"}},
        "days": {"type": "array", "items": {"type": "string", "format": "date"}},
        "map": {"type": "object", "additionalProperties": {"type": "integer"}},
        "both": {"allOf": [{"$ref": "#/$defs/inner"}, {"properties": {"z": {"type": "boolean"}}}]},
        "color": {"enum": ["red", "green"]},
        "address": {"$ref": "address.json"},
    },
    "required": ["text"],
    "$defs": {"inner": {"type": "object", "properties": {"x": {"type": "integer"}, "y": {"type": "string"}}}},
}


def framed(schema_id, text):
    return struct.pack(">bI", 0, schema_id) + (text if isinstance(text, bytes) else text.encode())


def everything(n):
    """Return an object of extreme values; every third has only the required member."""
    if n % 3 == 2:
        return {"text": ""}
    return {
        "text": f'ä"\\{n}\u2028',
        "number": [2**63 - 1, -(2**63)][n % 2],
        "real": [1e308, -0.1][n % 2],
        "flag": n % 2 == 0,
        "day": ["0001-01-01", "9999-12-31"][n % 2],
        "at": ["2026-01-31T23:59:59.123456+02:00", "1969-12-31T23:59:59.5Z"][n % 2],
        "maybe": None if n % 2 else 0,
        "one": None if n % 2 else "",
        "either": n if n % 2 else "s",
        "any": {"a": [1, None, True]},
        "inner": {"x": n},
        "list": [{"x": 1, "y": "b"}, {}, {"y": ""}],
        "days": ["2026-02-28"],
        "map": {"k": n, "": 0},
        "both": {"x": 1, "y": "q", "z": True},
        "color": "red",
        "address": {"street": "S", "no": n},
        "unknown": "is not a column",
    }


def as_row(record):
    """Return a record as a row, by the rules of docs/types.md."""
    row = {name: record.get(name) for name in EVERYTHING["properties"]}
    if record.get("day"):
        row["day"] = date.fromisoformat(record["day"])
        row["days"] = [date.fromisoformat(day) for day in record["days"]]
        row["at"] = datetime.fromisoformat(record["at"])
        row["either"] = json.dumps(record["either"])
        row["any"] = json.dumps(record["any"], separators=(",", ":"))
        row["map"] = sorted(record["map"].items())
        row["list"] = [{"x": item.get("x"), "y": item.get("y")} for item in record["list"]]
        row["inner"] = {"x": record["inner"]["x"], "y": None}
    return row


def json_stream(resources, schema, references=(), **settings):
    stream = Stream(resources, partitions=1, settings={"key": [], "value_format": "json_schema", **settings})
    registered = Schema(json.dumps(schema), "JSON", list(references))
    return stream, registry().register_schema(f"{stream.name}-value", registered)


def test_ingest_json_value_of_each_type_is_kept(resources):
    subject = f"address-{id(resources)}"
    registry().register_schema(subject, Schema(json.dumps(ADDRESS), "JSON"))
    stream, schema_id = json_stream(resources, EVERYTHING, [SchemaReference("address.json", subject, 1)])
    sent = [everything(n) for n in range(12)]
    stream.produce([{"value": framed(schema_id, json.dumps(record))} for record in sent])

    stream.ingest()

    assert stream.dead_letters() == []
    # pyiceberg reads a null list of structs as an empty list, so that only Spark distinguishes them.
    spark = resources.spark.session(resources.catalog.spark_settings())
    nulls = spark.sql(f"SELECT count(*) FROM lake.{stream.namespace}.`{stream.topic.table}` WHERE list IS NULL")
    assert nulls.first()[0] == sum("list" not in record for record in sent)
    rows = [{k: v for k, v in row.items() if not k.startswith("kafka_")} for row in stream.rows()]
    comparable = [row | {"map": row["map"] and sorted(row["map"]), "list": row["list"] or None} for row in rows]
    assert comparable == [as_row(record) for record in sent]


BAD = {
    "number as text": '{"text": "a", "number": "1"}',
    "fraction for an integer": '{"text": "a", "number": 1.5}',
    "integer beyond 64 bits": '{"text": "a", "number": 9223372036854775808}',
    "text for a number": '{"text": "a", "real": "NaN"}',
    "number beyond a double": '{"text": "a", "real": 1e400}',
    "not a number": '{"text": "a", "real": NaN}',
    "number for a flag": '{"text": "a", "flag": 1}',
    "no such day": '{"text": "a", "day": "2026-02-30"}',
    "a loose day": '{"text": "a", "day": "2026-2-3"}',
    "no such time": '{"text": "a", "at": "2026-01-01T25:00:00Z"}',
    "a time without a zone": '{"text": "a", "at": "2026-01-01T00:00:00"}',
    "nanoseconds": '{"text": "a", "at": "2026-01-01T00:00:00.000000001Z"}',
    "required is missing": '{"number": 1}',
    "required is null": '{"text": null}',
    "object for a list": '{"text": "a", "list": {}}',
    "wrong inside a list": '{"text": "a", "list": [{"x": "1"}]}',
    "bad day inside a list": '{"text": "a", "days": ["2026-02-28", "x"]}',
    "wrong inside a map": '{"text": "a", "map": {"k": true}}',
    "root is a list": '[{"text": "a"}]',
    "root is text": '"text"',
    "root is null": "null",
    "nothing": " ",
    "text behind": '{"text": "a"} x',
    "two values": '{"text": "a"}{"text": "b"}',
    "another member behind": '{"text": "a"},"x":1',
    "another value behind": '{"text": "a"},{"text": "b"}',
    "the end of the list": '{"text": "a"}]',
    "the end and more": '{"text": "a"}],"end":1}garbage',
    "cut": '{"text": "a"',
    "single quotes": "{'text': 'a'}",
    "not utf-8": b'{"text": "\xff"}',
    "half of a surrogate pair": r'{"text": "a\ud800"}',
    "the other half": r'{"text": "a\\\udfffb"}',
    "half of a pair in a name": r'{"text": "a", "any": {"\ud800": 1}}',
    "a half beside a pair": r'{"text": "\ud83d\ud83d\ude00"}',
    "number beyond a double in any value": '{"text": "a", "any": {"a": [-1e400]}}',
    "member twice in any value": '{"text": "a", "any": {"a": 1, "a": 2}}',
    "number beyond a double beside its name": '{"text": "a", "any": {"Infinity": "-Infinity", "b": -1e400}}',
    "number beyond a double in a value of an object": '{"text": "a", "odd": [{"any": 1e400}]}',
    "no such year": '{"text": "a", "day": "0000-01-01"}',
}
ODD_LIST = {"type": "array", "items": {"properties": {"at": {"type": "string", "format": "date-time"}, "any": {}}}}
ODD = {
    '{"text": "a", "any": 1}': {"any": "1"},
    '{"text": "a", "any": "1"}': {"any": '"1"'},
    '{"text": "a", "any": [1, "[1]", null]}': {"any": '[1,"[1]",null]'},
    '{"text": "a", "any": "[1]"}': {"any": '"[1]"'},
    '{"text": "a", "any": true}': {"any": "true"},
    '{"text": "a", "any": null}': {"any": None},
    '{"text": "a", "any": {"b": 0.1234567890123456789, "a": "1e400"}}': {
        "any": '{"a":"1e400","b":0.1234567890123456789}'
    },
    '{"text": "a", "any": ["Infinity", "1e400"]}': {"any": '["Infinity","1e400"]'},
    '{"text": "a", "any": {"-Infinity": ["Infinity", ", 1e400"]}}': {"any": '{"-Infinity":["Infinity",", 1e400"]}'},
    '{"text": "a", "any": {"Infinity": 1e+100}}': {"any": '{"Infinity":1.0E100}'},
    '{"text": "1e400", "any": "x"}': {"text": "1e400", "any": '"x"'},
    r'{"text": "\\ud800", "any": "\ud83d\ude00"}': {"text": r"\ud800", "any": '"😀"'},
    '{"text": "a", "text": "b"}': {"text": "b"},
    '{"text": "a", "map": {"b": 1, "a": 2, "b": 3, "": null}}': {"map": [("", None), ("a", 2), ("b", 3)]},
    '{"text": "a", "at": "2026-01-31t00:00:00.5z"}': {"at": datetime.fromisoformat("2026-01-31T00:00:00.500000+00:00")},
    '{"text": "a", "days": null}': {"days": None},
}


def test_ingest_unusual_json_is_read_as_rfc_8259(resources):
    """Keep the type of each value, and use the last of several members with one name (RFC 8259, 4)."""
    nested = {"type": "object", "additionalProperties": {"type": "object", "additionalProperties": {}}}
    schema = {
        **EVERYTHING,
        "properties": {**EVERYTHING["properties"], "address": {}, "odd": ODD_LIST, "nested": nested},
    }
    stream, schema_id = json_stream(resources, schema)
    deep = '{"text": "a", "odd": [{"at": "2026-01-01t00:00:00z", "any": "1"}, {"any": 1}, null], '
    deep += '"nested": {"k": {"x": 1}, "k": {"y": "1", "y": 1}}}'
    stream.produce([{"value": framed(schema_id, text)} for text in (*ODD, deep)])

    stream.ingest()

    assert stream.dead_letters() == []
    *rows, last = stream.rows()
    selected = [{name: row[name] for name in expected} for row, expected in zip(rows, ODD.values(), strict=True)]
    assert selected == list(ODD.values())
    at = datetime.fromisoformat("2026-01-01T00:00:00+00:00")
    assert last["odd"] == [{"at": at, "any": '"1"'}, {"at": None, "any": "1"}, None]
    assert last["nested"] == [("k", [("y", "1")])]


def test_ingest_json_violating_schema_is_dead_letter(resources):
    stream, schema_id = json_stream(
        resources, {**EVERYTHING, "properties": {**EVERYTHING["properties"], "address": {}, "odd": ODD_LIST}}
    )
    good = framed(schema_id, '{"text": "good"}')
    bad = [framed(schema_id, text) for text in BAD.values()]
    stream.produce([{"value": value} for text in bad for value in (good, text)])

    stream.ingest()

    rejected = {letter["value"] for letter in stream.dead_letters()}
    assert {name for name, value in zip(BAD, bad, strict=True) if value not in rejected} == set()
    assert [row["text"] for row in stream.rows()] == ["good"] * len(bad)


def test_ingest_properties_added_and_removed_keep_values(resources):
    old = {"type": "object", "properties": {"a": {"type": "integer"}, "gone": {"type": "string"}}, "required": ["a"]}
    new = {"type": "object", "properties": {"added": {"type": "number"}, "a": {"type": "integer"}}}
    stream, old_id = json_stream(resources, old)
    registry().set_compatibility(subject_name=f"{stream.name}-value", level="NONE")
    stream.produce([{"value": framed(old_id, '{"a": 1, "gone": "g"}')}])
    stream.ingest()
    new_id = registry().register_schema(f"{stream.name}-value", Schema(json.dumps(new), "JSON"))
    stream.produce([{"value": framed(new_id, '{"added": 0.5}')}, {"value": framed(old_id, '{"a": 3, "gone": "h"}')}])
    stream.ingest()

    rows = [(row["a"], row["gone"], row["added"]) for row in stream.rows()]
    assert rows == [(1, "g", None), (None, None, 0.5), (3, "h", None)]


def test_ingest_recursive_json_schema_is_refused(resources):
    stream, schema_id = json_stream(resources, {"type": "object", "properties": {"next": {"$ref": "#"}}})
    stream.produce([{"value": framed(schema_id, "{}")}])

    with pytest.raises(SchemaError, match="refers to itself"):
        stream.ingest()


def test_ingest_json_without_registry_uses_declared_schema(resources):
    stream = Stream(resources, partitions=1, settings={"key": ["id"], "mode": "upsert", "key_format": "long"})
    schema = {"type": "object", "properties": {"id": {"type": "integer"}, "name": {"type": "string"}}}
    stream.topic = stream.topic.model_copy(update={"value_format": "json", "value_schema": json.dumps(schema)})

    def message(id_, value):
        return {"key": struct.pack(">q", id_), "value": value}

    stream.produce([message(1, b'{"id": 1, "name": "a"}'), message(-2, b'{"id": -2, "name": "b"}'), message(1, None)])
    stream.produce([message(3, b'{"id": "3"}')])
    stream.ingest()
    assert [(row["id"], row["name"]) for row in stream.rows()] == [(-2, "b")]
    assert len(stream.dead_letters()) == 1
