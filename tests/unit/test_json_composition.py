"""Composition of JSON Schemas: every declared property becomes a column."""

import json

import pytest

from lakehouse.core.errors import SchemaError
from lakehouse.formats.json.json_format import reader
from lakehouse.formats.schema import RegisteredSchema
from tests.support.shapes import json_kinds as columns
from tests.support.shapes import json_shape
from tests.support.shapes import json_version as version

INTEGER, STRING = {"type": "integer"}, {"type": "string"}
ADDRESS = {"type": "object", "properties": {"street": STRING, "no": INTEGER}}
DRAFT_4 = "http://json-schema.org/draft-04/schema#"
DRAFT_7, DRAFT_2020 = "http://json-schema.org/draft-07/schema#", "https://json-schema.org/draft/2020-12/schema"


def test_all_of_registered_reference_adds_its_properties():
    schema = {"properties": {"a": INTEGER}, "allOf": [{"$ref": "common.json"}]}
    assert columns(schema, common={"properties": {"b": STRING}}) == {"a": "long", "b": "string"}


def test_all_of_pointer_into_reference_adds_its_properties():
    common = {"definitions": {"N": {"properties": {"b": {"$ref": "#/definitions/T"}}}, "T": STRING}}
    nested = {"n": {"allOf": [{"$ref": "common.json#/definitions/N"}, {"properties": {"c": INTEGER}}]}}
    assert columns({"properties": nested}, common=common) == {"n": {"b": "string", "c": "long"}}


def test_all_of_chain_of_references_adds_all_properties():
    definitions = {
        "x": {"allOf": [{"$ref": "#/$defs/y"}, {"properties": {"x": INTEGER}}]},
        "y": {"$ref": "#/$defs/z"},
        "z": {"properties": {"z": STRING}},
    }
    assert columns({"allOf": [{"$ref": "#/$defs/x"}], "$defs": definitions}) == {"z": "string", "x": "long"}


@pytest.mark.parametrize("reference", ["#/$defs/none", "other.json", "#anchor", "common.json#/none"])
def test_reference_unresolvable_is_refused(reference):
    for schema in ({"allOf": [{"$ref": reference}]}, {"properties": {"a": {"$ref": reference}}}):
        with pytest.raises(SchemaError, match="refers to"):
            columns({"properties": {"a": INTEGER}} | schema, common={})


@pytest.mark.parametrize("keyword", ["$dynamicRef", "$recursiveRef"])
def test_reference_dynamic_is_refused(keyword):
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
def test_reference_to_itself_is_refused(schema):
    with pytest.raises(SchemaError, match="refers to itself"):
        columns(schema)


def test_properties_beside_reference_count_by_draft():
    schema = {"$ref": "#/$defs/base", "properties": {"b": STRING}, "$defs": {"base": {"properties": {"a": INTEGER}}}}
    assert columns(schema | {"$schema": DRAFT_2020}) == columns(schema) == {"b": "string", "a": "long"}
    assert columns(schema | {"$schema": DRAFT_7}) == {"a": "long"}
    nested = {"properties": {"n": schema}, "$defs": schema["$defs"]}
    assert columns(nested | {"$schema": DRAFT_2020}) == {"n": {"b": "string", "a": "long"}}


@pytest.mark.parametrize("choice", ["anyOf", "oneOf"])
def test_single_branch_adds_to_properties_beside_it(choice):
    branch = {"type": "object", "properties": {"c": INTEGER}}
    schema = {"type": "object", "properties": {"a": INTEGER, "b": STRING}, choice: [branch]}
    assert columns(schema) == columns({"properties": {"n": schema}})["n"] == {"a": "long", "b": "string", "c": "long"}
    assert columns({"allOf": [{"properties": {"a": INTEGER}}], choice: [branch]}) == {"a": "long", "c": "long"}


@pytest.mark.parametrize("choice", ["anyOf", "oneOf"])
@pytest.mark.parametrize(
    "null", [{"type": "null", "title": "Not included"}, {"type": ["null"]}, {"const": None}, {"enum": [None]}]
)
def test_branch_of_null_makes_other_branch_nullable(choice, null):
    for other, kind in (
        (ADDRESS, {"street": "string", "no": "long"}),
        ({"type": "array", "items": INTEGER}, {"element": "long"}),
    ):
        for branches in ([null, other], [other, null], [null, {"title": "T"} | other, null]):
            schema = {"properties": {"n": {choice: branches}}, "required": ["n"]}
            assert columns(schema) == {"n": kind}
            assert not reader([version(schema)])[0].required


