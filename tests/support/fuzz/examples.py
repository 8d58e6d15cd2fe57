"""Constructors of examples for rows of docs/types.md: one field `x` of a type, values and their cells."""

from __future__ import annotations

import json
import struct
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from lakehouse.formats.schema import RegisteredSchema
from tests.support.fuzz import avro_model, json_spelling, protobuf_model
from tests.support.fuzz.cells import Column
from tests.support.fuzz.model import Case, Record
from tests.support.protobuf_messages import message_class


@dataclass(frozen=True)
class Example:
    """The evidence for a row.

    Attributes:
        cases: Schemas with records and their expected results.
        says: Text of the row under `column`, if it is not a column type, or cases have the type within others.
        comment: Expected comment of the column of the first case, if the row is about comments.
    """

    cases: Sequence[Case]
    says: str | None = None
    comment: str | None = None
    of: str = field(default="x")


def avro(
    type_: Any,
    column: Column,
    good: Sequence[tuple[Any, Any]] = (),
    bad: Sequence[Any] = (),
    refused: str | None = None,
) -> Case:
    """Return a case of records with one field.

    Args:
        type_: The field's type.
        column: The type of its column.
        good: Values, as they are encoded without logical types, and their cells.
        bad: Values that are dead letters.
        refused: A part of the message, if the schema is refused.
    """
    return avro_versions(
        [[{"name": "x", "type": type_}]], {"x": column}, [(0, {"x": v}, {"x": c}) for v, c in good], bad, refused
    )


def avro_versions(
    versions: Sequence[list[Any]],
    columns: dict[str, Column],
    good: Sequence[tuple[int, dict[str, Any], dict[str, Any]]],
    bad: Sequence[Any] = (),
    refused: str | None = None,
    references: tuple[tuple[str, str], ...] = (),
) -> Case:
    """Return a case of records of several versions: each with the number of its version, its values and its cells."""
    schemas = [{"type": "record", "name": "R", "fields": fields} for fields in versions]
    registered = [
        RegisteredSchema(i + 1, json.dumps(schema), references=references) for i, schema in enumerate(schemas)
    ]
    inlined = [_with_references(schema, references) for schema in schemas]
    records = [Record(avro_model.encoded(i + 1, inlined[i], sent), cells) for i, sent, cells in good]
    records += [Record(avro_model.encoded(1, inlined[0], {"x": value}), {}, "letter") for value in bad]
    return Case("avro", registered, columns, records, refused)


def _with_references(schema: Any, references: tuple[tuple[str, str], ...]) -> Any:
    definitions = {json.loads(text)["name"]: json.loads(text) for _, text in references}
    fields = [field | {"type": definitions.get(str(field["type"]), field["type"])} for field in schema["fields"]]
    return schema | {"fields": fields}


def json_schema(
    schema: Any,
    column: Column,
    good: Sequence[tuple[str, Any]] = (),
    bad: Sequence[str] = (),
    refused: str | None = None,
    more: dict[str, Any] | None = None,
) -> Case:
    """Return a case of messages with one property.

    Args:
        schema: The property's schema.
        column: The type of its column.
        good: JSON texts of values, and their cells.
        bad: Values that are dead letters.
        refused: A part of the message, if the schema is refused.
        more: Keywords beside `properties`.
    """
    whole = {"type": "object", "properties": {"x": schema}} | (more or {})
    return json_objects(
        whole, {"x": column}, [(f'{{"x": {v}}}', {"x": c}) for v, c in good], [f'{{"x": {v}}}' for v in bad], refused
    )


def json_objects(
    schema: Any,
    columns: dict[str, Column],
    good: Sequence[tuple[str, dict[str, Any]]],
    bad: Sequence[str] = (),
    refused: str | None = None,
    references: tuple[tuple[str, str], ...] = (),
) -> Case:
    """Return a case of messages of one schema, given as texts with their cells."""
    records = [Record(json_spelling.framed(text.encode()), cells) for text, cells in good]
    records += [Record(json_spelling.framed(text.encode()), {}, "letter") for text in bad]
    return Case("json_schema", [RegisteredSchema(1, json.dumps(schema), "JSON", references)], columns, records, refused)


def protobuf(
    body: str,
    columns: dict[str, Column],
    good: Sequence[tuple[dict[str, Any] | bytes, dict[str, Any]]] = (),
    bad: Sequence[dict[str, Any] | bytes] = (),
    refused: str | None = None,
    imports: Sequence[str] = (),
    references: tuple[tuple[str, str], ...] = (),
    syntax: str = "proto3",
) -> Case:
    """Return a case of messages of one schema.

    Args:
        body: Body of the message `R`.
        columns: The types of its columns.
        good: Messages as values or as bytes, and their cells.
        bad: Messages that are dead letters.
        refused: A part of the message, if the schema is refused.
        imports: Files that the schema imports.
        references: Registered files among the imports.
        syntax: `proto2` or `proto3`.
    """
    imported = " ".join(f'import "{name}";' for name in imports)
    text = f'syntax = "{syntax}"; package shop; {imported} message R {{ {body} }}'
    head = struct.pack(">bI", 0, 1) + b"\0"

    def encoded(sent: dict[str, Any] | bytes) -> bytes:
        if isinstance(sent, bytes):
            return head + sent
        return head + protobuf_model.filled(message_class(text, "shop.R")(), sent).SerializeToString()

    records = [Record(encoded(sent), cells) for sent, cells in good]
    records += [Record(encoded(sent), {}, "letter") for sent in bad]
    return Case("protobuf", [RegisteredSchema(1, text, "PROTOBUF", references)], columns, records, refused)


def plain(format_: str, column: Column, good: Sequence[tuple[bytes, Any]], bad: Sequence[bytes] = ()) -> Case:
    """Return a case of messages that are one value without a schema."""
    records = [Record(value, {"value": cell}) for value, cell in good]
    return Case(format_, [], {"value": column}, records + [Record(value, {}, "letter") for value in bad])
