"""Examples of the rows of docs/types.md about JSON Schema and about messages that are one value."""

import json
import struct

from lakehouse.formats.schema import RegisteredSchema
from tests.support.fuzz.cells import JsonText
from tests.support.fuzz.examples import Example, json_objects, json_schema, plain
from tests.support.fuzz.mixed_numbers import COLUMN, EMPTY, MIXED, NUMBERS, TEXT_OF_MIXED
from tests.support.fuzz.model import Case, Record

INTEGER, TEXT = {"type": "integer"}, {"type": "string"}
DAY = 86_400_000_000
COMMON = (("common.json", json.dumps({"$defs": {"n": INTEGER}})),)


def conditional(**more):
    """Return a schema with `a` and, under a condition, `b`."""
    return json_objects(
        {"properties": {"a": TEXT}} | more,
        {"a": "string", "b": "long"},
        [('{"a": "k", "b": 1}', {"a": "k", "b": 1}), ("{}", {"a": None, "b": None})],
    )


def integers_as_numbers():
    """Return a case of integers that a newer version reads as numbers."""
    versions = [
        RegisteredSchema(id_, json.dumps({"properties": {"x": {"type": "array", "items": {"type": type_}}}}), "JSON")
        for id_, type_ in ((1, "integer"), (2, "number"))
    ]
    records = [
        Record(struct.pack(">bI", 0, id_) + b'{"x": [1, %d]}' % number, {"x": [1.0, float(number)]}, fate)
        for id_, number, fate in [(1, 2**53 - 1, "row"), (1, 2**53 + 1, "letter"), (2, 2**53 + 1, "row")]
    ]
    return Case("json_schema", versions, {"x": ("list", "double")}, records)


B = {"properties": {"b": INTEGER}, "required": ["b"]}


def deep(levels, kind, wrap):
    """Return an example of dates within lists or maps within each other, whose conditions are deep expressions."""
    schema, column, good, bad, cell = TEXT | {"format": "date"}, "date", '"1970-01-02"', '"1970-01-32"', 1
    for _ in range(levels):
        if kind == "list":
            schema, column, cell = {"type": "array", "items": schema}, ("list", column), [cell]
        else:
            schema = {"type": "object", "additionalProperties": schema}
            column, cell = ("map", "string", column), (("k", cell),)
        good, bad = wrap % good, wrap % bad
    return json_schema(schema, column, [(good, cell)], [bad])


