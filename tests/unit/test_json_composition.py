"""JSON Schemas that are composed of others: no property that a schema declares is left out of the columns."""

import json

import pytest

from lakehouse.core.errors import SchemaError
from lakehouse.formats.json_schema import reader, shape
from lakehouse.formats.schema import RegisteredSchema

INTEGER, STRING = {"type": "integer"}, {"type": "string"}
ADDRESS = {"type": "object", "properties": {"street": STRING, "no": INTEGER}}
DRAFT_7, DRAFT_2020 = "http://json-schema.org/draft-07/schema#", "https://json-schema.org/draft/2020-12/schema"


def version(schema, **references):
    texts = tuple((f"{name}.json", json.dumps(text)) for name, text in references.items())
    return RegisteredSchema(1, json.dumps(schema), "JSON", texts)


def columns(schema, **references):
    """The columns as nested dictionaries; of a value of one kind, its kind."""
    return plain(reader([version(schema, **references)]))


def plain(fields):
    return {field.name: plain(field.fields) if field.fields else field.kind for field in fields}


def test_all_of_has_the_properties_of_a_registered_reference():
    schema = {"properties": {"a": INTEGER}, "allOf": [{"$ref": "common.json"}]}
    assert columns(schema, common={"properties": {"b": STRING}}) == {"a": "long", "b": "string"}


def test_all_of_has_the_properties_of_a_place_in_a_registered_reference():
    common = {"definitions": {"N": {"properties": {"b": {"$ref": "#/definitions/T"}}}, "T": STRING}}
    nested = {"n": {"allOf": [{"$ref": "common.json#/definitions/N"}, {"properties": {"c": INTEGER}}]}}
    assert columns({"properties": nested}, common=common) == {"n": {"b": "string", "c": "long"}}


def test_all_of_a_chain_of_references_and_all_ofs():
    definitions = {
        "x": {"allOf": [{"$ref": "#/$defs/y"}, {"properties": {"x": INTEGER}}]},
        "y": {"$ref": "#/$defs/z"},
        "z": {"properties": {"z": STRING}},
    }
    assert columns({"allOf": [{"$ref": "#/$defs/x"}], "$defs": definitions}) == {"z": "string", "x": "long"}


@pytest.mark.parametrize("reference", ["#/$defs/none", "other.json", "#anchor", "common.json#/none"])
def test_a_reference_to_nothing_is_refused_wherever_it_stands(reference):
    for schema in ({"allOf": [{"$ref": reference}]}, {"properties": {"a": {"$ref": reference}}}):
        with pytest.raises(SchemaError, match="refers to"):
            columns({"properties": {"a": INTEGER}} | schema, common={})


@pytest.mark.parametrize("keyword", ["$dynamicRef", "$recursiveRef"])
def test_a_reference_that_depends_on_who_refers_is_refused(keyword):
    with pytest.raises(SchemaError, match=f"'\\{keyword}', which is not supported"):
        columns({"properties": {"a": {keyword: "#"}}})


@pytest.mark.parametrize(
    "schema",
    [
        {"allOf": [{"$ref": "#"}]},
        {"properties": {"a": {"$ref": "#"}}},
        {"properties": {"a": {"type": "array", "items": {"allOf": [{"$ref": "#/properties/a"}]}}}},
        {"anyOf": [{"$ref": "#"}, {"type": "null"}], "properties": {"a": INTEGER}},
        {"properties": {"a": INTEGER}, "then": {"$ref": "#"}},
        {"properties": {"a": INTEGER}, "oneOf": [{"$ref": "#"}, {"$ref": "#/properties/a"}]},
    ],
)
def test_a_reference_to_itself_is_refused_wherever_it_stands(schema):
    with pytest.raises(SchemaError, match="refers to itself"):
        columns(schema)


def test_properties_beside_a_reference_are_columns_where_the_draft_has_them():
    schema = {"$ref": "#/$defs/base", "properties": {"b": STRING}, "$defs": {"base": {"properties": {"a": INTEGER}}}}
    assert columns(schema | {"$schema": DRAFT_2020}) == columns(schema) == {"b": "string", "a": "long"}
    assert columns(schema | {"$schema": DRAFT_7}) == {"a": "long"}
    nested = {"properties": {"n": schema}, "$defs": schema["$defs"]}
    assert columns(nested | {"$schema": DRAFT_2020}) == {"n": {"b": "string", "a": "long"}}


