"""Schemas that are small to register and too large to expand are refused, in every format and for the same limits."""

import json

import pytest

from lakehouse.config.topic import Topic
from lakehouse.core.errors import SchemaError
from lakehouse.formats import avro, json_schema, protobuf
from lakehouse.formats.budget import MAX_CHARACTERS, MAX_DEPTH, MAX_FIELDS, MAX_JSON_NESTING, MAX_NESTING
from lakehouse.formats.columns import table_schema
from lakehouse.formats.schema import RegisteredSchema

LEVELS = 30
"""Expanded without a limit, doubling types of so many levels need terabytes: no such test could end."""

FIELDS = rf"more than {MAX_FIELDS:,} fields .+ Split it"
ENTRIES = "enum symbols and keywords"
DEPTH = rf"deeper than {MAX_DEPTH} types. Flatten it"


def avro_record(name, **fields):
    return {"type": "record", "name": name, "fields": [{"name": n, "type": t} for n, t in fields.items()]}


def avro_doubling(levels):
    """Records of two fields, each of the next record."""
    schema = avro_record(f"R{levels}", s="string")
    for i in reversed(range(levels)):
        schema = avro_record(f"R{i}", a=schema, b=f"R{i + 1}")
    return json.dumps(schema)


def json_properties(properties, definitions=None):
    return json.dumps({"type": "object", "properties": properties, "definitions": definitions or {}})


def json_doubling(levels):
    """Objects of two properties, each of the next object."""
    definitions = {
        f"d{i}": {"type": "object", "properties": dict.fromkeys("ab", {"$ref": f"#/definitions/d{i + 1}"})}
        for i in range(levels)
    }
    return json_properties({"x": {"$ref": "#/definitions/d0"}}, definitions | {f"d{levels}": {"type": "string"}})


def json_all_of(levels):
    """Schemas that are, twice, all of the next."""
    part = {"allOf": [{"$ref": "#/definitions/d{}"}]}
    definitions = {
        f"d{i}": {"allOf": [{"allOf": [{"$ref": f"#/definitions/d{i + 1}"}]}] * 2} for i in range(levels)
    } | {f"d{levels}": {"properties": {"a": {"type": "string"}}}}
    part = {"allOf": [{"$ref": "#/definitions/d0"}]}
    return json.dumps({**part, "definitions": definitions})


def proto(*messages):
    return 'syntax = "proto3";\n' + "\n".join(messages)


def proto_doubling(levels):
    """Messages of two fields, each of the next message."""
    doubling = (f"message M{i} {{ M{i + 1} a = 1; M{i + 1} b = 2; }}" for i in range(levels))
    return proto("message Root { M0 x = 1; }", *doubling, f"message M{levels} {{ string s = 1; }}")


def avro_chain(levels):
    """Records of one field, the next record, registered one by one, so that no text of them is nested."""
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


def test_types_that_double_at_every_level_are_refused_before_they_are_expanded():
    for read in (avro.shape, avro.reader):
        with pytest.raises(SchemaError, match=FIELDS):
            read([RegisteredSchema(1, avro_doubling(LEVELS))])
    with pytest.raises(SchemaError, match=FIELDS):
        avro.parse(RegisteredSchema(1, avro_doubling(LEVELS)))
    for read in (json_schema.shape, json_schema.reader):
        with pytest.raises(SchemaError, match=FIELDS):
            read([RegisteredSchema(1, json_doubling(LEVELS), "JSON")])
    for read in (protobuf.shape, protobuf.reader):
        with pytest.raises(SchemaError, match=FIELDS):
            read([RegisteredSchema(1, proto_doubling(LEVELS), "PROTOBUF")])


def test_all_of_that_doubles_at_every_level_is_refused_before_it_is_expanded():
    with pytest.raises(SchemaError, match=ENTRIES):
        json_schema.reader([RegisteredSchema(1, json_all_of(18), "JSON")])


def test_a_long_list_that_every_property_refers_to_is_not_read_each_time():
    colours = {"enum": [f"c{i}" for i in range(10_000)]}
    properties = {f"p{i}": {"$ref": "#/definitions/colour"} for i in range(1_000)}
    with pytest.raises(SchemaError, match=ENTRIES):
        json_schema.reader([RegisteredSchema(1, json_properties(properties, {"colour": colours}), "JSON")])
    values = " ".join(f"C{i} = {i};" for i in range(10_000))
    fields = " ".join(f"Colour f{i} = {i};" for i in range(1, 1_001))
    with pytest.raises(SchemaError, match=ENTRIES):
        protobuf.reader([RegisteredSchema(1, proto(f"message M {{ {fields} }}", f"enum Colour {{ {values} }}"))])
    symbols = avro_record("R", a={"type": "enum", "name": "E", "symbols": [f"C{i}" for i in range(60_000)]}, b="E")
    with pytest.raises(SchemaError, match=ENTRIES):
        avro.reader([RegisteredSchema(1, json.dumps(symbols))])


@pytest.mark.parametrize(
    ("read", "schema"),
    [
        (avro.shape, avro_chain(900)),
        (json_schema.shape, RegisteredSchema(1, json_chain(900), "JSON")),
        (protobuf.shape, RegisteredSchema(1, proto_chain(900), "PROTOBUF")),
    ],
)
def test_a_long_chain_of_types_is_refused(read, schema):
    with pytest.raises(SchemaError, match=DEPTH):
        read([schema])


