"""Avro schemas as columns, each as Spark's from_avro decodes it."""

import json

import pytest

from lakehouse import avro
from lakehouse.columns import table_schema
from lakehouse.errors import SchemaError
from lakehouse.schema import RegisteredSchema
from lakehouse.topic import Topic


def columns(schema):
    """The columns of a table for records of a schema."""
    return table_schema(Topic(), avro.shape([RegisteredSchema(0, schema)]).struct, None)


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

    fields = json.loads(avro.reader(versions))["fields"]
    assert [(field["name"], field["type"]) for field in fields] == [("renamed", "long"), ("f1", ["null", "string"])]
    assert avro.shape(versions).former == {"renamed": ("f0",)}


def test_what_avro_would_read_as_something_else_is_named():
    millis, micros = ({"type": "long", "logicalType": f"timestamp-{unit}"} for unit in ("millis", "micros"))
    assert "timestamp-millis is not timestamp-micros" in avro.misread(record(millis), record(micros))
    assert "long does not always fit double" in avro.misread(record("long"), record("double"))
    assert avro.misread(record("int"), record("long")) is None
