"""Behaviour of every format of keys and values."""

import json

import pytest

from lakehouse.core.errors import ConfigError
from lakehouse.core.registry import implementations
from lakehouse.formats import format_of, of_type, registered, with_schemas
from lakehouse.formats.format import RegisteredFormat
from lakehouse.formats.primitive_formats import StringFormat
from lakehouse.formats.schema import RegisteredSchema
from lakehouse.pipeline.schemas.decoding import side_schema
from spark.engine import codec_of

ORDER = RegisteredSchema(1, json.dumps({"type": "record", "name": "Order", "fields": [{"name": "id", "type": "int"}]}))
ORDER_IN_JSON = RegisteredSchema(1, '{"type": "object", "properties": {"id": {"type": "integer"}}}', "JSON")
ORDER_IN_PROTOBUF = RegisteredSchema(1, 'syntax = "proto3"; message Order { int32 id = 1; }', "PROTOBUF")


def test_side_schema_unknown_format_is_refused():
    with pytest.raises(ConfigError, match=r"'avor' is not a format of keys or values\. Did you mean 'avro'\?"):
        side_schema("avor", [ORDER], "")


@pytest.mark.parametrize("name", registered())
def test_side_schema_every_format_has_codec_columns(name):
    schemas = {"avro": ORDER, "json_schema": ORDER_IN_JSON, "protobuf": ORDER_IN_PROTOBUF}
    versions = [schemas[name]] if isinstance(format_of(name), RegisteredFormat) else []

    side = side_schema(name, versions, column="value")

    names = [field.name for field in side.shape.struct.fields]
    assert names == codec_of(side.side).columns == (["id"] if versions else ["value"])


def test_registered_schema_types_and_suffixes_are_unique():
    assert [of_type(format_.schema_type) for format_ in with_schemas()] == with_schemas()
    assert len({format_.suffix for format_ in with_schemas()}) == len(with_schemas())
    assert of_type("XML") is None


def test_implementations_duplicate_name_is_refused():
    class Other(StringFormat):
        """A format with the name of another one."""

    with pytest.raises(ConfigError, match="both add 'string' to lakehouse.formats. Nothing was loaded"):
        implementations([StringFormat, Other], "lakehouse.formats")