@pytest.mark.parametrize("choice", ["anyOf", "oneOf"])
def test_branches_with_only_required_add_no_columns(choice):
    schema = {"type": "object", "properties": {"a": INTEGER, "b": STRING}}
    required = {choice: [{"required": ["a"]}, {"required": ["b"]}]}
    assert columns(schema | required) == columns({"allOf": [schema, required]}) == {"a": "long", "b": "string"}
    assert columns({"properties": {"n": schema | required}}) == {"n": {"a": "long", "b": "string"}}


def test_branches_beside_properties_add_optional_columns():
    card = {"properties": {"kind": {"const": "card"}, "number": STRING, "limit": INTEGER}, "required": ["number"]}
    cash = {"properties": {"kind": {"const": "cash"}, "drawer": INTEGER, "limit": STRING}, "required": ["drawer"]}
    schema = {"properties": {"kind": STRING}, "required": ["kind"], "oneOf": [card, cash]}
    # A name with two types becomes JSON text.
    assert columns(schema) == {"kind": "string", "number": "string", "limit": "text", "drawer": "long"}
    assert {field.name for field in reader([version(schema)]) if field.required} == {"kind"}


@pytest.mark.parametrize(
    "condition",
    [
        {"if": {"properties": {"k": {"const": "x"}}}, "then": {"properties": {"a": INTEGER}, "required": ["a"]}},
        {"if": {"properties": {"k": {"const": "x"}}}, "else": {"properties": {"a": INTEGER}, "required": ["a"]}},
        {"dependentSchemas": {"k": {"properties": {"a": INTEGER}, "required": ["a"]}}},
        {"dependencies": {"k": {"properties": {"a": INTEGER}, "required": ["a"]}, "other": ["k"]}},
        {"anyOf": [{"if": {}, "then": {"properties": {"a": INTEGER}}, "properties": {"k": {}}}, {"type": "object"}]},
    ],
    ids=["then", "else", "dependentSchemas", "dependencies", "nested"],
)
def test_conditional_properties_become_optional_columns(condition):
    schema = {"properties": {"k": STRING}} | condition
    assert columns(schema) == columns({"properties": {"n": schema}})["n"] == {"k": "string", "a": "long"}
    assert not any(field.required for field in reader([version(schema)]))


def test_property_in_several_parts_is_merged():
    parts = [
        {"properties": {"n": {"properties": {"a": INTEGER}}}},
        {"properties": {"n": {"properties": {"b": STRING}}}},
    ]
    assert columns({"allOf": parts}) == {"n": {"a": "long", "b": "string"}}
    narrower = [{"properties": {"n": {"type": "number"}}}, {"properties": {"n": {"minimum": 0, "type": "integer"}}}]
    assert columns({"allOf": narrower}) == {"n": "long"}


def test_alternatives_without_properties_become_json_text():
    alternatives = {"oneOf": [ADDRESS, {"type": "object", "properties": {"box": INTEGER}}]}
    assert columns({"properties": {"to": alternatives}}) == {"to": "text"}
    # At the top, they are the columns.
    top = {"street": "string", "no": "long", "box": "long"}
    assert columns(alternatives) == columns(alternatives | {"properties": {}}) == top
    assert not any(field.required for field in reader([version(alternatives)]))
    with pytest.raises(SchemaError, match="does not describe an object with properties"):
        columns({"oneOf": [STRING, INTEGER]})


A, B, C = ({"properties": {name: type_}} for name, type_ in (("a", INTEGER), ("b", STRING), ("c", INTEGER)))
IF = {"properties": {"k": {"const": "x"}}}


