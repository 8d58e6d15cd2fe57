"""Two versions of a JSON Schema, and messages of both (docs/types.md, Several versions in one batch)."""

from __future__ import annotations

import json
import struct
from dataclasses import dataclass
from typing import Any

from hypothesis import strategies as st

from lakehouse.formats.schema import RegisteredSchema
from tests.support.fuzz.cells import AnyOf, Column, JsonText
from tests.support.fuzz.json_model import ANYTHING, NAMES, SCALARS, Draft, types
from tests.support.fuzz.json_spelling import Members, Spelled, dumped
from tests.support.fuzz.model import METADATA_NAMES, Case, Pair, Record, Type, Value, rows_of, worst


@dataclass(frozen=True)
class Step:
    """The change of one property.

    Attributes:
        old: Name and type in the older version, or None.
        new: Name and type in the newer version, or None.
        fits: Whether both versions must be accepted, must be refused, or may be either (None).
    """

    old: tuple[str, Type] | None
    new: tuple[str, Type] | None
    fits: bool | None = True


@st.composite
def steps(draw, name: str) -> Step:
    """Generate a property and its change."""
    # References within a type would need definitions in both documents.
    draft = Draft(draw)
    draft.placed = lambda schema: schema
    type_ = draw(types(draft, 2))
    match draw(st.sampled_from(["keep", "keep", "drop", "drop", "add", "add", *["retype"] * 6, "case"])):
        case "drop":
            return Step((name, type_), None)
        case "add":
            return Step(None, (name, type_))
        case "retype":
            other = draw(st.one_of(st.sampled_from(SCALARS), types(draft, 2)))
            return Step((name, type_), (name, other), True if type_.schema == other.schema else None)
        case "case" if name.swapcase().casefold() == name.casefold() and name.swapcase() != name:
            return Step((name, type_), (name.swapcase(), type_), False)
    return Step((name, type_), (name, type_))


def _reread(old: Type, new: Type, value: Value) -> Value:
    """Return an older value with its expected cell in the newer column: the same JSON value, or null."""
    if old.schema == new.schema:
        return value
    if value.fate != "row" or isinstance(new.column, tuple) or isinstance(old.column, tuple):
        return Value(value.sent, UNFORESEEN, "either")
    if value.cell is None:
        return Value(value.sent, None, "either")
    written = value.sent.text if isinstance(value.sent, Spelled) else dumped(value.sent)
    parsed = json.loads(written)
    if new.row == ANYTHING:
        return Value(value.sent, JsonText(parsed), "either")
    match new.column:
        case "string":
            options = (parsed, written) if isinstance(parsed, str) else (JsonText(parsed),)
            return Value(value.sent, AnyOf(options), "either")
        case "long" | "double" if isinstance(parsed, int | float) and not isinstance(parsed, bool):
            of = int if new.column == "long" else float
            if old.column == "long" and of is float and abs(parsed) >= 2**53:
                return Value(value.sent, None, "letter")
            return Value(value.sent, of(parsed), "either" if of(parsed) == parsed or of is float else "letter")
        case "date" | "timestamptz":
            # The model of moments predicts only the cells of its properties_of_version texts.
            return Value(value.sent, UNFORESEEN, "either")
        case "boolean" if isinstance(parsed, bool):
            return Value(value.sent, parsed, "either")
    return Value(value.sent, None, "letter")


UNFORESEEN = AnyOf(())
"""A cell that is not compared."""


@st.composite
def pairs(draw) -> Pair:
    """Generate two versions, whose messages are decoded with both."""
    names = draw(st.lists(NAMES, min_size=1, max_size=4, unique_by=str.casefold))
    changes = [draw(steps(name)) for name in names]
    columns: dict[str, Column] = {}
    types_: dict[str, Type] = {}
    # The properties of the newest version are first, in their order.
    for step in [*(s for s in changes if s.new), *(s for s in changes if not s.new)]:
        name, type_ = step.new or step.old
        columns[name], types_[name] = type_.column, type_
    before = dict(step.old for step in changes if step.old)
    nested = draw(st.booleans())
    records: list[list[Record]] = []
    schemas: list[RegisteredSchema] = []
    for version, side in enumerate(("old", "new")):
        properties_of_version = [part for step in changes if (part := getattr(step, side))]
        properties = {name: type_.schema for name, type_ in properties_of_version}
        required = draw(st.lists(st.sampled_from(sorted(properties)), unique=True)) if properties else []
        schema: Any = {"type": "object", "properties": {"always there": {"type": "integer"}} | properties}
        schema |= {"required": required} if required else {}
        schemas.append(
            RegisteredSchema(version + 1, json.dumps({"properties": {"n": schema}} if nested else schema), "JSON")
        )
        rows = []
        for _ in range(draw(st.integers(1, 3))):
            members: list[tuple[str, Any]] = [("always there", 5)]
            cells: dict[str, Any] = {"always there": 5} | dict.fromkeys(columns)
            values = []
            for name, type_ in properties_of_version:
                value = draw(type_.values)
                members.append((name, value.sent))
                if name in types_:
                    value = _reread(type_, types_[name], value) if version == 0 else value
                    if (
                        version == 1
                        and name in before
                        and before[name].schema != type_.schema
                        and isinstance(type_.column, tuple)
                    ):
                        # The object may have the further properties of the older version, and only properties that
                        # both versions require are required.
                        both = isinstance(before[name].column, tuple)
                        value = Value(value.sent, UNFORESEEN, "either" if both else value.fate)
                    cells[name] = value.cell
                if value.cell is None and name in required:
                    value = Value(value.sent, None, "either" if value.fate == "row" else value.fate)
                values.append(value)
            sent = Members((("n", Members(tuple(members))),)) if nested else Members(tuple(members))
            data = struct.pack(">bI", 0, version + 1) + dumped(sent).encode()
            rows.append(Record(data, {"n": cells} if nested else cells, worst(values)))
        records.append(rows)
    inner = {"always there": "long"} | columns
    top = {"n": ("struct", tuple(inner.items()))} if nested else inner
    fits = [step.fits for step in changes]
    reserved = not nested and any(name.lower() in METADATA_NAMES for name in columns)
    refused = None if all(fits) else ""
    if False in fits and None not in fits:
        refused = "case"
    if reserved:
        refused = ""
    rows_ = {row for step in changes for part in (step.old, step.new) if part for row in rows_of(part[1])}
    after = Case("json_schema", schemas, top if refused is None else None, [*records[0], *records[1]], refused, rows_)
    after.names = tuple(columns)
    return Pair(Case("json_schema", schemas[:1], None, records[0], "", set()), after)
