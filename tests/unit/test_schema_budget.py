"""Limits on schemas that are small to register but too large to expand, in every format."""

import json

import pytest

from lakehouse.config.model import Topic
from lakehouse.core.errors import SchemaError
from lakehouse.formats.avro import avro_format
from lakehouse.formats.budget import MAX_CHARACTERS, MAX_DEPTH, MAX_FIELDS, MAX_JSON_NESTING, MAX_NESTING
from lakehouse.formats.columns import table_schema
from lakehouse.formats.json import json_format
from lakehouse.formats.protobuf import protobuf_format
from lakehouse.formats.schema import RegisteredSchema
from tests.support.shapes import avro_shape, json_shape, protobuf_shape

LEVELS = 30
"""Number of levels at which doubling types would need terabytes if they were expanded without a limit."""

FIELDS = rf"more than {MAX_FIELDS:,} fields .+ Split it"
ENTRIES = "enum symbols and keywords"
DEPTH = rf"deeper than {MAX_DEPTH} types. Flatten it"


def avro_record(name, **fields):
    return {"type": "record", "name": name, "fields": [{"name": n, "type": t} for n, t in fields.items()]}


def avro_doubling(levels):
    """Return a schema of records with two fields, both of the next record."""
    schema = avro_record(f"R{levels}", s="string")
    for i in reversed(range(levels)):
        schema = avro_record(f"R{i}", a=schema, b=f"R{i + 1}")
    return json.dumps(schema)


def json_properties(properties, definitions=None):
    return json.dumps({"type": "object", "properties": properties, "definitions": definitions or {}})


def json_doubling(levels):
    """Return a schema of objects with two properties, both of the next object."""
    definitions = {
        f"d{i}": {"type": "object", "properties": dict.fromkeys("ab", {"$ref": f"#/definitions/d{i + 1}"})}
        for i in range(levels)
    }
    return json_properties({"x": {"$ref": "#/definitions/d0"}}, definitions | {f"d{levels}": {"type": "string"}})


def json_all_of(levels):
    """Return schemas that each combine the next one twice by `allOf`."""
    definitions = {
        f"d{i}": {"allOf": [{"allOf": [{"$ref": f"#/definitions/d{i + 1}"}]}] * 2} for i in range(levels)
    } | {f"d{levels}": {"properties": {"a": {"type": "string"}}}}
    root = {"allOf": [{"$ref": "#/definitions/d0"}]}
    return json.dumps({**root, "definitions": definitions})


def proto(*messages):
    return 'syntax = "proto3";\n' + "\n".join(messages)


def proto_doubling(levels):
    """Return a schema of messages with two fields, both of the next message."""
    doubling = (f"message M{i} {{ M{i + 1} a = 1; M{i + 1} b = 2; }}" for i in range(levels))
    return proto("message Root { M0 x = 1; }", *doubling, f"message M{levels} {{ string s = 1; }}")


def avro_chain(levels):
    """Return records of one field, the next record, registered one by one, so that no text is nested."""
    texts = [json.dumps(avro_record(f"R{levels}", s="string"))]
    texts += [json.dumps(avro_record(f"R{i}", a=f"R{i + 1}")) for i in reversed(range(levels))]
    *references, root = texts
    return RegisteredSchema(1, root, "AVRO", tuple((f"R{i}", text) for i, text in enumerate(references)))


def json_chain(levels):
    definitions = {
        f"d{i}": {"type": "object", "properties": {"a": {"$ref": f"#/definitions/d{i + 1}"}}} for i in range(levels)
    }
    return json_properties({"x": {"$ref": "#/definitions/d0"}}, definitions | {f"d{levels}": {"type": "string"}})


def proto_chain(levels):
    chain = (f"message M{i} {{ M{i + 1} a = 1; }}" for i in range(levels))
    return proto(*chain, f"message M{levels} {{ string s = 1; }}")


def test_doubling_types_are_refused_before_expansion():
    for read in (avro_shape, avro_format.reader):
        with pytest.raises(SchemaError, match=FIELDS):
            read([RegisteredSchema(1, avro_doubling(LEVELS))])
    with pytest.raises(SchemaError, match=FIELDS):
        avro_format.parse(RegisteredSchema(1, avro_doubling(LEVELS)))
    for read in (json_shape, json_format.reader):
        with pytest.raises(SchemaError, match=FIELDS):
            read([RegisteredSchema(1, json_doubling(LEVELS), "JSON")])
    for read in (protobuf_shape, protobuf_format.reader):
        with pytest.raises(SchemaError, match=FIELDS):
            read([RegisteredSchema(1, proto_doubling(LEVELS), "PROTOBUF")])


def test_doubling_all_of_is_refused_before_expansion():
    with pytest.raises(SchemaError, match=ENTRIES):
        json_format.reader([RegisteredSchema(1, json_all_of(18), "JSON")])


def test_long_enumeration_referenced_often_is_refused():
    colours = {"enum": [f"c{i}" for i in range(10_000)]}
    properties = {f"p{i}": {"$ref": "#/definitions/colour"} for i in range(1_000)}
    with pytest.raises(SchemaError, match=ENTRIES):
        json_format.reader([RegisteredSchema(1, json_properties(properties, {"colour": colours}), "JSON")])
    values = " ".join(f"C{i} = {i};" for i in range(10_000))
    fields = " ".join(f"Colour f{i} = {i};" for i in range(1, 1_001))
    with pytest.raises(SchemaError, match=ENTRIES):
        protobuf_format.reader([RegisteredSchema(1, proto(f"message M {{ {fields} }}", f"enum Colour {{ {values} }}"))])
    symbols = avro_record("R", a={"type": "enum", "name": "E", "symbols": [f"C{i}" for i in range(60_000)]}, b="E")
    with pytest.raises(SchemaError, match=ENTRIES):
        avro_format.reader([RegisteredSchema(1, json.dumps(symbols))])