@pytest.mark.parametrize(
    "nested",
    [
        {"if": IF, "then": A, "else": {"if": IF, "then": B, "else": C}},
        {"if": {"if": A, "then": B}, "then": {"dependentSchemas": {"k": C}}},
        {"anyOf": [{"oneOf": [A, B]}, {"allOf": [{"oneOf": [C, {}]}]}]},
        {"oneOf": [{"$ref": "#/$defs/choice"}, C]},
        {"dependentSchemas": {"k": {"if": A, "then": {"oneOf": [{"anyOf": [B, {"oneOf": [C, A]}]}, {}]}}}},
    ],
    ids=["else", "if", "anyOf", "reference", "dependentSchemas"],
)
def test_alternatives_at_any_depth_add_optional_columns(nested):
    schema = {"type": "object", "properties": {"k": STRING}, "$defs": {"choice": {"oneOf": [A, B]}}}
    expected = {"k": "string", "a": "long", "b": "string", "c": "long"}
    assert columns(schema | nested) == expected
    inner = {name: part for name, part in (schema | nested).items() if name != "$defs"}
    places = {
        "n": inner,
        "l": {"type": "array", "items": inner},
        "m": {"additionalProperties": inner, "type": "object"},
    }
    assert columns({"properties": places, "$defs": schema["$defs"]}) == {
        "n": expected,
        "l": {"element": expected},
        "m": {"value": expected},
    }


def test_alternatives_extend_object_list_and_map_beside_them():
    free = {"type": "object"}

    def around(schema):
        lists = {"type": "array", "items": {"oneOf": [schema, free]}}
        return {"properties": {"o": schema, "l": lists, "m": {"type": "object", "additionalProperties": schema}}}

    base = {"l": {"type": "array", "items": free | A}, "m": free | {"additionalProperties": A | free}, "o": free | A}
    alternatives = [around(B), around({"oneOf": [C, {"anyOf": [free, B]}]}), around(free), around(STRING)]
    extended = {"a": "long", "b": "string", "c": "long"}
    assert columns({"properties": base, "oneOf": alternatives}) == {
        "l": {"element": extended},
        "m": {"value": extended},
        "o": extended,
    }


def test_pattern_properties_of_another_type_make_values_json_text():
    number, any_integer = {"^n_": {"type": "number"}}, {"type": "object", "additionalProperties": INTEGER}
    assert columns({"properties": {"m": any_integer | {"patternProperties": number}}}) == {"m": {"value": "text"}}
    assert columns({"properties": {"m": any_integer | {"patternProperties": {"x": INTEGER}}}}) == {
        "m": {"value": "long"}
    }


def test_alternatives_that_repeat_a_large_object_are_within_the_budget():
    data = {"type": "object", "properties": {f"p{i}": INTEGER for i in range(100)}}
    branches = [{"properties": {"data": {"properties": {f"q{i}": INTEGER}}}} for i in range(40)]
    assert len(columns({"properties": {"data": data}, "oneOf": branches})["data"]) == 140


def test_type_beside_alternatives_applies_to_all():
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
def test_required_property_with_nullable_schema_is_optional(schema, required):
    parent = {"properties": {"d": schema}, "required": ["d"], "$defs": {"maybe": {"type": ["integer", "null"]}}}
    [field] = reader([version(parent)])
    assert field.required is required


def test_references_of_every_standard_form_are_resolved():
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


def test_reference_to_embedded_id_is_resolved():
    embedded = {
        "$id": "sub",
        "type": "integer",
        "$defs": {"z": STRING, "w": {"$anchor": "y", "type": "boolean"}, "v": {"$ref": "#/$defs/z"}},
    }
    references = {
        "relative": "sub",
        "anchor": "http://e.x/sub#y",
        "pointer": "/sub#/$defs/z",
        "inner": "sub#/$defs/v",
        "through": "#/$defs/s/$defs/v",
    }
    properties = {name: {"$ref": reference} for name, reference in references.items()}
    schema = {"$schema": DRAFT_2020, "$id": "http://e.x/root", "properties": properties, "$defs": {"s": embedded}}
    expected = {"relative": "long", "anchor": "boolean", "pointer": "string", "inner": "string", "through": "string"}
    assert columns(schema) == expected
    with pytest.raises(SchemaError, match="refers to '#y', which does not exist"):
        columns(schema | {"properties": {"a": {"$ref": "#y"}}})


def test_reference_within_embedded_id_is_relative_to_it():
    inner = {"$id": "http://e.x/dir/inner", "properties": {"n": {"$ref": "other"}}}
    definitions = {"other": {"$id": "http://e.x/dir/other", **STRING}, "root": {"$id": "http://e.x/other", **INTEGER}}
    schema = {"$id": "http://e.x/root", "properties": {"i": inner, "n": {"$ref": "other"}}, "$defs": definitions}
    assert columns(schema) == {"i": {"n": "string"}, "n": "long"}


