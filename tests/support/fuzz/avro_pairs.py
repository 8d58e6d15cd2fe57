"""Two versions of an Avro schema, and records of both (docs/types.md, Several versions in one batch)."""

from __future__ import annotations

import json
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

from hypothesis import strategies as st

from lakehouse.formats.schema import RegisteredSchema
from tests.support.fuzz.avro_model import NAMES, SCALARS, Draft, anything, branch, encoded, kind_of, named, types
from tests.support.fuzz.cells import Column
from tests.support.fuzz.model import METADATA_NAMES, Case, Pair, Record, Type, Value, refusal_of, rows_of, worst

EXACT = {("int", "long"), ("int", "double"), ("float", "double")}
"""Lossless promotions."""
SAME = {
    frozenset({"timestamp-millis", "timestamp-micros"}),
    frozenset({"local-timestamp-millis", "local-timestamp-micros"}),
}
"""Logical types with the same column type."""
PLAIN_NUMBERS = {
    "int": {"int", "time-millis"},
    "long": {"long", "time-micros", "timestamp-nanos", "local-timestamp-nanos"},
}


@dataclass(frozen=True)
class Step:
    """The change of one field.

    Attributes:
        name: Column name, if both versions are registered.
        column: Column type.
        before: Field of the older version, or None.
        after: Field of the newer version, or None.
        old: Values in records of the older version, or cells if the version lacks the field.
        new: Values or cells of the newer version.
        parts: Types of the field.
        fits: Whether both versions must be accepted.
        rows: Rows of docs/types.md for the change, besides those of its types.
    """

    name: str
    column: Column
    before: dict[str, Any] | None
    after: dict[str, Any] | None
    old: st.SearchStrategy[Value]
    new: st.SearchStrategy[Value]
    parts: tuple[Type, ...]
    fits: bool = True
    rows: tuple[str, ...] = ()


KINDS = ["keep", "drop", "add", "default", "rename", "case", "nullable", "enum", "decimal", *["retype", "union"] * 2]
RENAMED = "`aliases`, a name that changes by upper and lower case only"
DEFAULTS = {"int": 7, "long": -7, "string": "ä", "boolean": True, "double": 0.5}


@st.composite
def steps(draw, draft: Draft, name: str) -> Step:
    """Generate a field and its change."""
    kind = draw(st.sampled_from(KINDS))
    absent = st.just(Value(None, None))
    if kind == "retype":
        return draw(_retyped(name))
    if kind == "enum":
        return draw(_enums(draft, name))
    if kind == "union":
        return draw(_unions(draft, name))
    if kind == "decimal":
        return draw(_decimals(name))
    if kind == "default":
        type_ = SCALARS[draw(st.sampled_from(sorted(DEFAULTS)))]
    else:
        type_ = draw(types(draft, 1) if kind == "nullable" else anything(draft, 1))
    plain = {"name": name, "type": type_.schema}
    match kind:
        case "drop":
            return Step(name, type_.column, plain, None, type_.values, absent, (type_,))
        case "default":
            default = DEFAULTS[type_.schema]
            missing = st.just(Value(None, default))
            added = plain | {"default": default}
            return Step(name, type_.column, None, added, missing, type_.values, (type_,), rows=("`default`",))
        case "add":
            return Step(name, type_.column, None, plain, absent, type_.values, (type_,))
        case "rename":
            renamed = {"name": draft.name() + "_renamed", "type": type_.schema, "aliases": [name]}
            values = type_.values
            return Step(renamed["name"], type_.column, plain, renamed, values, values, (type_,), rows=(RENAMED,))
        case "case":
            other = plain | {"name": name.swapcase()}
            return Step(name.swapcase(), type_.column, plain, other, type_.values, type_.values, (type_,), False)
        case "nullable":
            optional = {"name": name, "type": ["null", type_.schema]}
            values = st.one_of(absent, type_.values.map(lambda value: branch(type_, value)))
            if draw(st.booleans()):
                return Step(name, type_.column, plain, optional, type_.values, values, (type_,))
            gone = values.map(
                lambda value: Value(value.sent, value.cell, "either" if value.sent is None else value.fate)
            )
            return Step(name, type_.column, optional, plain, gone, type_.values, (type_,))
    return Step(name, type_.column, plain, plain, type_.values, type_.values, (type_,))


