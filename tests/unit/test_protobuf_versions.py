"""Versions of a Protobuf schema: old values keep their column, or the schema is refused."""

import struct

import pyarrow as pa
import pytest

from lakehouse.core.errors import SchemaError
from lakehouse.formats.schema import RegisteredSchema
from lakehouse.pipeline.schemas.decoding import side_schema
from spark.codecs.protobuf_codec import decoded
from spark.engine import codec_of
from tests.support.protobuf_messages import message_class


def versions(*messages):
    texts = (f'syntax = "proto3"; {message}' for message in messages)
    return [RegisteredSchema(id_, text, "PROTOBUF") for id_, text in enumerate(texts, 1)]


def rows(schemas, *values):
    """Return messages of each version in turn as rows, with None for an undecodable one."""
    codec = codec_of(side_schema("protobuf", schemas, "").side)
    bodies = [
        message_class(s.text, "M")(**value).SerializeToString() for s, value in zip(schemas, values, strict=False)
    ]
    ids = pa.array([schema.id for schema in schemas[: len(values)]], pa.int32())
    decoded_rows = decoded(ids, pa.array(bodies, pa.binary()), codec.sources, codec.fields).to_pylist()
    return [decoded_row and decoded_row["row"] for decoded_row in decoded_rows]


def test_field_with_new_number_keeps_old_values():
    schemas = versions("message M { string a = 2; }", "message M { string a = 3; }", "message M { string a = 4; }")
    assert rows(schemas, {"a": "x"}, {"a": "y"}, {"a": "z"}) == [{"a": "x"}, {"a": "y"}, {"a": "z"}]


def test_nested_field_with_new_number_keeps_old_values():
    schemas = versions(
        "message M { message N { int32 a = 2; } repeated N n = 1; }",
        "message M { message N { int64 a = 3; } repeated N n = 5; }",
    )
    assert rows(schemas, {"n": [{"a": 7}]}) == [{"n": [{"a": 7}]}]


@pytest.mark.parametrize(
    ("older", "newer", "refusal"),
    [
        ("string a = 2;", "int32 a = 3;", "'{0}a' is of type int with number 3.*UNSUPPORTED_TYPE_CHANGE"),
        ("int64 a = 2;", "int32 a = 3;", "UNSUPPORTED_TYPE_CHANGE"),
        ("string a = 2; string b = 3;", "string b = 2; string a = 3;", "'{0}b' has number 2.*NAME_REUSED"),
        ("string a = 2; string b = 3;", "string a = 3;", "NAME_REUSED"),
        ("string a = 2; string b = 3;", "string b = 2; string c = 3;", "NAME_REUSED"),
        ("string name = 2;", "string Name = 3;", "'{0}name' of an older version is '{0}Name'.*CASE_COLLISION"),
    ],
)
@pytest.mark.parametrize("nested", [False, True])
def test_change_losing_or_moving_values_is_refused(older, newer, refusal, nested):
    template = "message M {{ message N {{ {} }} N n = 1; }}" if nested else "message M {{ int32 id = 1; {} }}"
    with pytest.raises(SchemaError, match=refusal.format("n[.]" if nested else "")):
        side_schema("protobuf", versions(template.format(older), template.format(newer)), "")


@pytest.mark.parametrize(
    ("older", "newer", "value"),
    [
        ("optional string a = 2;", "int32 a = 2;", "x"),
        ("N a = 2;", "int32 a = 2;", {"b": "x"}),
        ("N a = 2;", "P a = 2;", {"b": "x"}),
        ("repeated N a = 2;", "repeated P a = 2;", [{"b": "x"}]),
        ("N a = 2;", "repeated N a = 2;", {"b": "x"}),
        ("repeated N a = 2;", "N a = 2;", [{"b": "x"}]),
        ("repeated string a = 2;", "repeated N a = 2;", ["x"]),
        ("map<int32, N> a = 2;", "map<string, N> a = 2;", {1: {"b": "x"}}),
        ("oneof of { string a = 2; }", "int32 a = 2;", "x"),
    ],
)
@pytest.mark.parametrize("path", ["", "n"])
def test_field_with_new_type_decodes_only_where_unset(older, newer, value, path):
    def text(field):
        rest = f"message O {{ {field} }} O n = 3;" if path else field
        return f"message M {{ int32 id = 1; message N {{ string b = 1; }} message P {{ N b = 1; }} {rest} }}"

    def message(fields):
        return {"id": 1} | ({path: fields} if path else fields)

    def explanation(fields):
        body = message_class(schemas[0].text, "M")(**message(fields)).SerializeToString()
        return codec_of(side_schema("protobuf", schemas, "").side).explain(struct.pack(">bI", 0, 1) + b"\0" + body)

    schemas = versions(text(older), text(newer))
    assert rows(schemas, message({})) in ([message({"a": None})], [message({"a": []})])
    assert explanation({}) is None
    assert rows(schemas, message({"a": value})) == [None]
    assert "do not fit the column's" in explanation({"a": value})


@pytest.mark.parametrize(
    ("older", "newer", "value", "text"),
    [
        ("Struct", "Value", {"a": 1.5}, '{"a": 1.5}'),
        ("Value", "Struct", {"string_value": "x"}, '"x"'),
        ("ListValue", "Value", [1.0, "x"], '[1.0, "x"]'),
        ("Struct", "ListValue", {"a": None}, '{"a": null}'),
    ],
)
def test_json_value_is_decoded_by_writers_type(older, newer, value, text):
    template = 'import "google/protobuf/struct.proto"; message M {{ google.protobuf.{} a = 1; }}'
    schemas = versions(template.format(older), template.format(newer))
    assert rows(schemas, {"a": value}) == [{"a": text}]


def test_field_with_new_name_is_a_rename():
    schemas = versions("message M { string a = 2; }", "message M { string b = 2; string a = 3; }")
    assert rows(schemas, {"a": "x"}, {"a": "y", "b": "z"}) == [{"b": "x", "a": None}, {"b": "z", "a": "y"}]


def test_other_first_message_needs_configured_record():
    order, refund = "message Order { int32 id = 1; int32 a = 2; }", "message Refund { int32 id = 1; int32 b = 2; }"
    schemas = versions(f"{order} {refund}", f"{refund} {order}")
    with pytest.raises(SchemaError, match="'Refund', but was 'Order' .* 'record'"):
        side_schema("protobuf", schemas, "")
    assert codec_of(side_schema("protobuf", schemas, "Order").side).columns == ["id", "a"]
