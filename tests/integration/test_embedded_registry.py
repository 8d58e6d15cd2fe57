"""Schemas that the embedded registry refuses, although Confluent's registry accepts them (docs/types.md)."""

import json
import uuid

import pytest
from confluent_kafka.schema_registry import Schema
from confluent_kafka.schema_registry.error import SchemaRegistryError

from lakehouse.core.errors import SchemaError
from lakehouse.formats.schema import RegisteredSchema
from tests.support.shapes import avro_shape, json_kinds, protobuf_shape
from tests.support.topics import registry

UNTYPED = {"allOf": [{"properties": {"a": {"type": "integer"}}}]}
NESTED = {"type": "record", "name": "R", "fields": [{"name": "a", "type": {"type": {"type": "string"}}}]}
EDITION = 'edition = "2023"; message R { int32 a = 1; }'


@pytest.mark.parametrize(("schema", "type_"), [(json.dumps(NESTED), "AVRO"), (EDITION, "PROTOBUF")])
@pytest.mark.usefixtures("resources")
def test_register_schema_outside_embedded_registry_is_refused(schema, type_):
    with pytest.raises(SchemaRegistryError) as refused:
        registry().register_schema(f"refused-{uuid.uuid4().hex[:8]}", Schema(schema, type_))
    assert refused.value.http_status_code == 422


@pytest.mark.usefixtures("resources")
def test_register_schema_with_other_aliases_returns_existing_id():
    # docs/types.md states it, because Confluent's registry returns a new id.
    subject, renamed = f"aliases-{uuid.uuid4().hex[:8]}", {"name": "b", "aliases": ["a"], "type": "int"}
    fields = [[{"name": "b", "type": "int"}], [renamed], [renamed, {"name": "c", "type": "int", "default": 0}]]
    schemas = [json.dumps({"type": "record", "name": "R", "fields": some}) for some in fields]
    ids = [registry().register_schema(subject, Schema(schema, "AVRO")) for schema in schemas]
    assert ids[0] == ids[1] != ids[2]


def test_schemas_of_confluent_registry_alone_are_read():
    assert json_kinds(UNTYPED) == {"a": "long"}
    [field] = avro_shape([RegisteredSchema(1, json.dumps(NESTED))]).struct.fields
    assert (field.name, str(field.field_type)) == ("a", "string")
    with pytest.raises(SchemaError, match="edition"):
        protobuf_shape([RegisteredSchema(1, EDITION, "PROTOBUF")])