@pytest.mark.parametrize(
    ("read", "schema"),
    [
        (avro_shape, avro_chain(900)),
        (json_shape, RegisteredSchema(1, json_chain(900), "JSON")),
        (protobuf_shape, RegisteredSchema(1, proto_chain(900), "PROTOBUF")),
    ],
)
def test_long_chain_of_types_is_refused(read, schema):
    with pytest.raises(SchemaError, match=DEPTH):
        read([schema])


@pytest.mark.parametrize(
    ("read", "schema"),
    [
        (avro_shape, avro_chain(40)),
        (json_shape, RegisteredSchema(1, json_chain(MAX_JSON_NESTING), "JSON")),
        (protobuf_shape, RegisteredSchema(1, proto_chain(40), "PROTOBUF")),
    ],
)
def test_common_depth_of_types_is_accepted(read, schema):
    assert len(read([schema]).struct.fields) == 1


@pytest.mark.parametrize(("read", "type_"), [(avro_shape, "AVRO"), (json_shape, "JSON")])
@pytest.mark.parametrize("text", ["[" * 100_000, '{"a":' * 100_000, '{"doc": "' + r"\"" * 400_000])
def test_deeply_nested_text_is_refused(read, type_, text):
    with pytest.raises(SchemaError):
        read([RegisteredSchema(1, text, type_)])


@pytest.mark.parametrize("read", [avro_shape, json_shape, protobuf_shape])
def test_size_of_schema_includes_references(read):
    half = " " * (MAX_CHARACTERS // 2)
    with pytest.raises(SchemaError, match=f"more than {MAX_CHARACTERS:,}"):
        read([RegisteredSchema(1, half + "{}", "AVRO", (("other.proto", half + "{}"),))])


def test_columns_deeper_than_spark_reads_are_refused():
    with pytest.raises(SchemaError, match="levels of columns within columns"):
        json_shape([RegisteredSchema(1, json_chain(MAX_JSON_NESTING + 1), "JSON")])
    assert table_schema(Topic().metadata.names, avro_shape([avro_chain(MAX_NESTING)]).struct, None)
    with pytest.raises(SchemaError, match="levels of columns within columns"):
        table_schema(Topic().metadata.names, avro_shape([avro_chain(MAX_NESTING + 1)]).struct, None)


def test_wide_schema_is_accepted():
    names = [f"c{i}" for i in range(1_500)]
    shapes = [
        avro_shape([RegisteredSchema(1, json.dumps(avro_record("R", **dict.fromkeys(names, ["null", "string"]))))]),
        json_shape([RegisteredSchema(1, json_properties(dict.fromkeys(names, {"type": "string"})), "JSON")]),
        protobuf_shape(
            [
                RegisteredSchema(
                    1,
                    proto("message M {", *(f"string {name} = {i};" for i, name in enumerate(names, 1)), "}"),
                    "PROTOBUF",
                )
            ]
        ),
    ]
    assert [[field.name for field in shape.struct.fields] for shape in shapes] == [names] * 3


def test_all_versions_share_one_budget():
    first, second = ([f"{letter}{i}" for i in range(1_500)] for letter in "ab")
    versions = {
        avro_shape: [json.dumps(avro_record("R", **dict.fromkeys(names, "string"))) for names in (first, second)],
        json_shape: [json_properties(dict.fromkeys(names, {"type": "string"})) for names in (first, second)],
        protobuf_shape: [
            proto("message M {", *(f"string {name} = {i};" for i, name in enumerate(names, start)), "}")
            for names, start in ((first, 1), (second, 2_000))
        ],
    }
    for read, texts in versions.items():
        with pytest.raises(SchemaError, match=FIELDS):
            read([RegisteredSchema(n, text) for n, text in enumerate(texts)])


def test_key_and_value_share_one_budget():
    value, key = (
        avro_shape([RegisteredSchema(1, json.dumps(avro_record("R", **{f"{x}{i}": "string" for i in range(1_500)})))])
        for x in "vk"
    )
    assert len(table_schema(Topic().metadata.names, value.struct, None).fields) == 1_504
    with pytest.raises(SchemaError, match=FIELDS):
        table_schema(Topic().metadata.names, value.struct, key.struct)


@pytest.mark.parametrize(
    ("read", "text"),
    [
        (avro_shape, json.dumps({**avro_record("R"), "fields": [{"name": "a", "type": "int", "doc": 5}]})),
        (avro_shape, json.dumps(avro_record("R", a={"type": "fixed", "name": "F", "size": "9"}))),
        (json_shape, json.dumps({"type": "object", "properties": ["a"]})),
        (json_shape, json_properties({"a": {"$ref": 5}})),
        (json_shape, json_properties({"a": {"type": "string", "format": []}})),
        (json_shape, json.dumps({"allOf": [{"properties": [1]}]})),
    ],
)
def test_attribute_of_wrong_type_is_refused(read, text):
    with pytest.raises(SchemaError, match="not valid"):
        read([RegisteredSchema(1, text)])


def test_recursive_redefined_wrapper_is_refused():
    forged = proto("package google.protobuf;", "message StringValue { StringValue value = 1; }")
    text = proto('import "own.proto";', "message M { google.protobuf.StringValue a = 1; }")
    with pytest.raises(SchemaError, match=DEPTH):
        protobuf_format.reader([RegisteredSchema(1, text, "PROTOBUF", (("own.proto", forged),))])
