"""Two versions of a Protobuf schema, and messages of both (docs/types.md, Several versions in one batch)."""

from __future__ import annotations

import struct
from dataclasses import dataclass, replace
from decimal import Decimal
from typing import Any

from hypothesis import strategies as st

from lakehouse.formats.schema import RegisteredSchema
from tests.support.fuzz.cells import AnyOf, Column
from tests.support.fuzz.model import METADATA_NAMES, Case, Pair, Record
from tests.support.fuzz.protobuf_model import (
    JSON_ROW,
    KNOWN,
    NAMES,
    SCALARS,
    cells,
    filled,
    imports_of,
    json_name,
    row_of,
)
from tests.support.protobuf_messages import message_class

WIDER = {("int", "long"), ("int", "decimal(20, 0)"), ("long", "decimal(20, 0)"), ("float", "double")}
"""Changes of a field's type for which every value has a cell in the newer column."""


@dataclass(frozen=True)
class Field:
    """A field of a message: its declaration, without `=` and its number, its column, and its values."""

    name: str
    number: int
    type: str
    label: str
    column: Column
    values: st.SearchStrategy[Any]
    row: str

    @property
    def text(self) -> str:
        """The declaration with the number."""
        return f"{self.label}{self.type} {self.name} = {self.number};"


@st.composite
def fields(draw, name: str, number: int) -> Field:
    """Generate a field of any type except a message of the schema."""
    if draw(st.booleans()):
        type_ = draw(st.sampled_from(sorted(SCALARS)))
        row, (column, values) = row_of(type_), SCALARS[type_]
    else:
        known = draw(st.sampled_from(KNOWN))
        type_, column, values, row = known.schema, known.column, known.values.map(lambda value: value.sent), known.row
    label = draw(st.sampled_from(["", "", "optional ", "repeated "]))
    return _field(name, number, type_, label, column, values, row)


def _field(
    name: str, number: int, type_: str, label: str, column: Column, values: st.SearchStrategy[Any], row: str
) -> Field:
    """Return a field whose elements, if it is repeated, have this column and these values."""
    if label == "repeated ":
        return Field(name, number, type_, label, ("list", column), st.lists(values, max_size=3), row)
    return Field(name, number, type_, label, column, st.one_of(st.none(), values), row)


@st.composite
def changed(draw, field: Field) -> tuple[Field | None, bool]:
    """Generate the change of a field, and return whether the versions must be accepted."""
    match draw(st.sampled_from(["keep", "keep", "drop", "rename", "retype", "widen", "move"])):
        case "drop":
            return None, True
        case "rename":
            return replace(field, name=f"{field.name}_renamed"), True
        case "retype" if field.row == JSON_ROW and field.label != "repeated " and draw(st.booleans()):
            known = draw(st.sampled_from([type_ for type_ in KNOWN if type_.row == JSON_ROW]))
            values = st.one_of(st.none(), known.values.map(lambda value: value.sent))
            return replace(field, type=known.schema, values=values), True
        case "retype":
            other = draw(fields(field.name, field.number))
            return other, other.column == field.column
        case "widen" if field.type in SCALARS:
            names = [n for n, (column, _) in SCALARS.items() if (SCALARS[field.type][0], column) in WIDER]
            if names:
                name = draw(st.sampled_from(names))
                column, values = SCALARS[name]
                return _field(field.name, field.number, name, field.label, column, values, field.row), True
        case "move":
            return replace(field, number=draw(st.integers(1000, 1003))), False
    return field, True


TAKEN = ("e", "m", "r", "added", "alwaysthere", "google", "confluent", "fuzz")
"""Names with another meaning in the schemas."""


