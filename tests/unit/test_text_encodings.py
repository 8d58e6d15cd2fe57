"""Evolution of columns of text and of JSON text, which have the same type and are distinguished by their comments."""

import json

import pytest
from pyiceberg.schema import Schema
from pyiceberg.types import NestedField, StringType

from lakehouse.formats import evolution
from lakehouse.formats.schema import RegisteredSchema
from tests.support.shapes import avro_shape, json_shape, protobuf_shape

STRING, ANY, WHOLE = {"type": "string"}, {"type": ["string", "integer"]}, {"type": "integer"}


def array_schema(items):
    return {"type": "array", "items": items}


def map_schema(values):
    return {"type": "object", "additionalProperties": values}


def object_schema(property_):
    return {"type": "object", "properties": {"y": property_}}


ENCODINGS = {
    "text to any value": (STRING, ANY, [("ENCODING_CHANGED", "x")]),
    "any value to text": (ANY, STRING, [("ENCODING_CHANGED", "x")]),
    "a description like the mark": (ANY, STRING | {"description": "JSON text: y"}, [("ENCODING_CHANGED", "x")]),
    "in a list of maps": (
        array_schema(map_schema(STRING)),
        array_schema(map_schema(ANY)),
        [("ENCODING_CHANGED", "x.element.value")],
    ),
    "in a list of objects": (
        array_schema(object_schema(STRING)),
        array_schema(object_schema(ANY)),
        [("ENCODING_CHANGED", "x.element.y")],
    ),
    "any value to others": (ANY, {"enum": ["a", 1]}, []),
    "any value to described ones": (ANY, ANY | {"description": "a code"}, []),
    "a number to any value": (WHOLE, ANY, [("UNSUPPORTED_TYPE_CHANGE", "x")]),
    "text to listed texts": (STRING, {"enum": ["a", "b"]}, []),
}


@pytest.mark.parametrize("case", ENCODINGS)
@pytest.mark.parametrize("registered", ["both versions", "the newest version"])
def test_changes_json_text_and_plain_text_never_mix(case, registered):
    old, new, expected = ENCODINGS[case]

    def version(id_, property_):
        return RegisteredSchema(id_, json.dumps({"type": "object", "properties": {"x": property_}}), "JSON")

    before, after = version(1, old), version(2, new)
    changes = evolution.changes(
        Schema(*json_shape([before]).struct.fields),
        json_shape([before, after] if registered == "both versions" else [after]),
    )

    assert [(c.rule, ".".join(c.path)) for c in changes if not c.accepted] == expected


def test_changes_protobuf_text_to_json_value_is_refused():
    text = 'syntax = "proto3"; import "google/protobuf/struct.proto"; message R { repeated %s x = %d; }'
    of_text = RegisteredSchema(1, text % ("string", 1), "PROTOBUF")
    of_values = RegisteredSchema(2, text % ("google.protobuf.Value", 1), "PROTOBUF")
    before = Schema(*protobuf_shape([of_text]).struct.fields)

    changes = evolution.changes(before, protobuf_shape([of_text, of_values]))

    assert [(c.rule, ".".join(c.path)) for c in changes if not c.accepted] == [("ENCODING_CHANGED", "x.element")]


@pytest.mark.parametrize("before", [None, "JSON text", "JSON text: an order"])
@pytest.mark.parametrize("after", ["JSON text", "JSON text: an order", "an order"])
def test_changes_description_of_avro_text_like_mark_is_accepted(before, after):
    """Text that producers fill with JSON is still text, whatever its description."""

    def shape(doc):
        field = {"name": "x", "type": "string"} | ({"doc": doc} if doc else {})
        return avro_shape([RegisteredSchema(1, json.dumps({"type": "record", "name": "R", "fields": [field]}))])

    assert not [c for c in evolution.changes(Schema(*shape(before).struct.fields), shape(after)) if not c.accepted]


def test_changes_json_text_to_avro_text_of_that_description_is_refused():
    """The text of a JSON Schema is a JSON document; that of Avro is not, although its description is the mark."""
    table = Schema(NestedField(1, "x", StringType(), required=False, doc="JSON text"))
    text = json.dumps({"type": "record", "name": "R", "fields": [{"name": "x", "type": "string", "doc": "JSON text"}]})
    refused = [c.rule for c in evolution.changes(table, avro_shape([RegisteredSchema(1, text)])) if not c.accepted]
    assert refused == ["ENCODING_CHANGED"]
