"""JSON Schemas as columns.

Sources: JSON Schema drafts 4 to 2020-12; RFC 8259 (JSON), RFC 3339 (dates and times). docs/types.md has the rules as a
table. What has no exact column keeps its JSON text.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal

from lakehouse.budget import (
    MAX_DEPTH,
    MAX_JSON_NESTING,
    Budget,
    nesting,
    require_fields,
    require_json,
    require_nesting,
)
from lakehouse.columns import distinct
from lakehouse.errors import SchemaError
from lakehouse.schema import RegisteredSchema, Shape

if TYPE_CHECKING:
    from pyiceberg.types import IcebergType, StructType

Kind = Literal["string", "text", "date", "timestamp", "long", "double", "boolean", "struct", "list", "map"]
"""`text` is any JSON value as its text; a `map` has string keys."""

SCALARS: Mapping[str, Kind] = {"string": "string", "integer": "long", "number": "double", "boolean": "boolean"}
FORMATS: Mapping[str, Kind] = {"date": "date", "date-time": "timestamp"}


@dataclass(frozen=True)
class Field:
    """A property of an object, or what a list or map holds. `fields` are a struct's, or the one item of a list or map;
    a `required` one must be there and not null."""

    name: str
    kind: Kind
    fields: tuple[Field, ...] = ()
    required: bool = False
    comment: str | None = None


def shape(schemas: Sequence[RegisteredSchema]) -> Shape:
    """The columns of a subject's records, by the versions of its schema, oldest first.

    The newest version says what there is; properties of older ones follow, since records of old writers may have them.

    Raises: SchemaError for what is no object with properties, is recursive, or refers to what is not there.
    """
    return Shape(_struct(reader(schemas)))


def reader(schemas: Sequence[RegisteredSchema]) -> tuple[Field, ...]:
    """The properties over all versions of a schema, as `shape` describes them. Only what every version requires is
    required."""
    versions = [_Schema(schema).root() for schema in schemas]
    fields = versions[-1]
    for older in reversed(versions[:-1]):
        fields = _merged(fields, older)
    require_fields("JSON", fields)
    require_nesting("JSON", nesting(fields), MAX_JSON_NESTING)
    return fields


def _merged(newer: tuple[Field, ...], older: tuple[Field, ...]) -> tuple[Field, ...]:
    before, taken = {field.name: field for field in older}, {field.name.lower() for field in newer}
    fields = []
    for field in newer:
        old = before.get(field.name)
        nested = _merged(field.fields, old.fields) if old and old.kind == field.kind else field.fields
        fields.append(replace(field, fields=nested, required=field.required and old is not None and old.required))
    return (*fields, *(replace(field, required=False) for field in older if field.name.lower() not in taken))


def _struct(fields: Sequence[Field]) -> StructType:
    from pyiceberg.types import NestedField, StructType

    made = [NestedField(1, f.name, _type(f), required=False, doc=f.comment) for f in fields]
    distinct(made)
    return StructType(*made)


def _type(field: Field) -> IcebergType:
    from pyiceberg import types as t

    match field.kind:
        case "struct":
            return _struct(field.fields)
        case "list":
            return t.ListType(1, _type(field.fields[0]), element_required=False)
        case "map":
            return t.MapType(1, t.StringType(), 2, _type(field.fields[0]), value_required=False)
    return {
        "date": t.DateType(),
        "timestamp": t.TimestamptzType(),
        "long": t.LongType(),
        "double": t.DoubleType(),
        "boolean": t.BooleanType(),
    }.get(field.kind, t.StringType())


class _Schema:
    """One walk over a schema and what it refers to."""

    def __init__(self, schema: RegisteredSchema):
        require_json("JSON", [schema.text, *(text for _, text in schema.references)])
        try:
            self.whole = json.loads(schema.text)
            self.files = {name: json.loads(text) for name, text in schema.references}
        except ValueError as error:
            raise SchemaError(f"The JSON Schema is not valid JSON: {error}. Correct it") from error
        self.open: list[tuple[int, str]] = []
        self.budget = Budget("JSON")

    def root(self) -> tuple[Field, ...]:
        try:
            field = self.field("", self.whole, self.whole, False)
        except (TypeError, ValueError, AttributeError) as error:
            # A keyword has a value of another type than JSON Schema gives it.
            raise SchemaError(f"The JSON Schema is not valid: {error}. Correct it") from error
        if field.kind != "struct":
            raise SchemaError("The JSON Schema is of no object with properties, so it has no columns")
        return field.fields

    def field(self, name: str, schema: Any, file: Any, required: bool) -> Field:
        """Parameters: `file` is the document that local references of `schema` are in."""
        if not isinstance(schema, dict):
            return Field(name, "text", required=required)
        self.budget.spend_entries(_keywords(schema))
        with self.budget.level():
            if "$ref" in schema:
                return self.referred(name, schema["$ref"], file, required)
            comment = schema["description"] if isinstance(schema.get("description"), str) else None
            if "allOf" in schema:
                schema = self.all_of(schema, file)
            nullable, only = _without_null(schema)
            if nullable:
                required = False
            if only is not schema:
                return replace(self.field(name, only, file, required), comment=comment)
            kind, fields = self.kind(schema, file)
        return Field(name, kind, fields, required, comment)

    def kind(self, schema: dict[str, Any], file: Any) -> tuple[Kind, tuple[Field, ...]]:
        type_ = schema.get("type", "object" if "properties" in schema else None)
        match type_:
            case "object" if schema.get("properties"):
                required, properties = set(schema.get("required", ())), schema["properties"]
                self.budget.spend_field(len(properties))
                return "struct", tuple(self.field(n, s, file, n in required) for n, s in properties.items())
            case "object" if isinstance(schema.get("additionalProperties"), dict):
                self.budget.spend_field()
                return "map", (self.field("value", schema["additionalProperties"], file, False),)
            case "array" if isinstance(schema.get("items"), dict) and "prefixItems" not in schema:
                self.budget.spend_field()
                return "list", (self.field("element", schema["items"], file, False),)
            case "string":
                return FORMATS.get(schema.get("format", ""), "string"), ()
            case str() if type_ in SCALARS:
                return SCALARS[type_], ()
        values = schema.get("enum", [schema["const"]] if "const" in schema else [0])
        return ("string" if all(isinstance(value, str) for value in values) else "text"), ()

    def referred(self, name: str, reference: str, file: Any, required: bool) -> Field:
        """A `$ref` into this document or one registered beside it; nothing is fetched from anywhere."""
        document, _, pointer = reference.partition("#")
        if document and document not in self.files:
            raise SchemaError(f"The JSON Schema refers to '{document}', which is not registered as its reference")
        file = self.files[document] if document else file
        if (id(file), pointer) in self.open:
            raise SchemaError(f"JSON Schema '{reference}' refers to itself; Iceberg has no recursive types")
        self.budget.spend_entries(pointer.count("/"))
        found = file
        for part in pointer.strip("/").split("/") if pointer.strip("/") else ():
            found = found.get(part.replace("~1", "/").replace("~0", "~")) if isinstance(found, dict) else None
        if found is None:
            raise SchemaError(f"The JSON Schema refers to '{reference}', where nothing is. Correct it")
        self.open.append((id(file), pointer))
        field = self.field(name, found, file, required)
        self.open.pop()
        return field

    def all_of(self, schema: dict[str, Any], file: Any) -> dict[str, Any]:
        """The schema with the properties of everything that it is all of."""
        parts = [{key: value for key, value in schema.items() if key != "allOf"}]
        for part in schema["allOf"]:
            for _ in range(MAX_DEPTH):
                if not isinstance(part, dict) or not str(part.get("$ref", "")).startswith("#/"):
                    break
                self.budget.spend_entries(part["$ref"].count("/"))
                found = file
                for step in part["$ref"][2:].split("/"):
                    found = found.get(step, {}) if isinstance(found, dict) else {}
                part = found
            if not isinstance(part, dict):
                continue
            self.budget.spend_entries(_keywords(part))
            with self.budget.level():
                parts.append(self.all_of(part, file) if "allOf" in part else part)
        merged: dict[str, Any] = {}
        properties: dict[str, Any] = {}
        # What comes first wins.
        for part in reversed(parts):
            merged |= part
            properties |= part.get("properties", {})
        required = [name for part in parts for name in part.get("required", ())]
        merged |= {"properties": properties, "required": required}
        return {key: value for key, value in merged.items() if value or key not in ("properties", "required")}


def _keywords(schema: dict[str, Any]) -> int:
    """How much one schema says at its own level: its keywords, and what each of them lists."""
    return sum(1 + (len(value) if isinstance(value, dict | list) else 0) for value in schema.values())


def _without_null(schema: dict[str, Any]) -> tuple[bool, Any]:
    """Whether null is allowed, and the one type there is besides; the schema itself where that says it."""
    for choice in ("oneOf", "anyOf"):
        branches = schema.get(choice)
        if isinstance(branches, list):
            others = [branch for branch in branches if branch != {"type": "null"}]
            if len(others) == 1:
                return len(others) < len(branches), others[0]
            # Several types have no one column: their JSON text is kept.
            return len(others) < len(branches), True
    types = schema.get("type")
    if isinstance(types, list):
        others = [type_ for type_ in types if type_ != "null"]
        only = {**schema, "type": others[0]} if len(others) == 1 else True
        return "null" in types, only
    return types == "null", True if types == "null" else schema