@st.composite
def _retyped(draw, name: str) -> Step:
    """Generate a field that changes to another scalar type."""
    before, after = (draw(st.sampled_from(sorted(SCALARS))) for _ in range(2))
    if draw(st.booleans()):
        before, after = draw(
            st.sampled_from([*sorted(EXACT), ("long", "double"), ("timestamp-millis", "timestamp-micros")])
        )
    one, other = SCALARS[before], SCALARS[after]

    def converted(value: Value) -> Value:
        if before == after:
            return value
        if (before, after) in EXACT:
            return Value(value.sent, float(value.cell) if after == "double" else value.cell, value.fate)
        if frozenset({before, after}) in SAME or any({before, after} <= group for group in PLAIN_NUMBERS.values()):
            return Value(value.sent, value.cell, "either" if value.fate == "row" else value.fate)
        if {before, after} <= {"string", "uuid"}:
            return Value(value.sent, value.cell, "either" if after == "uuid" else "row")
        if (before, after) in (("string", "bytes"), ("uuid", "bytes")):
            return Value(value.sent, value.cell.encode(), "either")
        if before == "bytes" and after in ("string", "uuid"):
            return Value(
                value.sent, value.cell.decode(errors="replace"), "either" if _is_text(value.cell) else "letter"
            )
        return Value(value.sent, None, "letter")

    fields = ({"name": name, "type": type_.schema} for type_ in (one, other))
    fits = before == after or (before, after) in EXACT
    return Step(name, other.column, *fields, one.values.map(converted), other.values, (one, other), fits)


def _is_text(data: bytes) -> bool:
    try:
        data.decode()
    except UnicodeDecodeError:
        return False
    return True


@st.composite
def _enums(draw, draft: Draft, name: str) -> Step:
    """Generate an enum that changes its symbols."""
    of = draft.name()
    lists = [draw(st.lists(NAMES, min_size=1, max_size=4, unique=True)) for _ in range(2)]
    fields = ({"name": name, "type": {"type": "enum", "name": of, "symbols": symbols}} for symbols in lists)
    values = [st.sampled_from(symbols).map(lambda symbol: Value(symbol, symbol)) for symbols in lists]
    return Step(name, "string", *fields, *values, (), rows=("`enum`",))