@pytest.mark.parametrize("choice", ["anyOf", "oneOf"])
def test_a_single_branch_adds_to_what_stands_beside_it(choice):
    branch = {"type": "object", "properties": {"c": INTEGER}}
    schema = {"type": "object", "properties": {"a": INTEGER, "b": STRING}, choice: [branch]}
    assert columns(schema) == columns({"properties": {"n": schema}})["n"] == {"a": "long", "b": "string", "c": "long"}
    assert columns({"allOf": [{"properties": {"a": INTEGER}}], choice: [branch]}) == {"a": "long", "c": "long"}


@pytest.mark.parametrize("choice", ["anyOf", "oneOf"])
def test_branches_that_only_require_leave_the_columns(choice):
    schema = {"type": "object", "properties": {"a": INTEGER, "b": STRING}}
    required = {choice: [{"required": ["a"]}, {"required": ["b"]}]}
    assert columns(schema | required) == columns({"allOf": [schema, required]}) == {"a": "long", "b": "string"}
    assert columns({"properties": {"n": schema | required}}) == {"n": {"a": "long", "b": "string"}}


def test_branches_beside_properties_add_columns_that_nothing_requires():
    card = {"properties": {"kind": {"const": "card"}, "number": STRING, "limit": INTEGER}, "required": ["number"]}
    cash = {"properties": {"kind": {"const": "cash"}, "drawer": INTEGER, "limit": STRING}, "required": ["drawer"]}
    schema = {"properties": {"kind": STRING}, "required": ["kind"], "oneOf": [card, cash]}
    # Of one name with two types, the JSON text is kept.
    assert columns(schema) == {"kind": "string", "number": "string", "limit": "text", "drawer": "long"}
    assert {field.name for field in reader([version(schema)]) if field.required} == {"kind"}


@pytest.mark.parametrize(
    "more",
    [
        {"if": {"properties": {"k": {"const": "x"}}}, "then": {"properties": {"a": INTEGER}, "required": ["a"]}},
        {"if": {"properties": {"k": {"const": "x"}}}, "else": {"properties": {"a": INTEGER}, "required": ["a"]}},
        {"dependentSchemas": {"k": {"properties": {"a": INTEGER}, "required": ["a"]}}},
        {"dependencies": {"k": {"properties": {"a": INTEGER}, "required": ["a"]}, "other": ["k"]}},
        {"anyOf": [{"if": {}, "then": {"properties": {"a": INTEGER}}, "properties": {"k": {}}}, {"type": "object"}]},
    ],
    ids=["then", "else", "dependentSchemas", "dependencies", "nested"],
)
def test_properties_under_a_condition_are_columns(more):
    schema = {"properties": {"k": STRING}} | more
    assert columns(schema) == columns({"properties": {"n": schema}})["n"] == {"k": "string", "a": "long"}
    assert not any(field.required for field in reader([version(schema)]))


def test_a_property_that_several_parts_describe_is_all_of_them():
    parts = [
        {"properties": {"n": {"properties": {"a": INTEGER}}}},
        {"properties": {"n": {"properties": {"b": STRING}}}},
    ]
    assert columns({"allOf": parts}) == {"n": {"a": "long", "b": "string"}}
    narrower = [{"properties": {"n": {"type": "number"}}}, {"properties": {"n": {"minimum": 0, "type": "integer"}}}]
    assert columns({"allOf": narrower}) == {"n": "long"}


def test_alternatives_without_properties_beside_them_are_json_text_and_no_table():
    alternatives = {"oneOf": [ADDRESS, {"type": "object", "properties": {"box": INTEGER}}]}
    assert columns({"properties": {"to": alternatives}}) == {"to": "text"}
    with pytest.raises(SchemaError, match="'oneOf' has alternatives, and no 'properties' stand beside it"):
        columns(alternatives)


def test_a_type_beside_alternatives_holds_for_all_of_them():
    schema = {"type": "string", "anyOf": [{"format": "email"}, {"pattern": "^[0-9]+$"}]}
    assert columns({"properties": {"contact": schema}}) == {"contact": "string"}


