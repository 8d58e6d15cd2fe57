"""What holds for every format of keys and values, because nothing else lists them."""

import json

import pytest

from lakehouse.core.errors import ConfigError
from lakehouse.core.registry import implementations
from lakehouse.formats import format_of, of_type, registered, with_schemas
from lakehouse.formats.format import RegisteredFormat
from lakehouse.formats.primitive import StringFormat
from lakehouse.formats.schema import RegisteredSchema
from lakehouse.pipeline.codecs import side

ORDER = RegisteredSchema(1, json.dumps({"type": "record", "name": "Order", "fields": [{"name": "id", "type": "int"}]}))
ORDER_IN_JSON = RegisteredSchema(1, '{"type": "object", "properties": {"id": {"type": "integer"}}}', "JSON")
ORDER_IN_PROTOBUF = RegisteredSchema(1, 'syntax = "proto3"; message Order { int32 id = 1; }', "PROTOBUF")


def test_an_unknown_format_is_an_error_and_not_taken_for_another():
    with pytest.raises(ConfigError, match=r"'avor' is no format of keys or values\. Did you mean 'avro'\?"):
        side("avor", [ORDER], "")


@pytest.mark.parametrize("name", registered())
def test_a_format_has_a_decoder_and_the_columns_of_its_codec(name):
    schemas = {"avro": ORDER, "json_schema": ORDER_IN_JSON, "protobuf": ORDER_IN_PROTOBUF}
    versions = [schemas[name]] if isinstance(format_of(name), RegisteredFormat) else []

    made = side(name, versions)

    assert (
        [field.name for field in made.shape.struct.fields] == made.codec.columns == (["id"] if versions else ["value"])
    )


def test_each_schema_type_and_suffix_of_a_file_is_of_one_format():
    assert [of_type(format_.schema_type) for format_ in with_schemas()] == with_schemas()
    assert len({format_.suffix for format_ in with_schemas()}) == len(with_schemas())
    assert of_type("XML") is None


def test_two_formats_of_one_name_are_refused():
    class Other(StringFormat):
        """Takes the name of text."""

    with pytest.raises(ConfigError, match="both add 'string' to lakehouse.formats. Nothing was loaded"):
        implementations([StringFormat, Other], "lakehouse.formats")
