"""Iceberg columns of Avro schemas, with the types that Spark's from_avro decodes to."""

import json

import pytest

from lakehouse.config.model import Topic
from lakehouse.core.errors import SchemaError
from lakehouse.formats.avro import avro_format
from lakehouse.formats.columns import table_schema
from lakehouse.formats.schema import RegisteredSchema
from tests.support.shapes import avro_shape


def columns(schema):
    """Return the columns of a table for records of a schema."""
    return table_schema(Topic().metadata.names, avro_shape([RegisteredSchema(0, schema)]).struct, None)


NAMED = {"type": "record", "name": "Inner", "fields": [{"name": "y", "type": "int"}]}

TYPES = {
    "boolean": "boolean",
    "int": "int",
    "long": "long",
    "float": "float",
    "double": "double",
    "bytes": "binary",
    "string": "string",
}
RICH = [
    ({"type": "enum", "name": "E", "symbols": ["A"]}, "string"),
    ({"type": "fixed", "name": "F", "size": 4}, "binary"),
    ({"type": "int", "logicalType": "date"}, "date"),
    ({"type": "long", "logicalType": "timestamp-millis"}, "timestamptz"),
    ({"type": "long", "logicalType": "timestamp-micros"}, "timestamptz"),
    ({"type": "long", "logicalType": "local-timestamp-micros"}, "timestamp"),
    ({"type": "bytes", "logicalType": "decimal", "precision": 18, "scale": 4}, "decimal(18, 4)"),
    ({"type": "bytes", "logicalType": "decimal", "precision": 9}, "decimal(9, 0)"),
    ({"type": "string", "logicalType": "uuid"}, "string"),
    ({"type": "array", "items": "long"}, "list<long>"),
    ({"type": "map", "values": ["null", "int"]}, "map<string, int>"),
    (["null", "string"], "string"),
    (["string", "null"], "string"),
    (["int", "long"], "long"),
    (["float", "double", "null"], "double"),
    ({"type": {"type": "string"}}, "string"),
    # Invalid logical types are ignored.
    ({"type": "bytes", "logicalType": "decimal"}, "binary"),
    ({"type": "bytes", "logicalType": "decimal", "precision": 0}, "binary"),
    ({"type": "bytes", "logicalType": "decimal", "precision": "9"}, "binary"),
    ({"type": "bytes", "logicalType": "decimal", "precision": 3, "scale": 9}, "binary"),
    ({"type": "bytes", "logicalType": "decimal", "precision": 3, "scale": -1}, "binary"),
    ({"type": "fixed", "name": "F", "size": 4, "logicalType": "decimal", "precision": 30}, "binary"),
    ({"type": "string", "logicalType": "timestamp-millis"}, "string"),
    ({"type": "int", "logicalType": ["date"]}, "int"),
]


def record(*types):
    return json.dumps(
        {"type": "record", "name": "R", "fields": [{"name": f"f{i}", "type": t} for i, t in enumerate(types)]}
    )


@pytest.mark.parametrize(("type_", "expected"), [*TYPES.items(), *RICH])
def test_columns_each_type_maps_to_iceberg_type(type_, expected):
    field, *_ = columns(record(type_)).fields
    assert str(field.field_type) == expected
    assert not field.required


def test_columns_union_becomes_struct_of_members():
    schema = columns(record(["null", NAMED], {"type": "array", "items": "Inner"}, ["int", "string"]))
    assert schema.find_field("f0.y").field_type == schema.find_field("f1.element.y").field_type
    assert [f.name for f in schema.find_field("f2").field_type.fields] == ["member0", "member1"]


def test_columns_type_name_resolves_in_its_namespace():
    inner = {**NAMED, "namespace": "other"}
    schema = {"type": "record", "name": "R", "namespace": "ns", "fields": [
        {"name": "a", "type": inner}, {"name": "b", "type": "other.Inner"}]}  # fmt: skip
    assert columns(json.dumps(schema)).find_field("b.y")