@pytest.mark.parametrize(
    ("schema", "required"),
    [
        (STRING, True),
        (ADDRESS, True),
        ({"properties": {"a": INTEGER}}, True),
        ({"enum": ["x"]}, True),
        ({"oneOf": [STRING, INTEGER]}, True),
        ({"allOf": [{"type": ["string", "null"]}, STRING]}, True),
        ({"type": ["string", "null"]}, False),
        ({"anyOf": [STRING, {"type": "null"}]}, False),
        ({"anyOf": [STRING, INTEGER, {"type": "null"}]}, False),
        ({"anyOf": [STRING, {"$ref": "#/$defs/maybe"}]}, False),
        ({}, False),
        (True, False),
        ({"enum": [None, "x"]}, False),
        ({"const": None}, False),
    ],
)
def test_what_is_required_may_be_null_where_its_schema_allows_null(schema, required):
    whole = {"properties": {"d": schema}, "required": ["d"], "$defs": {"maybe": {"type": ["integer", "null"]}}}
    [field] = reader([version(whole)])
    assert field.required is required


def test_references_are_found_as_the_standards_write_them():
    definitions = {
        "percent%field": INTEGER,
        'foo"bar': STRING,
        "sl/ash": {"type": "boolean"},
        "list": {"anyOf": [STRING, {"type": "number"}]},
        "named": {"$anchor": "here", "type": "integer"},
    }
    properties = {
        "percent": {"$ref": "#/$defs/percent%25field"},
        "quote": {"$ref": "#/$defs/foo%22bar"},
        "slash": {"$ref": "#/$defs/sl~1ash"},
        "item": {"$ref": "#/$defs/list/anyOf/1"},
        "anchor": {"$ref": "#here"},
        "own": {"$ref": "https://example.com/me.json#/$defs/named"},
        "other": {"$ref": "other.json#there"},
        "by_id": {"$ref": "https://example.com/files/other"},
    }
    other = {
        "$id": "https://example.com/files/other",
        "type": "string",
        "$defs": {"x": {"$anchor": "there", **INTEGER}},
    }
    schema = {"$id": "https://example.com/me.json", "properties": properties, "$defs": definitions}
    assert columns(schema, other=other) == {
        "percent": "long",
        "quote": "string",
        "slash": "boolean",
        "item": "double",
        "anchor": "long",
        "own": "long",
        "other": "long",
        "by_id": "string",
    }


def test_a_description_beside_a_reference_is_the_columns():
    definitions = {"a": {"type": "string", "description": "of all"}}
    schema = {"properties": {"own": {"$ref": "#/$defs/a", "description": "its own"}, "not": {"$ref": "#/$defs/a"}}}
    assert [f.comment for f in reader([version(schema | {"$defs": definitions})])] == ["its own", "of all"]


@pytest.mark.parametrize("nested", [False, True])
def test_a_name_that_changed_by_case_only_is_refused(nested):
    def of(name):
        schema = {"properties": {"id": INTEGER, name: STRING}}
        return version({"properties": {"n": schema}} if nested else schema)

    with pytest.raises(SchemaError, match="name' of an older version is '.*Name' in a newer one"):
        shape([of("name"), of("Name")])


@pytest.mark.parametrize("older", [{"type": "object", "additionalProperties": INTEGER}, {}])
def test_properties_that_a_newer_version_no_longer_names_are_not_dropped(older):
    newer = {"properties": {"x": INTEGER}}
    with pytest.raises(SchemaError, match="'m' .* had any properties, and has only those that it names"):
        shape([version({"properties": {"m": older}}), version({"properties": {"m": newer}})])


@pytest.mark.parametrize(
    "schema", [{"properties": {"a": {"type": {"type": "string"}}}}, {"properties": {"a": {"$ref": 5}}}]
)
def test_a_keyword_of_the_wrong_type_is_named(schema):
    with pytest.raises(SchemaError, match="is not valid"):
        columns(schema)


@pytest.mark.parametrize("names", [("",), ("a", "")])
def test_an_empty_name_is_refused(names):
    within = {"type": "object", "properties": dict.fromkeys(names, {"type": "string"})}
    for schema in (within, {"type": "object", "properties": {"x": within}}):
        with pytest.raises(SchemaError, match="empty name"):
            shape([RegisteredSchema(1, json.dumps(schema), "JSON")])


def test_an_enumeration_of_text_that_may_be_null_is_text():
    choice = {"oneOf": [{"enum": ["A", "B"]}, {"type": "null"}]}
    schema = {"type": "object", "properties": {"a": choice, "b": {"anyOf": [{"const": "x"}]}}}
    assert [field.kind for field in reader([RegisteredSchema(1, json.dumps(schema), "JSON")])] == ["string", "string"]