@st.composite
def pairs(draw) -> Pair:
    """Generate two versions, whose messages are decoded with both."""
    free = NAMES.filter(lambda name: json_name(name) not in TAKEN)
    names = draw(st.lists(free, min_size=1, max_size=4, unique_by=json_name))
    old = [draw(fields(name, number)) for number, name in enumerate(names, 2)]
    steps = [draw(changed(field)) for field in old]
    moved = [step.number for step, _ in steps if step and step.number >= 1000]
    new = [step for step, _ in steps if step and (step.number < 1000 or moved.count(step.number) == 1)]
    fits = all(fits for _, fits in steps) and len(new) == sum(step is not None for step, _ in steps)
    if len(new) > 1 and draw(st.integers(0, 3)) == 0:
        new[0], new[1] = replace(new[0], number=new[1].number), replace(new[1], number=new[0].number)
        fits = False
    if draw(st.booleans()):
        new.append(draw(fields("added", 900)))
    new = draw(st.permutations(new))
    symbols = [["NONE", *draw(st.lists(st.sampled_from("ABCD"), unique=True))] for _ in range(2)]
    nested = draw(st.sampled_from(sorted(NESTED)))
    always = "int32 always_there = 1; E e = 4000;"
    records: list[list[Record]] = []
    schemas: list[RegisteredSchema] = []
    for version, fields_of_version in enumerate((old, new)):
        body = f"{always} {' '.join(field.text for field in fields_of_version)}"
        # A symbol has one number in both versions.
        enum = " ".join(f"{s} = {'ABCD'.find(s) + 1};" for s in symbols[version])
        top = f"message R {{ {nested} }} message M {{ {body} }}" if nested else f"message R {{ {body} }}"
        text = f'syntax = "proto3"; package fuzz; {imports_of(body)} {top} enum E {{ {enum} }}'
        schemas.append(RegisteredSchema(version + 1, text, "PROTOBUF"))
        rows = []
        for _ in range(draw(st.integers(1, 3))):
            sent = {"always_there": 5, "e": "ABCD".find(draw(st.sampled_from(symbols[version]))) + 1}
            sent |= {field.name: draw(field.values) for field in fields_of_version}
            message = filled(message_class(text, "fuzz.R")(), NESTED[nested][0](sent))
            faults: list[str] = []
            row = _within(nested, cells(message, faults))
            if version == 0:
                row = _reread(row, old, new)
            else:
                row |= {f.name: NOTHING for f in old if not _named(new, f) and f.number not in _numbers(new)}
                # A struct has the fields of both messages.
                row |= {f.name: UNFORESEEN for f in new if row[f.name] and any(_are_messages(o, f) for o in old)}
            fate = "either" if version == 0 and UNFORESEEN in row.values() else "row"
            fate = "letter" if faults or UNREADABLE in row.values() else fate
            data = struct.pack(">bI", 0, version + 1) + b"\0" + message.SerializeToString()
            rows.append(Record(data, NESTED[nested][1](row), fate))
        records.append(rows)
    reserved = not nested and any(field.name.lower() in METADATA_NAMES for field in [*old, *new])
    refused = None if fits and not reserved else ""
    after = Case("protobuf", schemas, None, [*records[0], *records[1]], refused, {field.row for field in [*old, *new]})
    after.names = tuple(field.name for field in [*old, *new])
    return Pair(Case("protobuf", schemas[:1], None, records[0], "", set()), after)


NESTED = {
    "": (lambda sent: sent, lambda row: row),
    "M n = 1;": (lambda sent: {"n": sent}, lambda row: {"n": row}),
    "repeated M n = 1;": (lambda sent: {"n": [sent]}, lambda row: {"n": [row]}),
    "map<string, M> n = 1;": (lambda sent: {"n": {"k": sent}}, lambda row: {"n": (("k", row),)}),
}
"""Places of the fields, with the content of a message and its cells."""


def _within(nested: str, row: dict[str, Any]) -> dict[str, Any]:
    """Return the cells of the message with the fields."""
    if not nested:
        return row
    cell = row["n"]
    if isinstance(cell, tuple):
        [(_, cell)] = cell
    return cell[0] if isinstance(cell, list) else cell


UNREADABLE = object()
UNFORESEEN = AnyOf(())
NOTHING = AnyOf((None, []))
"""The cells of a message without the field."""


def _named(fields_: list[Field], field: Field) -> bool:
    return any(other.name.lower() == field.name.lower() for other in fields_)


def _are_messages(old: Field, new: Field) -> bool:
    """Return whether a field has two message types, whose fields correspond by number."""
    one, other = (field.column[1] if field.label == "repeated " else field.column for field in (old, new))
    if old.column == new.column or (old.label == "repeated ") != (new.label == "repeated "):
        return False
    return one[0] == other[0] == "struct" and (old.number == new.number or old.name == new.name)


def _numbers(fields_: list[Field]) -> set[int]:
    return {field.number for field in fields_}


def _reread(row: dict[str, Any], old: list[Field], new: list[Field]) -> dict[str, Any]:
    """Return the cells of an older message in the columns of both versions, assigned by field number."""
    numbers = {field.number: field for field in new}
    cells_: dict[str, Any] = {name: row[name] for name in ("always_there", "e")}
    cells_ |= dict.fromkeys((field.name for field in new), NOTHING)
    for field in old:
        now = numbers.get(field.number)
        if now is None:
            # A field with the same name and a new number has the values of the old field.
            now = next((other for other in new if other.name == field.name), field)
        # A change to the name of another field is not a renaming.
        is_other_field = now.name != field.name and (_named(old, now) or _named(new, field))
        # An absent value cannot be lost.
        value = row[field.name]
        cells_[now.name] = (
            NOTHING if value in (None, []) else UNREADABLE if is_other_field else _converted(value, field, now)
        )
    return cells_


def _converted(value: Any, old: Field, new: Field) -> Any:
    if old.column == new.column:
        # JSON text is a different type than other text.
        return value if (old.row == JSON_ROW) == (new.row == JSON_ROW) else UNREADABLE
    if _are_messages(old, new):
        return UNFORESEEN
    if old.column[0] == new.column[0] == "list":
        one, other = replace(old, column=old.column[1]), replace(new, column=new.column[1])
        elements = [_converted(element, one, other) for element in value]
        return UNREADABLE if UNREADABLE in elements else elements
    if (old.column, new.column) not in WIDER:
        return UNREADABLE
    return Decimal(value) if new.column == "decimal(20, 0)" and value is not None else value