def test_reference_to_embedded_id_follows_draft():
    definitions = {"s": {"id": "sub", **STRING}, "f": {"id": "#foo", **INTEGER}}
    properties = {"a": {"$ref": "#foo"}, "b": {"$ref": "sub"}}
    schema = {"id": "http://e.x/root", "properties": properties, "definitions": definitions}
    assert columns(schema | {"$schema": DRAFT_4}) == {"a": "long", "b": "string"}
    with pytest.raises(SchemaError, match="'sub', which is not registered"):
        columns(schema | {"$schema": DRAFT_7})
    # In draft 7, `$id` beside `$ref` has no effect.
    ignored = {"x": {"$id": "http://e.x/elsewhere/x", "$ref": "#/definitions/f"}}
    assert columns({"$schema": DRAFT_7, "properties": ignored, "definitions": {"f": STRING}}) == {"x": "string"}


def test_reference_to_id_of_several_schemas_is_refused():
    definitions = {"s": {"$id": "sub", **STRING}, "t": {"$id": "sub", **INTEGER}}
    with pytest.raises(SchemaError, match="refers to 'sub', which several schemas have as '\\$id'"):
        columns({"properties": {"a": {"$ref": "sub"}}, "$defs": definitions})
    assert columns({"properties": {"a": {"$ref": "sub"}}, "$defs": definitions | {"t": definitions["s"]}}) == {
        "a": "string"
    }


@pytest.mark.parametrize("keyword", ["$id", "$ref"])
def test_invalid_uri_is_refused(keyword):
    with pytest.raises(SchemaError, match="'http://\\[', which is not a valid URI"):
        columns({"$id": "http://e.x/root", "properties": {"a": {keyword: "http://["}}})


@pytest.mark.parametrize("reference", ["\ud800", "#\ud800", "#/\ud800", "common.json#\ud800"])
def test_reference_with_unpaired_surrogate_is_refused(reference):
    with pytest.raises(SchemaError, match=r"refers to '.*\\ud800'"):
        columns({"properties": {"a": {"$ref": reference}}}, common={})


def test_description_beside_reference_is_used():
    definitions = {"a": {"type": "string", "description": "of all"}}
    schema = {"properties": {"own": {"$ref": "#/$defs/a", "description": "its own"}, "not": {"$ref": "#/$defs/a"}}}
    assert [f.comment for f in reader([version(schema | {"$defs": definitions})])] == ["its own", "of all"]


@pytest.mark.parametrize("nested", [False, True])
def test_name_changed_by_case_only_is_refused(nested):
    def version_with(name):
        schema = {"properties": {"id": INTEGER, name: STRING}}
        return version({"properties": {"n": schema}} if nested else schema)

    with pytest.raises(SchemaError, match="name' of an older version is '.*Name' in a newer one"):
        json_shape([version_with("name"), version_with("Name")])


@pytest.mark.parametrize("older", [{"type": "object", "additionalProperties": INTEGER}, {}])
def test_properties_becoming_undeclared_are_refused(older):
    newer = {"properties": {"x": INTEGER}}
    with pytest.raises(SchemaError, match="'m' allowed any properties .* named ones in a newer"):
        json_shape([version({"properties": {"m": older}}), version({"properties": {"m": newer}})])


@pytest.mark.parametrize("names", [("",), ("a", "")])
def test_empty_name_is_refused(names):
    empty_name = {"type": "object", "properties": dict.fromkeys(names, {"type": "string"})}
    for schema in (empty_name, {"type": "object", "properties": {"x": empty_name}}):
        with pytest.raises(SchemaError, match="empty name"):
            json_shape([RegisteredSchema(1, json.dumps(schema), "JSON")])


def test_name_with_unpaired_surrogate_is_refused():
    surrogate = {"type": "object", "properties": {"a\ud800": {"type": "string"}}}
    for schema in (surrogate, {"type": "object", "properties": {"x": surrogate}}):
        with pytest.raises(SchemaError, match=r"'a\\ud800'.*not valid UTF-8"):
            json_shape([RegisteredSchema(1, json.dumps(schema), "JSON")])


def test_nullable_enumeration_of_text_is_text():
    choice = {"oneOf": [{"enum": ["A", "B"]}, {"type": "null"}]}
    schema = {"type": "object", "properties": {"a": choice, "b": {"anyOf": [{"const": "x"}]}}}
    assert [field.kind for field in reader([RegisteredSchema(1, json.dumps(schema), "JSON")])] == ["string", "string"]