EXAMPLES = {
    "object with `properties`": Example(
        [
            json_schema(
                {"properties": {"y": INTEGER}},
                ("struct", (("y", "long"),)),
                [('{"y": 1, "z": 2}', {"y": 1}), ("{}", {"y": None})],
                ['{"y": 1}}], "z": [{"x": {"y": 2}', '{"y": 1}}]}', '{"y": 1.0}}], "z": [{"x": {"y": 2}'],
            ),
            # An integer with a fraction changes no numbers within text or of other types.
            json_schema(
                {"properties": {"i": INTEGER, "y": {"type": "number"}, "z": TEXT, "any": {}}},
                ("struct", (("i", "long"), ("y", "double"), ("z", "string"), ("any", "string"))),
                [
                    (
                        r'{"i": 2.0, "y": 1.0, "z": "[1.0, \"2.0\", 3e0]", "any": [1.50, "4.0"]}',
                        {"i": 2, "y": 1.0, "z": '[1.0, "2.0", 3e0]', "any": JsonText([1.5, "4.0"])},
                    )
                ],
            ),
            # Nor the form of a number in a column of another type, at any depth.
            json_schema(
                {"properties": {"i": INTEGER, "z": TEXT, "o": {"properties": {"i": INTEGER, "y": {"type": "number"}}}}},
                ("struct", (("i", "long"), ("z", "string"), ("o", ("struct", (("i", "long"), ("y", "double")))))),
                [
                    ('{"i": 2.0, "z": 1e5, "o": {"y": -0.0}}', {"i": 2, "z": "100000.0", "o": {"i": None, "y": -0.0}}),
                    ('{"z": 1.0, "o": {"i": 3.0}}', {"i": None, "z": "1.0", "o": {"i": 3, "y": None}}),
                    ('{"i": 2.0, "o": null}', {"i": 2, "z": None, "o": None}),
                ],
                ['{"i": 2.0, "o": {"y": "a"}}', '{"i": 2.5, "z": "a"}', '{"i": 2.0, "o": {"i": 0.5, "y": 1}}'],
            ),
            json_schema(
                {"properties": {"x": TEXT, "y": {}, "z": INTEGER}},
                ("struct", (("x", "string"), ("y", "string"), ("z", "long"))),
                [('{"x": "Infinity", "z": 1.0}', {"x": "Infinity", "y": None, "z": 1})],
                ['{"x": 1e400, "y": "a"}', '{"x": 1e400, "z": 1.0}', '{"x": [1e400], "y": "Infinity"}'],
            ),
            json_schema(
                {"properties": {"x": TEXT, "z": INTEGER}},
                ("struct", (("x", "string"), ("z", "long"))),
                [],
                ['{"x": 1e400, "z": 1.0}'],
            ),
        ]
    ),
    "object with `additionalProperties: <schema>` and no `properties`": Example(
        [
            json_schema(
                {"type": "object", "additionalProperties": NUMBERS},
                ("map", "string", COLUMN),
                [
                    (f'{{"b": {TEXT_OF_MIXED}, "a": null}}', (("a", None), ("b", MIXED))),
                    (f'{{"k": {{"z": 3.0}}, "j": {{}}, "k": {TEXT_OF_MIXED}}}', (("j", EMPTY), ("k", MIXED))),
                    ('{"k": {"i": 2.0, "z": 1e0}, "k": null}', (("k", None),)),
                    ("{}", ()),
                ],
                ['{"k": {"i": 2.0, "o": [{"d": "1970-01-32"}]}}', '{"k": {"i": 2.0}, "j": {"i": 0.5}}'],
            ),
            json_schema(
                {"type": "object", "additionalProperties": {"type": "object", "additionalProperties": NUMBERS}},
                ("map", "string", ("map", "string", COLUMN)),
                [(f'{{"a": {{"b": {TEXT_OF_MIXED}}}, "c": null}}', (("a", (("b", MIXED),)), ("c", None)))],
            ),
            json_schema(
                {"type": "object", "additionalProperties": INTEGER},
                ("map", "string", "long"),
                [('{"a": 1}', (("a", 1),)), ("{}", ())],
            ),
            json_schema(
                {"type": "object", "additionalProperties": {}},
                ("map", "string", "string"),
                [(r'{"\u0049nfinity": 1e400, "Infinity": "Infinit\u0079"}', (("Infinity", JsonText("Infinity")),))],
                [r'{"Inf\u0069nity": 1e400}'],
            ),
            json_schema(
                {"type": "object", "additionalProperties": {"properties": {"y": TEXT}}},
                ("map", "string", ("struct", (("y", "string"),))),
                [(r'{"1e400": {"y": "\"Infinity\""}}', (("1e400", {"y": '"Infinity"'}),))],
                ['{"k": {"y": 1e400}}'],
            ),
            json_schema(
                {"type": "object", "additionalProperties": INTEGER, "patternProperties": {"^n_": {"type": "number"}}},
                ("map", "string", "string"),
                [('{"a": 1, "n_b": 2.5}', (("a", JsonText(1)), ("n_b", JsonText(2.5))))],
            ),
            deep(12, "map", '{"k": %s}'),
        ]
    ),
    "`array` of one item schema": Example(
        [
            # An integer with a fraction changes no numbers of other types in the items.
            json_schema(
                {"type": "array", "items": NUMBERS},
                ("list", COLUMN),
                [
                    (f"[{TEXT_OF_MIXED}, null, {{}}]", [MIXED, None, EMPTY]),
                    ('[{"y": -0.0}]', [EMPTY | {"y": -0.0}]),
                    ("[]", []),
                ],
                ['[{"i": 2.0, "o": [{"d": "1970-01-32"}]}]', '[{"i": 2.5}]', '[{"i": 2.0}, {"y": "a"}]'],
            ),
            json_schema(
                {"type": "array", "items": {"type": "array", "items": NUMBERS}},
                ("list", ("list", COLUMN)),
                [(f"[[{TEXT_OF_MIXED}], [], null]", [[MIXED], [], None])],
            ),
            json_schema({"type": "array", "items": INTEGER}, ("list", "long"), [("[1, 2]", [1, 2]), ("[]", [])]),
            json_schema(
                {"type": "array", "items": TEXT},
                ("list", "string"),
                [(r'["\"Infinity\""]', ['"Infinity"'])],
                ['["a", 1e400]', '["a", [-1e400]]'],
            ),
            deep(14, "list", "[%s]"),
        ]
    ),
    "`string`, `enum` or `const` of strings, any other `format`": Example(
        [
            json_schema(TEXT, "string", [('"ä"', "ä"), ('""', ""), ("5", "5")]),
            json_schema({"enum": ["A", "B"]}, "string", [('"A"', "A")]),
            json_schema({"const": "A"}, "string", [('"A"', "A")]),
            json_schema(TEXT | {"format": "email"}, "string", [('"a@b"', "a@b")]),
            # Values of other types, and text that equals the one that Spark writes for a number beyond a double.
            json_schema(
                TEXT,
                "string",
                [
                    ("12345678901234567890", "12345678901234567890"),
                    ("[1.5, null]", "[1.5,null]"),
                    (r'"\"Infinity\""', '"Infinity"'),
                    (r'"[\"-Infinity\"]", "y": 1e400', '["-Infinity"]'),
                    (r'{"Infinity": "Infinit\u0079", ", 1e400": 1e308}', '{"Infinity":"Infinity",", 1e400":1.0E308}'),
                ],
                ["1e400", "-1e999", "[-1e400]", '{"a": [1e999, "b"], "a": 1}', f"1{'0' * 310}.5"],
            ),
        ]
    ),
    "`format: date`": Example(
        [
            json_schema(
                TEXT | {"format": "date"},
                "date",
                [('"0001-01-01"', -719_162), ('"9999-12-31"', 2_932_896)],
                ['"2026-02-30"', '"10000-01-01"', '"0000-01-01"', '"1 May"', "1", r'"2026-01-31\n"'],
            )
        ]
    ),
    "`format: date-time`": Example(
        [
            json_schema(
                TEXT | {"format": "date-time"},
                "timestamptz",
                [
                    ('"1970-01-02T00:00:00.000001+00:00"', DAY + 1),
                    ('"1970-01-01T01:00:00+01:00"', 0),
                    ('"1970-01-01t00:00:00z"', 0),
                    ('"1970-01-01T18:00:00+18:00"', 0),
                    ('"0001-01-01T14:00:00+14:00"', -62_135_596_800_000_000),
                    ('"9999-12-31T11:59:59.999999-12:00"', 253_402_300_799_999_999),
                ],
                [
                    '"0001-01-01T00:30:00+14:00"',
                    '"9999-12-31T23:30:00.5-12:00"',
                    '"2016-12-31T23:59:60Z"',
                    '"1970-01-01T18:01:00+18:01"',
                    '"1970-01-01T00:00:00"',
                    '"1970-01-01T00:00:00.0000001Z"',
                    '"1970-01-01"',
                    r'"1970-01-01T00:00:00Z\n"',
                ],
            )
        ]
    ),
    "`integer`": Example(
        [
            json_schema(
                INTEGER,
                "long",
                [(str(-(2**63)), -(2**63)), (str(2**63 - 1), 2**63 - 1)]
                # Numbers with an exponent or a fraction of zero are integers (JSON Schema, from draft 6 on).
                + [("1.0", 1), ("-0.0", 0), ("1e2", 100), ("1.50E+1", 15), ("10e-1", 1), ("0e400", 0)]
                + [
                    ("9223372036854775807.0", 2**63 - 1),
                    ("9223372036854775807000e-3", 2**63 - 1),
                    ("-1e18", -(10**18)),
                ],
                [
                    str(2**63),
                    f"{2**63}.0",
                    "1e19",
                    "1e400",
                    "1.5",
                    "1e-1",
                    "1.00000000000000000000000001",
                    '"1"',
                    '"1.0"',
                ],
            ),
        ]
    ),
    "`number`": Example(
        [
            json_schema(
                {"type": "number"},
                "double",
                [("1", 1.0), ("0.1", 0.1), ("0.1000000000000000000001", 0.1)],
                ["1e400", '"1"'],
            ),
            integers_as_numbers(),
        ],
        says="`double`",
    ),
    "`boolean`": Example(
        [json_schema({"type": "boolean"}, "boolean", [("true", True), ("false", False)], ["1", '"true"'])]
    ),
    '`["null", T]`, `oneOf`/`anyOf` of null and T, or of T alone': Example(
        [
            json_schema({"type": ["null", "integer"]}, "long", [("1", 1), ("null", None)]),
            json_schema({"oneOf": [{"type": "null"}, INTEGER]}, "long", [("1", 1), ("null", None)]),
            json_schema({"oneOf": [{"type": "null", "title": "None"}, INTEGER]}, "long", [("1", 1), ("null", None)]),
            json_schema({"anyOf": [INTEGER]}, "long", [("1", 1)]),
            json_schema(
                {"properties": {"a": INTEGER}, "anyOf": [{"properties": {"b": TEXT}}]},
                ("struct", (("a", "long"), ("b", "string"))),
                [('{"a": 1, "b": "x"}', {"a": 1, "b": "x"})],
            ),
        ],
        says="the column of T",
    ),
    "`allOf`": Example(
        [
            json_objects(
                {"properties": {"a": INTEGER}, "allOf": [{"properties": {"b": TEXT}}, {"properties": {"c": TEXT}}]},
                {"a": "long", "b": "string", "c": "string"},
                [('{"a": 1, "b": "x", "c": "y"}', {"a": 1, "b": "x", "c": "y"})],
            )
        ],
        says="the properties of all",
    ),
    "`oneOf`/`anyOf` beside `properties`, `if`/`then`/`else`, `dependentSchemas`, `dependencies`": Example(
        [
            conditional(oneOf=[B, {"required": ["a"]}]),
            conditional(anyOf=[{"required": ["a"]}, B]),
            conditional(**{"if": {"required": ["a"]}, "then": B}),
            conditional(**{"if": {"required": ["a"]}, "else": B}),
            conditional(dependentSchemas={"a": B}),
            conditional(dependencies={"a": B}),
            json_objects(
                {"properties": {"a": TEXT}, "oneOf": [{"properties": {"b": TEXT}}, {"properties": {"b": INTEGER}}]},
                {"a": "string", "b": "string"},
                [('{"a": "k", "b": 1}', {"a": "k", "b": JsonText(1)})],
            ),
            conditional(**{"if": {"required": ["a"]}, "then": {}, "else": {"if": {}, "else": {"oneOf": [B, {}]}}}),
            json_objects(
                {
                    "properties": {"a": TEXT, "data": {"type": "object", "properties": {"b": INTEGER}}},
                    "oneOf": [
                        {"properties": {"data": {"properties": {"c": TEXT}}}},
                        {"properties": {"data": {"type": "object"}}},
                    ],
                },
                {"a": "string", "data": ("struct", (("b", "long"), ("c", "string")))},
                [('{"a": "k", "data": {"b": 1, "c": "x"}}', {"a": "k", "data": {"b": 1, "c": "x"}})],
            ),
            json_objects(
                {"oneOf": [{"properties": {"a": TEXT}}, {"anyOf": [B, {"properties": {"c": TEXT}}]}]},
                {"a": "string", "b": "long", "c": "string"},
                [('{"b": 1, "c": "x"}', {"a": None, "b": 1, "c": "x"})],
            ),
        ],
        says="their properties, too",
    ),
    "`oneOf`, `anyOf`, several `type`s, `{}`, tuples, objects without properties, mixed `enum`": Example(
        [
            json_schema(schema, "string", [(value, JsonText(json.loads(value)))])
            for schema, value in [
                ({"oneOf": [TEXT, INTEGER]}, "1"),
                ({"anyOf": [TEXT, INTEGER]}, "1"),
                ({"type": ["string", "integer"]}, "1"),
                ({}, '{"a": [1, null, true, "x"]}'),
                (True, "[]"),
                ({"type": "array", "items": [TEXT, INTEGER]}, '["a", 1]'),
                ({"type": "object"}, '{"a": 1}'),
                ({"enum": ["x", 1]}, "1"),
            ]
        ]
        + [
            json_schema(
                {},
                "string",
                # Text that is like a number beyond a double, and text that is like the one that Spark writes for it.
                [(text, JsonText(json.loads(text))) for text in (r'["\u0049nfinity", ", 1e400"]', '["-Infinity"]')],
                ["[1e400]", '{"a": ["Infinity", -1e999]}'],
            ),
            # Such text beside a number beyond a double that is in no column.
            json_objects(
                {"properties": {"Infinity": {}}},
                {"Infinity": "string"},
                [
                    (r'{"\u0049nfinity": "Inf\u0069nity", "y": 1e400}', {"Infinity": JsonText("Infinity")}),
                    (r'{"Infinity": ["-Infinit\u0079"], "y": -1e400}', {"Infinity": JsonText(["-Infinity"])}),
                ],
                [r'{"\u0049nfinity": 1e400}'],
            ),
        ]
        + [json_schema({}, "string", [('"1"', JsonText("1")), ('"x"', JsonText("x")), ('"[1]"', JsonText("[1]"))])]
    ),
    "`$ref` to `#/…`, `#anchor`, an `$id` or a registered reference": Example(
        [
            json_schema({"$ref": "#/$defs/n"}, "long", [("1", 1)], more={"$defs": {"n": INTEGER}}),
            json_schema({"$ref": "#n"}, "long", [("1", 1)], more={"$defs": {"n": INTEGER | {"$anchor": "n"}}}),
            json_schema(
                {"$ref": "https://a.example/b#/$defs/n"},
                "long",
                [("1", 1)],
                more={"$id": "https://a.example/b", "$defs": {"n": INTEGER}},
            ),
            json_objects(
                {"properties": {"x": {"$ref": "common.json#/$defs/n"}}},
                {"x": "long"},
                [('{"x": 1}', {"x": 1})],
                references=COMMON,
            ),
            json_schema(
                {"$ref": "n"},
                "long",
                [("1", 1)],
                more={"$defs": {"o": INTEGER | {"$id": "https://a.example/n"}}} | {"$id": "https://a.example/b"},
            ),
            json_schema({"$ref": "#"}, "", refused="refers to itself"),
            json_schema({"$ref": "other.json"}, "", refused="not registered"),
            json_schema({"$dynamicRef": "#n"}, "", refused="$dynamicRef"),
        ],
        says="the schema that it refers to; from draft 2019-09 on (or without `$schema`), also its sibling keywords",
    ),
    'a keyword of a wrong type, such as `"required": "a"`': Example(
        [
            json_schema(INTEGER, "", more={"required": "a"}, refused="'#/required': it must be a list of names"),
            json_schema({"type": {}}, "", refused="'#/properties/x/type': it must be one or several of array"),
        ]
    ),
    "`required`": Example(
        [
            json_schema(INTEGER, "long", [("1", 1)], ["null", '1, "x": null'], more={"required": ["x"]}),
            json_objects({"properties": {"x": INTEGER}, "required": ["x"]}, {"x": "long"}, [], ["{}"]),
            json_schema({"type": ["null", "integer"]}, "long", [("null", None)], more={"required": ["x"]}),
            json_schema({"type": ["string", "integer"]}, "string", [], ["null"], more={"required": ["x"]}),
            json_schema(
                {"type": "array", "items": INTEGER}, ("list", "long"), [("[1]", [1])], more={"required": ["x"]}
            ),
        ],
        says="",
    ),
    "`default`": Example(
        [json_objects({"properties": {"x": INTEGER | {"default": 7}}}, {"x": "long"}, [("{}", {"x": None})])], says=""
    ),
    "not registered (`value_format: json`)": Example(
        [plain("json", "string", [(b'{"a": 1}', '{"a": 1}')], [b"{", b"", b"{} x", b"1, 2", b'"a"], "k": ["b"'])],
        says="by `value_schema_file`, else one `string` column `value`",
    ),
}

PLAIN = {
    "`string`": Example([plain("string", "string", [("ä".encode(), "ä"), (b"", "")], [b"\xff"])]),
    "`int`, `long`": Example(
        [
            plain("int", "int", [(b"\x80\0\0\0", -(2**31)), (b"\0\0\0\1", 1)], [b"\0\0\1", b"\0\0\0\0\1"]),
            plain("long", "long", [(b"\x80" + bytes(7), -(2**63)), (bytes(7) + b"\1", 1)], [bytes(4)]),
        ]
    ),
    "`bytes`": Example([plain("bytes", "binary", [(b"\0\xff", b"\0\xff"), (b"", b"")])]),
}