@pytest.mark.parametrize(
    ("schema", "message"),
    [
        (record(["null", "R"]), "contains itself"),
        (record("int").replace("}]", "}, {\"name\": \"F0\", \"type\": \"int\"}]"), "differ by case only"),
        (record({**NAMED, "fields": NAMED["fields"] + [{"name": "Y", "type": "int"}]}), "differ by case only"),
        (record("int").replace("f0", "kafka_offset"), "Two columns are named 'kafka_offset'"),
        (record("nonsense"), "no Iceberg column type"),
        (record("null"), "no Iceberg column type"),
        (record(["null"]), "no Iceberg column type"),
        (record({"type": "bytes", "logicalType": "decimal", "precision": 39}), "more than the 38 digits of Iceberg"),
        ('["null", "string"]', "not a record"),
        (record(), "has no fields, so it has no columns"),
        (record(["int", "int"]), "more than once"),
        (record("int").replace("f0", "a-b"), "not a valid Avro name"),
    ],
)  # fmt: skip
def test_columns_unsupported_schema_is_refused(schema, message):
    with pytest.raises(SchemaError, match=message):
        columns(schema)


@pytest.mark.parametrize(
    ("type_", "default", "reason"),
    [
        ("double", "1e400", "exceeds a double"),
        ("double", "-1e400", "exceeds a double"),
        ("double", f"1{'0' * 400}", "exceeds a double"),
        ("float", "1e39", "exceeds a float"),
        (["double", "null"], "1e400", "exceeds a double"),
        ({"type": "array", "items": "double"}, "[0, 1e400]", "exceeds a double"),
        ({"type": "map", "values": "double"}, '{"k": 1e400}', "exceeds a double"),
        (NAMED | {"fields": [{"name": "y", "type": "double"}]}, '{"y": 1e400}', "exceeds a double"),
        ("string", r'"\ud800"', "is not valid UTF-8"),
        ({"type": "map", "values": "int"}, r'{"\udfff": 1}', "is not valid UTF-8"),
    ],
)
def test_columns_default_that_readers_would_change_is_refused(type_, default, reason):
    schema = record(type_).replace('"name": "f0"', f'"name": "f0", "default": {default}')

    with pytest.raises(SchemaError, match=f"default of Avro field 'f0' {reason}"):
        columns(schema)


def test_field_names_schema_without_record_is_refused():
    with pytest.raises(SchemaError, match="not a record"):
        avro_format.field_names('"string"')


def test_columns_include_docs_and_metadata_columns():
    schema = json.dumps({"type": "record", "name": "R", "fields": [{"name": "a", "type": "int", "doc": "An a"}]})
    struct = columns(schema)
    assert [(f.name, f.doc) for f in struct.fields][:2] == [
        ("a", "An a"),
        ("kafka_partition", "Kafka partition of the record"),
    ]


def test_shape_several_versions_reads_all_of_them():
    first = json.loads(record("int", "string"))
    second = json.loads(record("long"))
    second["fields"][0] |= {"name": "renamed", "aliases": ["f0"]}
    versions = [RegisteredSchema(1, json.dumps(first)), RegisteredSchema(2, json.dumps(second))]

    fields = avro_shape(versions).struct.fields
    assert [(field.name, str(field.field_type)) for field in fields] == [("renamed", "long"), ("f1", "string")]
    assert avro_shape(versions).previous_names == {"renamed": ("f0",)}


DATE, MILLIS = {"type": "int", "logicalType": "date"}, {"type": "long", "logicalType": "timestamp-millis"}
R1, R2, R3 = ({"type": "record", "name": f"R{n}", "fields": [{"name": "x", "type": "int"}]} for n in (1, 2, 3))


def members(*unions):
    """Return each member of a union column by the branch that its comment names, over versions of a schema."""
    versions = [RegisteredSchema(n, record(union)) for n, union in enumerate(unions)]
    [column] = avro_shape(versions).struct.fields
    return {member.doc.removeprefix("Avro union branch "): member.name for member in column.field_type.fields}


def test_shape_reordered_union_keeps_member_of_each_branch():
    first = {"R1": "member0", "R2": "member1"}
    assert members([R1, R2]) == first
    assert members([R1, R2], ["null", R2, R1]) == first
    assert members([R1, R2], ["string", R2, R1]) == first | {"string": "member2"}
    assert members([R1, R2, R3], [R1, R3]) == first | {"R3": "member2"}
    assert members([R1, R2], "string", [R3, "string"]) == first | {"string": "member2", "R3": "member3"}
    assert members([R1, R2], [R2, {**R3, "aliases": ["R1"]}]) == first
    assert members(["null", DATE, MILLIS]) == {"int": "member0", "long": "member1"}


def test_shape_name_changed_by_case_is_one_column():
    versions = [
        RegisteredSchema(n, record("int").replace("f0", name)) for n, name in enumerate(("name", "NAME", "Name"))
    ]
    shape = avro_shape(versions)
    assert [field.name for field in shape.struct.fields] == ["Name"]
    assert shape.previous_names == {"Name": ("NAME", "name")}
