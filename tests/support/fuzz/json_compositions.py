"""JSON Schemas with alternatives within alternatives: each property that a record has and a branch names is stored.

The names are collected from the text of the schema, by the meaning of its keywords, and not by this project's code.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from hypothesis import strategies as st

from lakehouse.core.errors import LakehouseError
from lakehouse.formats.schema import RegisteredSchema
from tests.support.fuzz.checking import COUNTS
from tests.support.fuzz.decoding import LETTER, UNEXPLAINED, Decoder
from tests.support.fuzz.json_spelling import framed
from tests.support.fuzz.model import Case, Record

SCALARS = {"k": "string", "a": "integer", "b": "string", "c": "boolean", "d": "integer", "e": "string"}
OBJECTS, LISTS = ("o", "p"), ("l",)
SAMPLES = {"string": "x", "integer": 7, "boolean": True}
DEPTH = 4
DEFINITIONS = "#/$defs/"


@dataclass
class Composition(Case):
    """A case of one schema and one record, which has every property that the schema names: `sent`."""

    sent: dict[str, Any] = field(default_factory=dict)


@st.composite
def compositions(draw) -> Composition:
    """Generate a schema with compositions up to DEPTH, and a record."""
    definitions: dict[str, Any] = {}
    schema = {"type": "object"} | draw(objects(definitions, DEPTH))
    whole = schema | ({"$defs": definitions} if definitions else {})
    sent = _sample([whole], whole)
    record = Record(framed(json.dumps(sent).encode()), {})
    row = "`oneOf`/`anyOf` beside `properties`, `if`/`then`/`else`, `dependentSchemas`, `dependencies`"
    refused = None if sent else "no columns"
    versions = [RegisteredSchema(1, json.dumps(whole), "JSON")]
    return Composition("json_schema", versions, None, [record], refused, {row}, sent=sent)


@st.composite
def objects(draw, definitions: dict[str, Any], depth: int) -> dict[str, Any]:
    """Generate a schema of objects: properties, and up to two compositions."""
    names = draw(st.lists(st.sampled_from([*SCALARS, *OBJECTS, *LISTS]), max_size=3, unique=True))
    schema: dict[str, Any] = {"type": "object"} if draw(st.booleans()) else {}
    if names or draw(st.booleans()):
        schema["properties"] = {name: draw(_property(name, definitions, depth)) for name in names}
    if not depth:
        return schema
    inner = st.deferred(lambda: objects(definitions, depth - 1))
    for keyword in draw(st.lists(st.sampled_from(["oneOf", "anyOf", "allOf", "if", "dependent"]), max_size=2)):
        if keyword == "if":
            parts = draw(st.lists(st.sampled_from(["then", "else"]), min_size=1, unique=True))
            schema |= {name: draw(inner) for name in ("if", *parts)}
        elif keyword == "dependent":
            schema[draw(st.sampled_from(["dependentSchemas", "dependencies"]))] = {"k": draw(inner)}
        else:
            schema[keyword] = draw(st.lists(inner, min_size=1, max_size=3))
    if draw(st.integers(0, 4)) == 0:
        name = f"s{len(definitions)}"
        definitions[name] = schema
        return {"$ref": DEFINITIONS + name}
    return schema


@st.composite
def _property(draw, name: str, definitions: dict[str, Any], depth: int) -> Any:
    if name in SCALARS:
        return {"type": SCALARS[name]}
    inner = draw(objects(definitions, depth - 1)) if depth and draw(st.integers(0, 3)) else {}
    if name in OBJECTS:
        return {"type": "object"} | inner if "$ref" not in inner else inner
    return {"type": "array", "items": inner}


def _applying(schema: Any, whole: Any) -> Iterator[Any]:
    """Yield a schema and all that may apply to the same value."""
    yield schema
    nested = [part for name in ("oneOf", "anyOf", "allOf") for part in schema.get(name, ())]
    nested += [schema[name] for name in ("if", "then", "else") if name in schema]
    nested += [part for name in ("dependentSchemas", "dependencies") for part in schema.get(name, {}).values()]
    if "$ref" in schema:
        nested.append(whole["$defs"][schema["$ref"].removeprefix(DEFINITIONS)])
    for part in nested:
        yield from _applying(part, whole)


def _sample(schemas: list[Any], whole: Any) -> dict[str, Any]:
    """Return an object with every property that the schemas name."""
    named: dict[str, list[Any]] = {}
    for schema in schemas:
        for part in _applying(schema, whole):
            for name, inner in part.get("properties", {}).items():
                named.setdefault(name, []).append(inner)
    sample: dict[str, Any] = {}
    for name, parts in named.items():
        if name in SCALARS:
            sample[name] = SAMPLES[SCALARS[name]]
        elif name in OBJECTS:
            sample[name] = _sample(parts, whole)
        else:
            items = [part["items"] for one in parts for part in _applying(one, whole) if "items" in part]
            sample[name] = [_sample(items, whole)]
    return sample


def check_composition(decoder: Decoder, composition: Composition) -> None:
    """Decode the record and look for each of its values.

    Raises:
        AssertionError: A value is missing, or the schema or the record is refused.
    """
    COUNTS["compositions"] += 1
    [decoded] = decoder.decode([composition])
    if isinstance(decoded, LakehouseError):
        assert composition.refused, f"refused without need: {decoded}"
        assert composition.refused in str(decoded)
        return
    assert not composition.refused
    [outcome] = decoded.outcomes
    assert outcome not in (LETTER, UNEXPLAINED), f"{outcome}: {composition.sent}"
    missing = list(_missing(composition.sent, outcome, ""))
    assert not missing, f"{missing} of {composition.sent} are not in {outcome}"


def _missing(sent: Any, cell: Any, at: str) -> Iterator[str]:
    if isinstance(cell, str) and not (isinstance(sent, str) and cell == sent):
        # A column of JSON text.
        if json.loads(cell) != sent:
            yield at
    elif isinstance(sent, dict) and isinstance(cell, dict):
        for name, value in sent.items():
            if name in cell:
                yield from _missing(value, cell[name], f"{at}.{name}")
            else:
                yield f"{at}.{name}"
    elif isinstance(sent, list) and isinstance(cell, list) and len(sent) == len(cell):
        for index, pair in enumerate(zip(sent, cell, strict=True)):
            yield from _missing(*pair, f"{at}[{index}]")
    elif sent != cell:
        yield at
