"""Keywords of JSON Schemas with values of a wrong type: refused with the pointer to the keyword and the rule."""

import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lakehouse.core.errors import SchemaError
from tests.support.shapes import json_kinds as columns

INVALID = {
    "/$ref": [5, ["#"]],
    "/$schema": [5],
    "/$id": [{}],
    "/$anchor": [1],
    "/type": [5, {"type": "string"}, [], ["string", {}], "strin", "any", None],
    "/format": [5, ["date"]],
    "/properties": [[1], "a", None],
    "/required": ["ab", True, {"a": 1}, [["a"]], None],
    "/items": [5, "a"],
    "/additionalProperties": [5, [{}], None],
    "/enum": ["ab", {"a": 1}, 5],
    "/allOf": [{}, "a", 5],
    "/anyOf": [{"a": 1}, True],
    "/oneOf": [{"type": "null"}, 1],
    "/if": [1, "a"],
    "/then": [[]],
    "/else": [None],
    "/dependentSchemas": [[{}], 5],
    "/dependencies": [["a"], "a"],
}
INVALID_MEMBERS = {
    "/properties/x~1y": {"properties": {"x/y": 1}},
    "/allOf/0": {"allOf": ["a"]},
    "/anyOf/1": {"anyOf": [{}, 5]},
    "/oneOf/0": {"oneOf": [None, {}]},
    "/dependentSchemas/a": {"dependentSchemas": {"a": ["b"]}},
    "/dependencies/a": {"dependencies": {"a": "b"}},
}


@pytest.mark.parametrize(
    ("place", "keywords"),
    [(place, {place[1:]: value}) for place, values in INVALID.items() for value in values] + [*INVALID_MEMBERS.items()],
)
def test_keyword_of_wrong_type_is_refused_with_pointer(place, keywords):
    nested = {"type": "array", "items": {"properties": {"b": keywords}}}
    for schema, pointer in (
        ({"properties": {}, **keywords}, "#"),
        ({"properties": {"a": nested}}, "#/properties/a/items/properties/b"),
        ({"properties": {"a": {"$ref": "#/$defs/d"}}, "$defs": {"d": {"allOf": [keywords]}}}, "#/$defs/d/allOf/0"),
    ):
        with pytest.raises(SchemaError, match=f"^The JSON Schema is not valid at '{re.escape(pointer + place)}': it "):
            columns(schema)
    with pytest.raises(SchemaError, match=f"not valid at '{re.escape(f'common.json#/$defs/c{place}')}': it must be "):
        columns({"properties": {"a": {"$ref": "common.json#/$defs/c"}}}, common={"$defs": {"c": keywords}})


@pytest.mark.parametrize("schema", [5, "object", None, ["a"]])
def test_schema_of_wrong_type_is_refused(schema):
    with pytest.raises(SchemaError, match="not valid at '#': it must be a schema, which is an object, true or false"):
        columns(schema)
    with pytest.raises(SchemaError, match="refers to 'common.json', which is no schema"):
        columns({"properties": {"a": {"$ref": "common.json"}}}, common=["a"] if schema is None else schema)


KEYS = st.sampled_from(
    ["$defs", "$id", "$ref", "$schema", "a", "allOf", "anyOf", "const", "enum", "if", "items", "format", "oneOf"]
    + ["prefixItems", "properties", "required", "then", "type", "dependencies", "additionalProperties", "\ud800"]
)
JSON_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.sampled_from(["a", "#", "null", "object", "http://[", "\ud800"]),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(KEYS, inner, max_size=3),
)


@given(st.dictionaries(KEYS, JSON_VALUES, max_size=5))
@settings(max_examples=500, deadline=None)
def test_schema_of_any_json_value_is_columns_or_refusal(schema):
    try:
        columns({"properties": {"a": {"type": "integer"}}} | schema, common={"$defs": {"a": schema}})
    except SchemaError as error:
        assert str(error).encode(errors="strict")
