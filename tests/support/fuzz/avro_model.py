"""Avro schemas and records (Apache Avro 1.12 specification), encoded by fastavro."""

from __future__ import annotations

import io
import json
import struct
from collections.abc import Callable
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any

import fastavro
from hypothesis import strategies as st

from lakehouse.formats.schema import RegisteredSchema
from tests.support.fuzz.cells import in_order
from tests.support.fuzz.model import HOSTILE, Case, Fate, Record, Type, Value, refusal, rows_of, worst

NOT_VALID = (
    "a logical type that is not valid, such as a `decimal` without precision, of more scale than precision, or of more "
    "digits than its `fixed` has room for"
)
INT, LONG = (st.integers(-(2**bits), 2**bits - 1) for bits in (31, 63))
BEYOND_INT = st.one_of(st.integers(2**31, 2**34), st.integers(-(2**34), -(2**31) - 1))
"""Numbers that serializers write into an int without an error."""
NAMES = st.one_of(
    st.sampled_from([name for name in HOSTILE if name.isascii()]),
    st.from_regex(r"[A-Za-z_][A-Za-z0-9_]{0,6}", fullmatch=True),
)
FIRST_DAY, LAST_DAY = -719_162, 2_932_896
DAY = 86_400_000_000
TIMES = st.integers(FIRST_DAY * DAY, (LAST_DAY + 1) * DAY - 1)
"""Microseconds of years 1 to 9999."""


@dataclass
class Draft:
    """A schema under construction, with its names and named types."""

    draw: Callable
    names: set[str] = field(default_factory=set)
    defined: list[Type] = field(default_factory=list)

    def name(self) -> str:
        """Return an unused type name."""
        name = self.draw(NAMES)
        while name.lower() in self.names or name in (
            "null",
            "boolean",
            "int",
            "long",
            "float",
            "double",
            "bytes",
            "string",
        ):
            name += "_"
        self.names.add(name.lower())
        return name


def same(values: st.SearchStrategy[Any]) -> st.SearchStrategy[Value]:
    """Generate values that equal their cells."""
    return values.map(lambda value: Value(value, value))


def ints(values: st.SearchStrategy[Value]) -> st.SearchStrategy[Value]:
    """Generate values of an int, and sometimes numbers beyond its range."""
    return st.one_of(values, values, values, BEYOND_INT.map(lambda number: Value(number, number, "letter")))