@st.composite
def _decimals(draw, name: str) -> Step:
    """Generate a decimal that changes its precision or scale, or changes to or from text or bytes."""
    digits = [draw(st.integers(1, 38)) for _ in range(2)]
    scales = [draw(st.integers(0, n)) for n in digits]
    if draw(st.booleans()):
        scales = [min(scales)] * 2
    kinds = draw(
        st.sampled_from(
            [("decimal", "decimal")] * 3 + [("decimal", "string"), ("decimal", "bytes"), ("bytes", "decimal")]
        )
    )
    schemas: list[Any] = []
    strategies: list[st.SearchStrategy[Value]] = []
    columns: list[Column] = []
    for kind, precision, scale in zip(kinds, digits, scales, strict=True):
        if kind != "decimal":
            schemas.append(kind)
            columns.append(SCALARS[kind].column)
            strategies.append(SCALARS[kind].values)
            continue
        schemas.append({"type": "bytes", "logicalType": "decimal", "precision": precision, "scale": scale})
        columns.append(f"decimal({precision}, {scale})")

        def value(unscaled: int, scale: int = scale) -> Value:
            sent = unscaled.to_bytes((unscaled.bit_length() + 8) // 8, "big", signed=True)
            return Value(sent, Decimal((unscaled < 0, tuple(map(int, str(abs(unscaled)))), -scale)))

        strategies.append(st.integers(-(10**precision) + 1, 10**precision - 1).map(value))
    fits = kinds[0] == kinds[1] == "decimal" and scales[0] == scales[1] and digits[0] <= digits[1]

    def converted(value: Value) -> Value:
        if fits:
            return value
        same = kinds == ("decimal", "decimal") and scales[0] == scales[1]
        if same and len(value.cell.as_tuple().digits) <= digits[1]:
            return Value(value.sent, value.cell, "either")
        return Value(value.sent, None, "letter")

    fields = ({"name": name, "type": schema} for schema in schemas)
    return Step(
        name,
        columns[1],
        *fields,
        strategies[0].map(converted),
        strategies[1],
        (),
        fits,
        ("`decimal` on `bytes` or `fixed`",),
    )


@st.composite
def _unions(draw, draft: Draft, name: str) -> Step:
    """Generate a union that changes its branches or their order."""
    pool: list[Type] = []
    for _ in range(draw(st.integers(2, 4))):
        # The other version may lack a type that another branch defines.
        draft.defined.clear()
        type_ = draw(
            st.one_of(
                named(draft),
                st.sampled_from([SCALARS[n] for n in ("int", "string", "boolean", "date")]),
                types(draft, 1),
            )
        )
        if kind_of(type_.schema) not in {kind_of(other.schema) for other in pool}:
            pool.append(type_)
    for spare in ("boolean", "string", "bytes"):
        if len(pool) < 2 and spare not in {kind_of(other.schema) for other in pool}:
            pool.append(SCALARS[spare])
    numbers = {"int", "long", "float", "double"}
    if len({kind_of(type_.schema) for type_ in pool} & numbers) > 1 or {"string", "bytes"} <= {
        kind_of(t.schema) for t in pool
    }:
        # The branch of a promoted value is not predicted.
        pool = [SCALARS["int"], SCALARS["string"]]
    unions = [draw(st.permutations(pool)) for _ in range(2)]
    cuts = [draw(st.integers(2, len(pool))) for _ in range(2)]
    unions = [union[:cut] for union, cut in zip(unions, cuts, strict=True)]
    # A branch keeps its first position.
    order = list(unions[0]) + [type_ for type_ in unions[1] if type_ not in unions[0]]
    members = {kind_of(type_.schema): f"member{i}" for i, type_ in enumerate(order)}

    def values(union: list[Type], removed_is_either: bool) -> st.SearchStrategy[Value]:
        field_steps = []
        for type_ in union:
            gone = removed_is_either and type_ not in unions[1]
            member = members[kind_of(type_.schema)]
            field_steps.append(
                type_.values.map(
                    lambda value, type_=type_, member=member, gone=gone: Value(
                        (kind_of(type_.schema), value.sent),
                        dict.fromkeys(members.values()) | {member: value.cell},
                        "either" if gone and value.fate == "row" else value.fate,
                    )
                )
            )
        return st.one_of(field_steps)

    schemas = [[type_.schema for type_ in union] for union in unions]
    column = ("struct", tuple((members[kind_of(type_.schema)], type_.column) for type_ in order))
    fields = ({"name": name, "type": schema} for schema in schemas)
    strategies = (values(union, old) for union, old in zip(unions, (True, False), strict=True))
    return Step(
        name, column, *fields, *strategies, tuple(pool), all(t in unions[1] for t in unions[0]), ("any other union",)
    )


@st.composite
def pairs(draw) -> Pair:
    """Generate two versions, whose records are decoded with both."""
    draft = Draft(draw, names={"r", "inner"})
    names = draw(st.lists(NAMES, min_size=1, max_size=4, unique_by=str.lower))
    draft.names.update(name.lower() for name in names)
    field_steps = []
    for name in names:
        # The other version may lack a type that another field defines.
        draft.defined.clear()
        field_steps.append(draw(steps(draft, name)))
    draft.defined.clear()
    spare = {"name": "always_there", "type": "int"}
    versions = []
    for side in ("before", "after"):
        fields = [field for step in field_steps if (field := getattr(step, side))]
        versions.append([spare, *(draw(st.permutations(fields)) if side == "after" else fields)])
    wrap = draw(st.sampled_from(["", "", "record", "array", "map"]))
    order = [field["name"] for field in versions[1]] + [step.name for step in field_steps if step.after is None]
    columns: dict[str, Column] = {"always_there": "int"} | {step.name: step.column for step in field_steps}
    inner = {name: columns[name] for name in order}
    records: list[list[Record]] = []
    for version, fields in enumerate(versions):
        rows = []
        for _ in range(draw(st.integers(1, 3))):
            values = {step.name: draw(step.old if version == 0 else step.new) for step in field_steps}
            sent = {"always_there": 5}
            for step in field_steps:
                step_field = step.before if version == 0 else step.after
                if step_field:
                    sent[step_field["name"]] = values[step.name].sent
            cells = {"always_there": 5} | {name: value.cell for name, value in values.items()}
            fate = worst(list(values.values()))
            schema, sent_, cells = _wrapped(wrap, fields, sent, cells)
            rows.append(Record(encoded(version + 1, schema, sent_), cells, fate))
        records.append(rows)
    schemas = [
        RegisteredSchema(i + 1, json.dumps(_wrapped(wrap, fields, {}, {})[0])) for i, fields in enumerate(versions)
    ]
    top = _column(wrap, inner)
    accepted = all(step.fits for step in field_steps)
    refused: str | None = None if accepted else ""
    refusals = [reason for step in field_steps for part in step.parts if (reason := refusal_of(part))]
    if not wrap:
        refusals += [name for name in inner if name.lower() in METADATA_NAMES]
    if refusals:
        refused = ""
    rows_ = {row for step in field_steps for part in step.parts for row in rows_of(part)} | {
        row for s in field_steps for row in s.rows
    }
    after = Case("avro", schemas, top if accepted else None, [*records[0], *records[1]], refused, rows_)
    after.names = tuple(inner)
    return Pair(Case("avro", schemas[:1], None, records[0], "", set()), after)


def _column(wrap: str, inner: dict[str, Column]) -> dict[str, Column]:
    struct_ = ("struct", tuple(inner.items()))
    return {
        "": inner,
        "record": {"n": struct_},
        "array": {"n": ("list", struct_)},
        "map": {"n": ("map", "string", struct_)},
    }[wrap]


def _wrapped(wrap: str, fields: list[Any], sent: Any, cells: Any) -> tuple[Any, Any, Any]:
    if not wrap:
        return {"type": "record", "name": "R", "fields": fields}, sent, cells
    inner: Any = {"type": "record", "name": "Inner", "fields": fields}
    if wrap == "array":
        inner, sent, cells = {"type": "array", "items": inner}, [sent], [cells]
    elif wrap == "map":
        inner, sent, cells = {"type": "map", "values": inner}, {"k": sent}, (("k", cells),)
    return {"type": "record", "name": "R", "fields": [{"name": "n", "type": inner}]}, {"n": sent}, {"n": cells}