@pytest.mark.parametrize(
    ("read", "schema"),
    [
        (avro.shape, avro_chain(40)),
        (json_schema.shape, RegisteredSchema(1, json_chain(MAX_JSON_NESTING), "JSON")),
        (protobuf.shape, RegisteredSchema(1, proto_chain(40), "PROTOBUF")),
    ],
)
def test_types_nest_as_deep_as_people_nest_them(read, schema):
    assert len(read([schema]).struct.fields) == 1


@pytest.mark.parametrize(("read", "type_"), [(avro.shape, "AVRO"), (json_schema.shape, "JSON")])
@pytest.mark.parametrize("text", ["[" * 100_000, '{"a":' * 100_000, '{"doc": "' + r"\"" * 400_000])
def test_text_that_a_parser_would_recurse_into_is_refused(read, type_, text):
    with pytest.raises(SchemaError):
        read([RegisteredSchema(1, text, type_)])


@pytest.mark.parametrize("read", [avro.shape, json_schema.shape, protobuf.shape])
def test_the_size_of_a_schema_counts_its_references(read):
    half = " " * (MAX_CHARACTERS // 2)
    with pytest.raises(SchemaError, match=f"more than {MAX_CHARACTERS:,}"):
        read([RegisteredSchema(1, half + "{}", "AVRO", (("other.proto", half + "{}"),))])


def test_columns_nest_as_deep_as_spark_reads_them():
    with pytest.raises(SchemaError, match="levels of columns within columns"):
        json_schema.shape([RegisteredSchema(1, json_chain(MAX_JSON_NESTING + 1), "JSON")])
    assert table_schema(Topic().metadata.names, avro.shape([avro_chain(MAX_NESTING)]).struct, None)
    with pytest.raises(SchemaError, match="levels of columns within columns"):
        table_schema(Topic().metadata.names, avro.shape([avro_chain(MAX_NESTING + 1)]).struct, None)


def test_a_wide_schema_is_a_table():
    names = [f"c{i}" for i in range(1_500)]
    found = [
        avro.shape([RegisteredSchema(1, json.dumps(avro_record("R", **dict.fromkeys(names, ["null", "string"]))))]),
        json_schema.shape([RegisteredSchema(1, json_properties(dict.fromkeys(names, {"type": "string"})), "JSON")]),
        protobuf.shape(
            [
                RegisteredSchema(
                    1,
                    proto("message M {", *(f"string {name} = {i};" for i, name in enumerate(names, 1)), "}"),
                    "PROTOBUF",
                )
            ]
        ),
    ]
    assert [[field.name for field in shape.struct.fields] for shape in found] == [names] * 3


def test_all_versions_together_have_one_budget():
    first, second = ([f"{letter}{i}" for i in range(1_500)] for letter in "ab")
    versions = {
        avro.shape: [json.dumps(avro_record("R", **dict.fromkeys(names, "string"))) for names in (first, second)],
        json_schema.shape: [json_properties(dict.fromkeys(names, {"type": "string"})) for names in (first, second)],
        protobuf.shape: [
            proto("message M {", *(f"string {name} = {i};" for i, name in enumerate(names, start)), "}")
            for names, start in ((first, 1), (second, 2_000))
        ],
    }
    for read, texts in versions.items():
        with pytest.raises(SchemaError, match=FIELDS):
            read([RegisteredSchema(n, text) for n, text in enumerate(texts)])


def test_key_and_value_together_have_one_budget():
    value, key = (
        avro.shape([RegisteredSchema(1, json.dumps(avro_record("R", **{f"{x}{i}": "string" for i in range(1_500)})))])
        for x in "vk"
    )
    assert len(table_schema(Topic().metadata.names, value.struct, None).fields) == 1_504
    with pytest.raises(SchemaError, match=FIELDS):
        table_schema(Topic().metadata.names, value.struct, key.struct)


@pytest.mark.parametrize(
    ("read", "text"),
    [
        (avro.shape, json.dumps({**avro_record("R"), "fields": [{"name": "a", "type": "int", "doc": 5}]})),
        (avro.shape, json.dumps(avro_record("R", a={"type": "fixed", "name": "F", "size": "9"}))),
        (json_schema.shape, json.dumps({"type": "object", "properties": ["a"]})),
        (json_schema.shape, json_properties({"a": {"$ref": 5}})),
        (json_schema.shape, json_properties({"a": {"type": "string", "format": []}})),
        (json_schema.shape, json.dumps({"allOf": [{"properties": [1]}]})),
    ],
)
def test_attributes_of_another_type_are_a_schema_error(read, text):
    with pytest.raises(SchemaError, match="not valid"):
        read([RegisteredSchema(1, text)])


def test_a_wrapper_of_somebodys_own_that_contains_itself_is_refused():
    forged = proto("package google.protobuf;", "message StringValue { StringValue value = 1; }")
    text = proto('import "own.proto";', "message M { google.protobuf.StringValue a = 1; }")
    with pytest.raises(SchemaError, match=DEPTH):
        protobuf.reader([RegisteredSchema(1, text, "PROTOBUF", (("own.proto", forged),))])
