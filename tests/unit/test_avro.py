"""Avro schemas as columns, each as Spark's from_avro decodes it."""

import json

import pytest

from lakehouse.config.topic import Topic
from lakehouse.core.errors import SchemaError
from lakehouse.formats import avro
from lakehouse.formats.columns import table_schema
from lakehouse.formats.schema import RegisteredSchema


def columns(schema):
    """The columns of a table for records of a schema."""
    return table_schema(Topic().metadata.names, avro.shape([RegisteredSchema(0, schema)]).struct, None)


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
    # Logical types that are not valid are ignored.
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
def test_each_type_has_its_column(type_, expected):
    field, *_ = columns(record(type_)).fields
    assert str(field.field_type) == expected
    assert not field.required


def test_records_nest_and_unions_become_structs_with_one_member_set():
    schema = columns(record(["null", NAMED], {"type": "array", "items": "Inner"}, ["int", "string"]))
    assert schema.find_field("f0.y").field_type == schema.find_field("f1.element.y").field_type
    assert [f.name for f in schema.find_field("f2").field_type.fields] == ["member0", "member1"]


def test_names_resolve_in_their_namespace():
    inner = {**NAMED, "namespace": "other"}
    schema = {"type": "record", "name": "R", "namespace": "ns", "fields": [
        {"name": "a", "type": inner}, {"name": "b", "type": "other.Inner"}]}  # fmt: skip
    assert columns(json.dumps(schema)).find_field("b.y")


@pytest.mark.parametrize(
    ("schema", "said"),
    [
        (record(["null", "R"]), "contains itself"),
        (record("int").replace("}]", "}, {\"name\": \"F0\", \"type\": \"int\"}]"), "differ by case only"),
        (record({**NAMED, "fields": NAMED["fields"] + [{"name": "Y", "type": "int"}]}), "differ by case only"),
        (record("int").replace("f0", "kafka_offset"), "Two columns are called 'kafka_offset'"),
        (record("nonsense"), "no Iceberg column type"),
        (record("null"), "no Iceberg column type"),
        (record(["null"]), "no Iceberg column type"),
        (record({"type": "bytes", "logicalType": "decimal", "precision": 39}), "more than Iceberg's 38 digits"),
        ('["null", "string"]', "not a record"),
        (record(), "has no fields, so it has no columns"),
        (record(["int", "int"]), "more than once"),
        (record("int").replace("f0", "a-b"), "no name in Avro"),
    ],
)  # fmt: skip
def test_what_has_no_table_is_refused(schema, said):
    with pytest.raises(SchemaError, match=said):
        columns(schema)


def test_a_schema_that_is_no_record_has_no_columns():
    with pytest.raises(SchemaError, match="not a record"):
        avro.field_names('"string"')


def test_docs_and_extra_columns_come_along():
    schema = json.dumps({"type": "record", "name": "R", "fields": [{"name": "a", "type": "int", "doc": "An a"}]})
    found = columns(schema)
    assert [(f.name, f.doc) for f in found.fields][:2] == [
        ("a", "An a"),
        ("kafka_partition", "Kafka partition of the record"),
    ]


def test_one_schema_reads_what_every_version_wrote():
    first = json.loads(record("int", "string"))
    second = json.loads(record("long"))
    second["fields"][0] |= {"name": "renamed", "aliases": ["f0"]}
    versions = [RegisteredSchema(1, json.dumps(first)), RegisteredSchema(2, json.dumps(second))]

    fields = avro.shape(versions).struct.fields
    assert [(field.name, str(field.field_type)) for field in fields] == [("renamed", "long"), ("f1", "string")]
    assert avro.shape(versions).former == {"renamed": ("f0",)}


DATE, MILLIS = {"type": "int", "logicalType": "date"}, {"type": "long", "logicalType": "timestamp-millis"}
R1, R2, R3 = ({"type": "record", "name": f"R{n}", "fields": [{"name": "x", "type": "int"}]} for n in (1, 2, 3))


def members(*unions):
    """The members of a column by the branch that their comments name, over versions of a schema."""
    versions = [RegisteredSchema(n, record(union)) for n, union in enumerate(unions)]
    [column] = avro.shape(versions).struct.fields
    return {member.doc.removeprefix("Avro union branch "): member.name for member in column.field_type.fields}


def test_members_keep_the_place_that_their_branch_had_first():
    first = {"R1": "member0", "R2": "member1"}
    assert members([R1, R2]) == first
    assert members([R1, R2], ["null", R2, R1]) == first
    assert members([R1, R2], ["string", R2, R1]) == first | {"string": "member2"}
    assert members([R1, R2, R3], [R1, R3]) == first | {"R3": "member2"}
    assert members([R1, R2], "string", [R3, "string"]) == first | {"string": "member2", "R3": "member3"}
    assert members([R1, R2], [R2, {**R3, "aliases": ["R1"]}]) == first
    assert members(["null", DATE, MILLIS]) == {"int": "member0", "long": "member1"}


def test_a_name_that_changed_by_case_only_is_one_column():
    versions = [
        RegisteredSchema(n, record("int").replace("f0", name)) for n, name in enumerate(("name", "NAME", "Name"))
    ]
    found = avro.shape(versions)
    assert [field.name for field in found.struct.fields] == ["Name"]
    assert found.former == {"Name": ("NAME", "name")}
