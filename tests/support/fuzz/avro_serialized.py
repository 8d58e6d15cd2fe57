"""Avro records by Confluent's serializer and by fastavro, from the Python objects that applications have.

Serializers choose the branch of a union, fill in defaults, and write some numbers that exceed their type. Therefore the
expectations are those of the bytes, as fastavro reads them.
"""

from __future__ import annotations

import io
import json
from collections.abc import Iterator
from contextlib import suppress
from datetime import UTC
from decimal import Decimal
from itertools import count
from typing import Any

import fastavro
from confluent_kafka.schema_registry import Schema, SchemaRegistryClient
from confluent_kafka.schema_registry.avro import AvroSerializer
from hypothesis import reject
from hypothesis import strategies as st

from lakehouse.formats.schema import frame
from tests.support.fuzz.avro_model import (
    BEYOND_INT,
    FIRST_DAY,
    INT,
    LAST_DAY,
    LONG,
    NOT_VALID,
    Draft,
    fate_of,
    records,
    without_logical_types,
)
from tests.support.fuzz.cells import in_order
from tests.support.fuzz.model import Case, Fate, Record, Value, refusal, rows_of, worst
from tests.support.fuzz.registered import CONTEXT, SUBJECT, newest

MOMENTS = st.datetimes().map(lambda moment: moment.replace(tzinfo=UTC))
DEFAULTS = {
    "int": -(2**31),
    "long": 2**62,
    "float": 0.5,
    "double": 1e300,
    "boolean": True,
    "string": "😀",
    "bytes": "\xff\0",
    "null": None,
    "array": [],
    "map": {},
}
OBJECTS: dict[str, st.SearchStrategy[Any]] = {
    "null": st.none(),
    "boolean": st.booleans(),
    "int": st.one_of(INT, INT, INT, BEYOND_INT),
    "long": LONG,
    "float": st.one_of(st.floats(), st.integers(-(2**60), 2**60)),
    "double": st.one_of(st.floats(), st.integers(-(2**60), 2**60)),
    "bytes": st.binary(max_size=8),
    "string": st.text(max_size=8),
    "date": st.one_of(st.dates(), INT, BEYOND_INT),
    "time-millis": st.one_of(st.times(), INT, BEYOND_INT),
    "time-micros": st.one_of(st.times(), LONG),
    **{f"timestamp-{unit}": st.one_of(MOMENTS, st.datetimes(), LONG) for unit in ("millis", "micros")},
    **{f"local-timestamp-{unit}": st.one_of(st.datetimes(), LONG) for unit in ("millis", "micros")},
    "uuid": st.one_of(st.uuids(), st.uuids().map(str), st.text(max_size=3)),
}
"""Values of types and of logical types."""
NUMBERS = count()
"""Numbers for the names of types."""


def definitions(schema: Any) -> Iterator[tuple[str, Any]]:
    """Yield the named types of a schema with their names."""
    if isinstance(schema, dict) and "name" in schema and schema["type"] in ("record", "enum", "fixed"):
        yield schema["name"], schema
    inner = schema if isinstance(schema, list) else schema.values() if isinstance(schema, dict) else ()
    for part in inner:
        yield from definitions(part)


def objects(schema: Any, named: dict[str, Any]) -> st.SearchStrategy[Any]:
    """Return the objects that an application may pass for a schema."""
    schema = named.get(schema, schema) if isinstance(schema, str) else schema
    if isinstance(schema, list):
        return st.one_of([objects(branch, named) for branch in schema])
    if isinstance(schema, str):
        return OBJECTS[schema]
    match schema["type"]:
        case "record":
            return st.fixed_dictionaries(
                {field["name"]: objects(field["type"], named) for field in schema["fields"] if "default" not in field},
                optional={
                    field["name"]: objects(field["type"], named) for field in schema["fields"] if "default" in field
                },
            )
        case "array":
            return st.lists(objects(schema["items"], named), max_size=3)
        case "map":
            return st.dictionaries(st.text(max_size=4), objects(schema["values"], named), max_size=3)
        case "enum":
            return st.sampled_from(schema["symbols"])
        case "bytes" | "fixed" if schema.get("logicalType") == "decimal" and "precision" in schema:
            return st.decimals(allow_nan=False, allow_infinity=False, places=abs(schema["scale"]))
        case "fixed" if schema.get("logicalType") == "uuid":
            return st.uuids()
        case "fixed":
            return st.binary(min_size=schema["size"], max_size=schema["size"])
    return OBJECTS.get(schema.get("logicalType"), OBJECTS[schema["type"]])


@st.composite
def with_defaults(draw, schema: Any) -> Any:
    """Generate the schema with defaults of some fields."""
    if isinstance(schema, list):
        return [draw(with_defaults(branch)) for branch in schema]
    if not isinstance(schema, dict):
        return schema
    schema = {key: draw(with_defaults(schema[key])) if key in ("items", "values") else schema[key] for key in schema}
    if schema["type"] == "record":
        fields = [{**field, "type": draw(with_defaults(field["type"]))} for field in schema["fields"]]
        schema["fields"] = [draw(st.sampled_from([field, {**field, **_default(field["type"])}])) for field in fields]
    return schema