def scalars() -> dict[str, Type]:
    """Return the types without parts, by name."""

    def logical(base: str, name: str, column: str, values: st.SearchStrategy[Value], row: str = "") -> Type:
        return Type(row or f"`{name}`", {"type": base, "logicalType": name}, column, values)

    def times(factor: int) -> st.SearchStrategy[Value]:
        inside = TIMES.map(lambda micros: Value(micros // factor, micros // factor * factor))
        # Other values are stored if they fit 64 bits of microseconds.
        beyond = LONG.map(lambda count: Value(count, count * factor, fate_of(count * factor)))
        return st.one_of(inside, inside, beyond)

    moments = "`timestamp-millis`, `timestamp-micros`"
    local = "`local-timestamp-millis`, `local-timestamp-micros`"
    dates = st.integers(FIRST_DAY, LAST_DAY).map(lambda day: Value(day, day))
    far_dates = INT.map(lambda day: Value(day, day, "row" if FIRST_DAY <= day <= LAST_DAY else "either"))
    return {
        "boolean": Type("`boolean`", "boolean", "boolean", same(st.booleans())),
        "int": Type("`int`", "int", "int", ints(same(INT))),
        "long": Type("`long`", "long", "long", same(LONG)),
        "float": Type("`float`", "float", "float", same(st.floats(width=32))),
        "double": Type("`double`", "double", "double", same(st.floats())),
        "bytes": Type("`bytes`", "bytes", "binary", same(st.binary(max_size=20))),
        "string": Type("`string`", "string", "string", same(st.text(max_size=20))),
        "date": logical("int", "date", "date", ints(st.one_of(dates, far_dates))),
        "time-millis": logical("int", "time-millis", "int", ints(same(INT))),
        "time-micros": logical("long", "time-micros", "long", same(LONG)),
        "timestamp-millis": logical("long", "timestamp-millis", "timestamptz", times(1000), moments),
        "timestamp-micros": logical("long", "timestamp-micros", "timestamptz", times(1), moments),
        "timestamp-nanos": logical("long", "timestamp-nanos", "long", same(LONG)),
        "local-timestamp-millis": logical("long", "local-timestamp-millis", "timestamp", times(1000), local),
        "local-timestamp-micros": logical("long", "local-timestamp-micros", "timestamp", times(1), local),
        "local-timestamp-nanos": logical("long", "local-timestamp-nanos", "long", same(LONG)),
        "uuid": logical("string", "uuid", "string", same(st.uuids().map(str)), "`uuid` on `string`"),
    }


def fate_of(micros: int) -> Fate:
    """Return the expected result of a timestamp in microseconds."""
    if FIRST_DAY * DAY <= micros < (LAST_DAY + 1) * DAY:
        return "row"
    return "either" if -(2**63) <= micros < 2**63 else "letter"


SCALARS = scalars()


@st.composite
def decimals(draw, draft: Draft) -> Type:
    """Generate decimals, including values with more digits than the type allows."""
    fixed = draw(st.booleans())
    precision = draw(st.integers(1, 40 if draw(st.integers(0, 9)) == 0 else 38))
    scale = draw(st.integers(0, precision))
    # The smallest `fixed` for this number of digits (Avro specification, Decimal).
    size = next(n for n in range(1, 20) if (2 ** (8 * n - 1) - 1) >= 10**precision - 1) + draw(st.integers(0, 2))
    most = 10**precision - 1

    def value(unscaled: int) -> Value:
        length = size if fixed else max(1, (unscaled.bit_length() + 8) // 8)
        fate = "row" if abs(unscaled) <= most else "letter"
        sent = unscaled.to_bytes(length, "big", signed=True)
        return Value(sent, Decimal((unscaled < 0, tuple(map(int, str(abs(unscaled)))), -scale)), fate)

    bits = 8 * size - 1
    values = st.one_of(st.integers(-most, most), st.integers(-(2**bits), 2**bits - 1)).map(value)
    about: dict[str, Any] = {"logicalType": "decimal", "precision": precision, "scale": scale}
    if draw(st.integers(0, 4)) == 0:
        about = draw(
            st.sampled_from([{"logicalType": "decimal"}, about | {"scale": precision + 1}, about | {"scale": -1}])
        )
        schema = {"type": "bytes"} | about
        return Type(NOT_VALID, schema, "binary", same(st.binary(max_size=5)))
    schema = {"type": "fixed", "name": draft.name(), "size": size} | about if fixed else {"type": "bytes"} | about
    refused = "the 38 digits of Iceberg" if precision > 38 else ""
    type_ = Type("`decimal` on `bytes` or `fixed`", schema, f"decimal({precision}, {scale})", values, (), refused)
    if fixed:
        draft.defined.append(_reference(type_, schema["name"]))
    return type_


def _reference(type_: Type, name: str) -> Type:
    """Return a reference to a defined type."""
    return Type(type_.row, name, type_.column, type_.values, type_.parts, type_.refused)


@st.composite
def named(draw, draft: Draft) -> Type:
    """Generate enums and fixed types."""
    name = draft.name()
    if draw(st.booleans()):
        symbols = draw(st.lists(NAMES, min_size=1, max_size=4, unique=True))
        schema: Any = {"type": "enum", "name": name, "symbols": symbols}
        type_ = Type("`enum`", schema, "string", same(st.sampled_from(symbols)))
    else:
        size, logical = draw(st.sampled_from([(1, ""), (3, ""), (16, "uuid"), (12, "duration")]))
        schema = {"type": "fixed", "name": name, "size": size} | ({"logicalType": logical} if logical else {})
        row = {"duration": "`duration` (`fixed` of 12)", "uuid": "`uuid` on `fixed` of 16"}.get(logical, "`fixed`")
        type_ = Type(row, schema, "binary", same(st.binary(min_size=size, max_size=size)))
    draft.defined.append(_reference(type_, name))
    return type_


@st.composite
def types(draw, draft: Draft, depth: int) -> Type:
    """Generate any type except a union."""
    kinds = ["scalar"] * 4 + ["decimal", "named", "named", "again"] + ["array", "map", "record"] * (2 * (depth > 0))
    match draw(st.sampled_from(kinds)):
        case "decimal":
            return draw(decimals(draft))
        case "named":
            return draw(named(draft))
        case "again" if draft.defined:
            return draw(st.sampled_from(draft.defined))
        case "array":
            items = draw(anything(draft, depth - 1))
            values = st.lists(items.values, max_size=3).map(_list)
            return Type("`array`", {"type": "array", "items": items.schema}, ("list", items.column), values, (items,))
        case "map":
            items = draw(anything(draft, depth - 1))
            values = st.dictionaries(st.text(max_size=5), items.values, max_size=3).map(_map)
            schema = {"type": "map", "values": items.schema}
            return Type("`map`", schema, ("map", "string", items.column), values, (items,))
        case "record":
            return draw(records(draft, depth - 1, draw(st.integers(1, 4))))
    return SCALARS[draw(st.sampled_from(sorted(SCALARS)))]


def branch(type_: Type, value: Value) -> Value:
    """Return a value of a union branch."""
    return Value((kind_of(type_.schema), value.sent), value.cell, value.fate)


def _list(values: list[Value]) -> Value:
    return Value([value.sent for value in values], [value.cell for value in values], worst(values))


def _map(values: dict[str, Value]) -> Value:
    sent = {key: value.sent for key, value in values.items()}
    cell = in_order([(key, value.cell) for key, value in values.items()])
    return Value(sent, cell, worst(list(values.values())))


@st.composite
def records(draw, draft: Draft, depth: int, count: int) -> Type:
    """Generate records with fields; the fields of the outermost record are the columns."""
    name = draft.name()
    names = draw(_names(count))
    fields = {field: draw(anything(draft, depth)) for field in names}
    schema = {"type": "record", "name": name, "fields": [{"name": f, "type": t.schema} for f, t in fields.items()]}
    type_ = _record_type(schema, fields)
    draft.defined.append(_reference(type_, name))
    return type_


def _names(count: int) -> st.SearchStrategy[list[str]]:
    if count > 10:
        return st.just([f"c{i}" for i in range(count)])
    return st.lists(NAMES, min_size=count, max_size=count, unique_by=str.lower)


def _record_type(schema: Any, fields: dict[str, Type]) -> Type:
    values = st.fixed_dictionaries({name: type_.values for name, type_ in fields.items()}).map(_struct)
    column = ("struct", tuple((name, type_.column) for name, type_ in fields.items()))
    return Type("`record`", schema, column, values, tuple(fields.values()))


def _struct(values: dict[str, Value]) -> Value:
    sent = {name: value.sent for name, value in values.items()}
    return Value(sent, {name: value.cell for name, value in values.items()}, worst(list(values.values())))


@st.composite
def anything(draw, draft: Draft, depth: int) -> Type:
    """Generate any type, including unions."""
    kind = draw(st.sampled_from(["one", "one", "one", "null", "numbers", "union"]))
    if kind == "null":
        inner = draw(types(draft, depth))
        branches = draw(st.permutations([inner.schema, "null"]))
        values = st.one_of(st.just(Value(None, None)), inner.values.map(lambda value: branch(inner, value)))
        return Type('`["null", T]`, `[T, "null"]`', branches, inner.column, values, (inner,))
    if kind == "numbers":
        return draw(_numbers())
    if kind == "union":
        return draw(_unions(draft, depth))
    return draw(types(draft, depth))


@st.composite
def _numbers(draw) -> Type:
    pair = draw(st.sampled_from([("int", "long"), ("float", "double")]))
    narrow, wide = (SCALARS[name] for name in pair)

    def value(type_: Type) -> st.SearchStrategy[Value]:
        return type_.values.map(lambda value: Value((type_.schema, value.sent), value.cell, value.fate))

    branches: list[Any] = list(draw(st.permutations(pair)))
    values = [value(narrow), value(wide)]
    if draw(st.booleans()):
        branches.insert(draw(st.integers(0, 2)), "null")
        values.append(st.just(Value(None, None)))
    return Type(f'`["{pair[0]}", "{pair[1]}"]`', branches, wide.column, st.one_of(values))


@st.composite
def _unions(draw, draft: Draft, depth: int) -> Type:
    """Generate unions that become a struct: at least two types, without two unnamed ones of the same kind."""
    branches: list[Type] = []
    kinds: set[str] = set()
    before = list(draft.defined)
    for _ in range(draw(st.integers(2, 4))):
        known = list(draft.defined)
        type_ = draw(types(draft, depth))
        kind = kind_of(type_.schema)
        if kind in kinds:
            # The schema does not contain the type, nor the types that it defines.
            draft.defined[:] = known
            continue
        kinds.add(kind)
        branches.append(type_)
    plain = {type_.schema for type_ in branches if isinstance(type_.schema, str)}
    if len(branches) < 2 or (len(plain) == len(branches) and plain in ({"int", "long"}, {"float", "double"})):
        branches = [SCALARS["int"], SCALARS["string"]]
        draft.defined[:] = before
    names = [f"member{i}" for i in range(len(branches))]
    values = [
        type_.values.map(lambda value, type_=type_, name=name: member(type_, value, name, names))
        for name, type_ in zip(names, branches, strict=True)
    ]
    schema: list[Any] = [type_.schema for type_ in branches]
    if draw(st.booleans()):
        schema.insert(draw(st.integers(0, len(schema))), "null")
        values.append(st.just(Value(None, None)))
    column = ("struct", tuple((name, type_.column) for name, type_ in zip(names, branches, strict=True)))
    return Type("any other union", schema, column, st.one_of(values), tuple(branches))


def member(type_: Type, value: Value, name: str, names: list[str]) -> Value:
    """Return a value of a union branch, with its cell in the member of a name."""
    return Value((kind_of(type_.schema), value.sent), dict.fromkeys(names) | {name: value.cell}, value.fate)


def kind_of(schema: Any) -> str:
    """Return the name or type that identifies a branch of a union."""
    if isinstance(schema, str):
        return schema
    return schema["name"] if "name" in schema else schema["type"]


def without_logical_types(schema: Any) -> Any:
    """Return the schema without logical types, by which records are encoded."""
    if isinstance(schema, list):
        return [without_logical_types(branch) for branch in schema]
    if not isinstance(schema, dict):
        return schema
    kept = {key: value for key, value in schema.items() if key not in ("logicalType", "precision", "scale")}
    for key in ("type", "items", "values"):
        if key in kept:
            kept[key] = without_logical_types(kept[key])
    if "fields" in kept:
        kept["fields"] = [{**field, "type": without_logical_types(field["type"])} for field in kept["fields"]]
    return kept


def encoded(schema_id: int, schema: Any, sent: dict[str, Any]) -> bytes:
    """Return a record in the Confluent wire format."""
    body = io.BytesIO()
    fastavro.schemaless_writer(body, fastavro.parse_schema(without_logical_types(schema)), sent)
    return struct.pack(">bI", 0, schema_id) + body.getvalue()


@st.composite
def cases(draw) -> Case:
    """Generate a schema with one version, and records."""
    draft = Draft(draw)
    wide = draw(st.integers(0, 19)) == 0
    top = draw(records(draft, 0 if wide else 3, 45 if wide else draw(st.integers(1, 5))))
    sent = [draw(top.values) for _ in range(draw(st.integers(1, 3 if wide else 6)))]
    records_ = [Record(encoded(1, top.schema, value.sent), value.cell, value.fate) for value in sent]
    if draw(st.booleans()):
        whole = records_[0].value
        records_ += [Record(whole + b"\0", {}, "letter"), Record(whole[:-1], {}, "letter")]
    rows, text, references = rows_of(top), json.dumps(top.schema), ()
    if draw(st.booleans()) and (definition := first_definition(top.schema)):
        # The registry has the named type under another subject.
        name = json.dumps(definition["name"])
        text, references = text.replace(json.dumps(definition), name, 1), ((name.strip('"'), json.dumps(definition)),)
        rows.add("a named type of another subject")
    record = draw(st.sampled_from(["", top.schema["name"]]))
    versions = [RegisteredSchema(1, text, references=references)]
    return Case("avro", versions, dict(top.column[1]), records_, refusal(top), rows, record)


def first_definition(schema: Any) -> dict[str, Any] | None:
    """Return the definition of the first enum or fixed in a schema."""
    if isinstance(schema, dict) and schema.get("type") in ("enum", "fixed"):
        return schema
    inner = schema if isinstance(schema, list) else schema.values() if isinstance(schema, dict) else ()
    return next(filter(None, map(first_definition, inner)), None)
