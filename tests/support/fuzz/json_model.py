"""JSON Schemas and messages, composed as the drafts 7 to 2020-12 allow."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import date, datetime, timedelta
from fractions import Fraction
from typing import Any, get_args

from hypothesis import strategies as st

from lakehouse.formats.schema import RegisteredSchema
from tests.support.fuzz.cells import JsonText, in_order
from tests.support.fuzz.json_spelling import Members, Spelled, Spelling, dumped, framed
from tests.support.fuzz.model import HOSTILE, Case, Record, Type, Value, refusal, rows_of, worst

TEXT = st.one_of(st.text(max_size=12), st.sampled_from(["Infinity", "-Infinity", ", 1e400", "NaN", "[1.0]"]))
NAMES = st.one_of(
    st.sampled_from(
        [
            *HOSTILE,
            "a.b",
            "a`b",
            "`",
            'q"q',
            "it's",
            "two words",
            "new\nline",
            "tab\t",
            "😀",
            "$ref",
            "a/b",
            "%41",
            "Infinity",
        ]
    ),
    st.text("abcXYZ_0. `'\"$/\\é😀[]{}()<>,;=", min_size=1, max_size=6),
)
ANYTHING = "`oneOf`, `anyOf`, several `type`s, `{}`, tuples, objects without properties, mixed `enum`"
NULLABLE = '`["null", T]`, `oneOf`/`anyOf` of null and T, or of T alone'
STRING = "`string`, `enum` or `const` of strings, any other `format`"
CONDITIONAL = "`oneOf`/`anyOf` beside `properties`, `if`/`then`/`else`, `dependentSchemas`, `dependencies`"
REFERENCE = "`$ref` to `#/…`, `#anchor`, an `$id` or a registered reference"


@dataclass
class Draft:
    """A schema under construction, with its definitions and, if it `has_files`, the documents that it refers to."""

    draw: Callable
    definitions: dict[str, Any] = field(default_factory=dict)
    files: dict[str, Any] = field(default_factory=dict)
    rows: set[str] = field(default_factory=set)
    has_files: bool = True

    def placed(self, schema: Any) -> Any:
        """Return the schema, or a reference to the definition that contains it."""
        match self.draw(st.sampled_from(["here"] * 6 + ["definition", "file", "id"])):
            case "definition":
                self.rows.add(REFERENCE)
                self.definitions[f"d{len(self.definitions)}"] = schema
                return {"$ref": f"#/$defs/d{len(self.definitions) - 1}"}
            case "file" if self.has_files and not _has_references(schema):
                self.rows.add(REFERENCE)
                self.files[name := f"f{len(self.files)}.json"] = {"$defs": {"x": schema}}
                return {"$ref": f"{name}#/$defs/x"}
            case "id" if isinstance(schema, dict) and "$ref" not in schema and not _has_references(schema):
                self.rows.add(REFERENCE)
                name = f"id{len(self.definitions)}"
                self.definitions[name] = {"$id": name, **schema}
                return {"$ref": name}
        return schema

    def document(self, schema: dict[str, Any]) -> dict[str, Any]:
        """Return the whole document with the schema."""
        dialects = ["http://json-schema.org/draft-07/schema#", "https://json-schema.org/draft/2020-12/schema"]
        definitions = {"$defs": self.definitions} if self.definitions else {}
        return {**schema, "$schema": self.draw(st.sampled_from(dialects)), **definitions}


def _has_references(schema: Any) -> bool:
    return '"$ref": "#/' in json.dumps(schema)


SCALAR = st.one_of(
    st.none(), st.booleans(), st.integers(-(2**53), 2**53), st.floats(allow_nan=False, allow_infinity=False), TEXT
)
ANY_JSON = st.recursive(
    SCALAR, lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(TEXT, inner, max_size=3)), max_leaves=5
)


def _spelled(texts: list[str], fate: str = "letter") -> st.SearchStrategy[Value]:
    return st.sampled_from(texts).map(lambda text: Value(Spelled(text), None, fate))


def _integers() -> st.SearchStrategy[Value]:
    inside = st.integers(-(2**63), 2**63 - 1).map(lambda n: Value(n, n))
    beyond = st.one_of(st.integers(2**63, 2**70), st.integers(-(2**70), -(2**63) - 1)).map(
        lambda n: Value(n, None, "letter")
    )
    others = _spelled(["1.5", '"1"', "true", "[1]", "{}", "1e-1"])
    spelled = st.from_regex(r"-?(0|[1-9][0-9]{0,20})(\.[0-9]{0,20}0)?([eE][+-]?[0-9]{1,2})?", fullmatch=True)
    return st.one_of(inside, inside, inside, beyond, others, spelled.map(_integer))


def _integer(text: str) -> Value:
    """Return a number, whose fraction of zero or exponent does not matter (JSON Schema, Validation, 6.1.1)."""
    number = Fraction(text)
    fits = number.denominator == 1 and -(2**63) <= number < 2**63
    return Value(Spelled(text), int(number) if fits else None, "row" if fits else "letter")


def _numbers() -> st.SearchStrategy[Value]:
    finite = st.floats(allow_nan=False, allow_infinity=False)
    digits = st.from_regex(r"-?[1-9][0-9]{0,30}(\.[0-9]{1,30})?([eE][+-]?[0-9]{1,2})?", fullmatch=True)
    return st.one_of(
        finite.map(lambda x: Value(x, x)),
        st.integers(-(2**80), 2**80).map(lambda n: Value(n, float(n))),
        digits.map(lambda text: Value(Spelled(text), float(text))),
        _spelled(["1e400", "-1e999", '"1"', "true", "NaN", "Infinity", "+1", "01", ".5", "1."]),
    )


def _dates() -> st.SearchStrategy[Value]:
    valid = st.dates().map(lambda day: Value(day.isoformat(), day.toordinal() - date(1970, 1, 1).toordinal()))
    invalid = [
        "2026-02-30",
        "2026-1-1",
        "",
        "x",
        "0000-01-01",
        "10000-01-01",
        "2026-01-01T00:00:00Z",
        "2026-13-01",
        " 2026-01-01",
    ]
    return st.one_of(valid, valid, st.sampled_from(invalid).map(lambda text: Value(text, None, "letter")))


@st.composite
def _moments(draw) -> Value:
    invalid = ["2026-01-01", "2026-01-01T00:00:00", "2026-02-30T00:00:00Z", "2026-01-01T25:00:00Z", "", "now"]
    invalid += [
        "2026-01-01T00:00:00.0000001Z",
        "2026-01-01T00:00Z",
        "2026-01-01T00:00:00+25:00",
        "2026-01-01 00:00:00 UTC",
    ]
    if draw(st.integers(0, 4)) == 0:
        return Value(draw(st.sampled_from(invalid)), None, "letter")
    local = draw(st.datetimes())
    offset = draw(st.one_of(st.just(0), st.integers(-1439, 1439)))
    zone = (
        f"{'-' if offset < 0 else '+'}{abs(offset) // 60:02}:{abs(offset) % 60:02}"
        if offset
        else draw(st.sampled_from("Zz"))
    )
    fraction = f".{local.microsecond:06}" + draw(st.sampled_from(["", "000"])) if local.microsecond else ""
    text = f"{local:%Y}".zfill(4) + f"{local:-%m-%d}{draw(st.sampled_from('Tt'))}{local:%H:%M:%S}{fraction}{zone}"
    micros = (local - datetime(1970, 1, 1)) // timedelta(microseconds=1) - offset * 60_000_000
    # No time zone is 18 hours from UTC, and readers support only the years 1 to 9999 in UTC.
    inside = -62_135_596_800_000_000 <= micros < 253_402_300_800_000_000 and abs(offset) <= 18 * 60
    return Value(text, micros, "row" if inside else "either")


def _texts() -> st.SearchStrategy[Value]:
    broken = ['"\\ud800"', '"x\\udfffy"', '"a\\udc00\\ud800"', '"\t"', '"\\x41"', "'a'"]
    others = ANY_JSON.filter(lambda value: not isinstance(value, str | None))
    text = TEXT.map(lambda text: Value(text, text))
    return st.one_of(text, text, text, text, _json_values(others), _spelled(broken), _infinite())


def _json_values(values: st.SearchStrategy[Any]) -> st.SearchStrategy[Value]:
    return values.map(lambda value: Value(value, None if value is None else JsonText(value)))


def _infinite() -> st.SearchStrategy[Value]:
    """Return values of any type with a number beyond a double."""
    return st.sampled_from(
        [Spelled("1e400"), ["Infinity", Spelled("-1e999")], {"Infinity": Spelled(f"1{'0' * 310}.5")}]
    ).map(lambda value: Value(value, None, "letter"))


def _scalars() -> list[Type]:
    strings = [{"type": "string"}, {"type": "string", "format": "email"}, {"type": "string", "maxLength": 3}]
    enums: list[Any] = [{"enum": ["A", "B"]}, {"type": "string", "enum": ["A", "B"]}, {"const": "A"}]
    anything: list[Any] = [
        True,
        {},
        {"type": ["string", "integer"]},
        {"oneOf": [{"type": "string"}, {"type": "integer"}]},
    ]
    anything += [
        {"type": "object"},
        {"enum": ["x", 1]},
        {"type": "array", "items": [{"type": "string"}]},
        {"type": "array"},
    ]
    anything += [
        {"anyOf": [{"type": "boolean"}, {"type": "string"}, {"type": "null"}]},
        {"prefixItems": [{}], "type": "array"},
    ]
    return [
        *(Type(STRING, schema, "string", _texts()) for schema in strings),
        *(Type(STRING, schema, "string", st.just(Value("A", "A"))) for schema in enums),
        Type("`format: date`", {"type": "string", "format": "date"}, "date", _dates()),
        *[Type("`format: date-time`", {"type": "string", "format": "date-time"}, "timestamptz", _moments())] * 2,
        *[Type("`integer`", {"type": "integer"}, "long", _integers())] * 2,
        *[Type("`number`", {"type": "number"}, "double", _numbers())] * 2,
        Type("`boolean`", {"type": "boolean"}, "boolean", st.booleans().map(lambda b: Value(b, b))),
        *(
            Type(
                ANYTHING,
                schema,
                "string",
                st.one_of(*[_json_values(ANY_JSON.filter(lambda v: v is not None))] * 7, _infinite()),
            )
            for schema in anything
        ),
    ]


SCALARS = _scalars()


@st.composite
def types(draw, draft: Draft, depth: int, optional: bool = False) -> Type:
    """Generate any type; null is a value of the nullable ones.

    Args:
        draw: Hypothesis' function.
        draft: Schema that will contain the type.
        depth: Maximum number of nested lists, maps and objects.
        optional: Whether the type is in a conditional branch, where no property is required at any level.
    """
    kind = draw(st.sampled_from(["scalar"] * 4 + ["null"] + ["array", "map", "object"] * (depth > 0)))
    match kind:
        case "null":
            inner = draw(types(draft, depth, optional))
            schema = draw(st.sampled_from(_nullable(inner.schema)))
            values = st.one_of(st.just(Value(None, None)), inner.values)
            return Type(NULLABLE, schema, inner.column, values, (inner,))
        case "array":
            items = draw(types(draft, depth - 1, optional))
            values = st.lists(items.values, max_size=3).map(
                lambda items: Value([v.sent for v in items], [v.cell for v in items], worst(items))
            )
            schema = {"type": "array", "items": draft.placed(items.schema)}
            if items.schema is True:
                return Type(ANYTHING, {"type": "array"}, "string", _json_values(st.lists(ANY_JSON, max_size=3)))
            return Type("`array` of one item schema", schema, ("list", items.column), values, (items,))
        case "map":
            items = draw(types(draft, depth - 1, optional))
            if items.schema is True:
                return draw(types(draft, depth, optional))
            entries = st.lists(st.tuples(TEXT, items.values), max_size=3)
            schema = {"type": "object", "additionalProperties": draft.placed(items.schema)}
            row = "object with `additionalProperties: <schema>` and no `properties`"
            return Type(row, schema, ("map", "string", items.column), entries.map(_map), (items,))
        case "object":
            return draw(objects(draft, depth - 1, draw(st.integers(1, 4)), optional))
    return draw(st.sampled_from(SCALARS))


def _nullable(schema: Any) -> list[Any]:
    nulls: list[Any] = [{"type": "null"}, {"type": "null", "title": "None"}, {"const": None}]
    orders = [branches for null in nulls for branches in ([schema, null], [null, schema])]
    schemas = [{choice: branches} for choice in ("oneOf", "anyOf") for branches in orders]
    if (
        isinstance(schema, dict)
        and isinstance(schema.get("type"), str)
        and "enum" not in schema
        and "$ref" not in schema
    ):
        schemas += [schema | {"type": ["null", schema["type"]]}, schema | {"type": [schema["type"], "null"]}]
    return schemas


def _map(entries: list[tuple[str, Value]]) -> Value:
    """Return a map with the last value of each repeated name, as most readers do (RFC 8259, 4)."""
    last = dict(entries)
    fate = worst([value for _, value in entries])
    fate = "either" if len(last) < len(entries) and fate == "row" else fate
    fate = "either" if fate == "letter" and worst(list(last.values())) != "letter" else fate
    sent = Members(tuple((key, value.sent) for key, value in entries))
    return Value(sent, in_order([(key, value.cell) for key, value in last.items()]), fate)


@st.composite
def objects(draw, draft: Draft, depth: int, wanted: int, optional: bool = False) -> Type:
    """Generate objects whose properties are in one schema, or in several that it is composed of."""
    names = (
        [f"c{i}" for i in range(wanted)]
        if wanted > 10
        else draw(st.lists(NAMES, min_size=wanted, max_size=wanted, unique_by=str.casefold))
    )
    composition = draw(st.sampled_from(["plain", "plain", "allOf", "conditional", "single"]))
    first_count = draw(st.integers(1, wanted)) if composition != "plain" else wanted
    first, others = names[:first_count], names[first_count:]
    conditional = others if composition == "conditional" else []
    fields = {name: draw(types(draft, depth, optional or name in conditional)) for name in names}
    able = first if composition == "conditional" else names
    required = draw(st.lists(st.sampled_from(able), unique=True, max_size=wanted)) if draw(st.booleans()) else []
    schema: dict[str, Any] = {"properties": {name: draft.placed(fields[name].schema) for name in first}}
    if draw(st.booleans()):
        schema = {"type": "object"} | schema
    if required:
        schema["required"] = required
        draft.rows.add("`required`")
    if others:
        more: Any = {"properties": {name: fields[name].schema for name in others}}
        if composition == "allOf":
            draft.rows.add("`allOf`")
            schema["allOf"] = [draft.placed(more)]
        elif composition == "single":
            draft.rows.add(NULLABLE)
            schema[draw(st.sampled_from(["oneOf", "anyOf"]))] = [more]
        else:
            draft.rows.add(CONDITIONAL)
            conditions = [
                {"then": more, "if": {}},
                {"if": {}, "else": more},
                {"anyOf": [more, {"required": first[:1]}]},
            ]
            conditions += [{"dependentSchemas": {first[0]: more}}, {"dependencies": {first[0]: more}}]
            schema |= draw(st.sampled_from(conditions))
    column = ("struct", tuple((name, type_.column) for name, type_ in fields.items()))
    values = _object_values(fields, set() if optional else set(required))
    return Type("object with `properties`", schema, column, values, tuple(fields.values()))


def allows_null(type_: Type) -> bool:
    """Return whether the schema allows null."""
    return type_.row == NULLABLE or (
        type_.row == ANYTHING and (type_.schema in (True, {}) or "null" in json.dumps(type_.schema))
    )


@st.composite
def _object_values(draw, fields: dict[str, Type], required: set[str]) -> Value:
    members: list[tuple[str, Any]] = []
    cells: dict[str, Any] = {}
    fates: list[Value] = []
    for name, type_ in fields.items():
        cells[name] = None
        match draw(st.sampled_from(["present"] * 8 + ["missing", "null"])):
            case "present":
                value = draw(type_.values)
                members.append((name, value.sent))
                cells[name] = value.cell
                fates.append(value)
                if value.sent is None and name in required and not allows_null(type_):
                    fates.append(Value(None, None, "letter"))
            case "null":
                members.append((name, None))
                if name in required and not allows_null(type_):
                    fates.append(Value(None, None, "letter"))
                elif not allows_null(type_):
                    fates.append(Value(None, None, "either"))
            case "missing" if name in required:
                fates.append(Value(None, None, "either" if allows_null(type_) else "letter"))
    if draw(st.integers(0, 5)) == 0:
        members.append(("not named " + draw(TEXT), draw(st.one_of(ANY_JSON, st.just(Spelled("1e400"))))))
    return Value(Members(tuple(draw(st.permutations(members)))), cells, worst(fates))


@st.composite
def cases(draw) -> Case:
    """Generate a schema with one version, and records."""
    draft = Draft(draw)
    wide = draw(st.integers(0, 19)) == 0
    top = draw(objects(draft, 0 if wide else 3, 45 if wide else draw(st.integers(1, 5))))
    schema = draft.document(top.schema)
    records = []
    for value in (draw(top.values) for _ in range(draw(st.integers(1, 6)))):
        text = dumped(value.sent, draw(st.sampled_from(get_args(Spelling)))).encode()
        space = draw(st.sampled_from(["", "", " ", "\n\t"])).encode()
        records.append(Record(framed(space + text + space), value.cell, value.fate))
    if draw(st.booleans()):
        ends = draw(st.sampled_from([b",", b"x", b"{}", b"}", b"]", b"\0"]))
        whole = records[0].value.rstrip()
        records += [Record(whole + ends, {}, "letter"), Record(whole[:-1], {}, "letter")]
    references = tuple((name, json.dumps(text)) for name, text in draft.files.items())
    record = draw(st.sampled_from(["", "Top"]))
    version = RegisteredSchema(1, json.dumps(schema | ({"title": record} if record else {})), "JSON", references)
    rows = rows_of(top) | draft.rows
    return Case("json_schema", [version], dict(top.column[1]), records, refusal(top), rows, record)