def _default(type_: Any) -> dict[str, Any]:
    type_ = type_[0] if isinstance(type_, list) else type_
    kind = type_["type"] if isinstance(type_, dict) else type_
    if kind == "enum":
        return {"default": type_["symbols"][-1]}
    return {} if kind not in DEFAULTS or "logicalType" in type_ else {"default": DEFAULTS[kind]}


def with_named_branches(schema: Any) -> Any:
    """Return a schema of the same bytes, whose values have the position of their branch in a union.

    A record has the encoding of its only field (Avro specification, Complex types).
    """
    if isinstance(schema, list):
        branches = [branch for branch in schema if branch != "null"]
        wrapped = [with_named_branches(branch) for branch in branches]
        position = iter(range(len(branches)))
        return [
            "null" if branch == "null" else _wrapper(wrapped[i := next(position)], f"member{i}") for branch in schema
        ]
    if not isinstance(schema, dict):
        return schema
    schema = {key: with_named_branches(schema[key]) if key in ("items", "values") else schema[key] for key in schema}
    if "fields" in schema:
        fields = [(field["name"], with_named_branches(field["type"])) for field in schema["fields"]]
        schema["fields"] = [{"name": name, "type": type_} for name, type_ in fields]
    return schema


def _wrapper(schema: Any, name: str) -> dict[str, Any]:
    return {"type": "record", "name": f"of_{next(NUMBERS)}", "fields": [{"name": name, "type": schema}]}


def cell(schema: Any, read: Any, named: dict[str, Any], fates: list[Fate]) -> Any:
    """Return the expected cell of a value.

    Args:
        schema: The type of the value.
        read: The value as fastavro reads it without logical types and with named branches.
        named: The named types.
        fates: The list to which the expected results of the value's parts are appended.
    """
    schema = named.get(schema, schema) if isinstance(schema, str) else schema
    if isinstance(schema, list):
        if read is None:
            return None
        branches = [branch for branch in schema if branch != "null"]
        [(name, value)] = read.items()
        member = cell(branches[int(name.removeprefix("member"))], value, named, fates)
        if len(branches) == 1 or set(map(str, branches)) in ({"int", "long"}, {"float", "double"}):
            return member
        return {f"member{i}": None for i in range(len(branches))} | {name: member}
    kind, logical = (schema, None) if isinstance(schema, str) else (schema["type"], schema.get("logicalType"))
    if kind == "int" and not -(2**31) <= read < 2**31:
        fates.append("letter")
    match kind, logical:
        case "record", _:
            return {field["name"]: cell(field["type"], read[field["name"]], named, fates) for field in schema["fields"]}
        case "array", _:
            return [cell(schema["items"], item, named, fates) for item in read]
        case "map", _:
            return in_order([(key, cell(schema["values"], item, named, fates)) for key, item in read.items()])
        case "int", "date":
            fates.append("row" if FIRST_DAY <= read <= LAST_DAY else "either")
        case _, "timestamp-millis" | "timestamp-micros" | "local-timestamp-millis" | "local-timestamp-micros":
            micros = read * (1000 if logical.endswith("millis") else 1)
            fates.append(fate_of(micros))
            return micros
        case "bytes" | "fixed", "decimal":
            unscaled = int.from_bytes(read, "big", signed=True)
            fates.append("row" if read and abs(unscaled) < 10 ** schema["precision"] else "letter")
            return Decimal((unscaled < 0, tuple(map(int, str(abs(unscaled)))), -schema["scale"]))
    return read


def decoded(schema: Any, data: bytes) -> Value:
    """Return the expected cells of a message body."""
    body = io.BytesIO(data)
    named_branches = fastavro.parse_schema(with_named_branches(without_logical_types(schema)))
    read, fates = fastavro.schemaless_reader(body, named_branches), ["row"]
    assert body.tell() == len(data)
    cells = cell(schema, read, dict(definitions(schema)), fates)
    return Value(data, cells, worst([Value(None, None, fate) for fate in fates]))


@st.composite
def cases(draw) -> Case:
    """Generate a schema, and the records that serializers write of objects; none of those that they refuse."""
    top = draw(records(Draft(draw), 3, draw(st.integers(1, 5))))
    rows = rows_of(top)
    if NOT_VALID in rows:
        # The serializers refuse the schema.
        reject()
    schema = draw(with_defaults(top.schema))
    client = SchemaRegistryClient.new_client({"url": "mock://"})
    prefix = frame(client.register_schema(SUBJECT, Schema(json.dumps(schema), "AVRO")))
    serializer, parsed = AvroSerializer(client, json.dumps(schema)), fastavro.parse_schema(schema)
    values = objects(schema, dict(definitions(schema)))
    messages = []
    for value in (draw(values) for _ in range(draw(st.integers(1, 6)))):
        # The serializers refuse a value by an error of any type.
        with suppress(Exception):
            if draw(st.booleans()):
                messages.append(serializer(value, CONTEXT))
            else:
                body = io.BytesIO(prefix)
                body.seek(len(prefix))
                fastavro.schemaless_writer(body, parsed, value)
                messages.append(body.getvalue())
    expected = [(message, decoded(schema, message.removeprefix(prefix))) for message in messages]
    records_ = [Record(message, value.cell, value.fate) for message, value in expected]
    return Case("avro", [newest(client)], dict(top.column[1]), records_, refusal(top), rows)
