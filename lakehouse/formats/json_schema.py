"""JSON Schemas as columns.

Sources: JSON Schema drafts 4 to 2020-12; RFC 8259 (JSON), RFC 3339 (dates and times). docs/types.md has the rules as a
table. What has no exact column keeps its JSON text.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal

from lakehouse.core.errors import SchemaError
from lakehouse.formats import json_text
from lakehouse.formats.budget import MAX_JSON_NESTING, Budget, nesting, require_fields, require_json, require_nesting
from lakehouse.formats.columns import distinct
from lakehouse.formats.format import MessageSchema, RegisteredFormat
from lakehouse.formats.json_parts import CHOICES, Documents, Part, branches, types
from lakehouse.formats.schema import RegisteredSchema, Shape

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


class JsonSchemaFormat(RegisteredFormat):
    """JSON objects in the Confluent wire format."""

    name = "json_schema"
    decoder = "spark.json:decoder"
    schema_type = "JSON"
    suffix = ".json"
    names_are_optional = True

    def reader(self, schema: MessageSchema) -> tuple[Field, ...]:
        """Return the properties over all versions."""
        return reader(schema.read_by)

    def columns(self, reader: tuple[Field, ...]) -> Shape:
        """Return a column a property."""
        return columns(reader)

    def names(self, schema: RegisteredSchema) -> tuple[str, ...]:
        """Return the title."""
        parsed = self.parse(schema)
        title = parsed.get("title") if isinstance(parsed, dict) else None
        return (title,) if isinstance(title, str) and title else ()


def shape(schemas: Sequence[RegisteredSchema]) -> Shape:
    """The columns of a subject's records, by the versions of its schema, oldest first.

    The newest version says what there is; properties of older ones follow, since records of old writers may have them.

    Raises: SchemaError for what is no object with properties, is recursive, or refers to what is not there.
    """
    return columns(reader(schemas))


def columns(fields: Sequence[Field]) -> Shape:
    """The columns of properties, as `reader` returns them."""
    return Shape(_struct(fields))


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


def _merged(newer: tuple[Field, ...], older: tuple[Field, ...], within: str = "") -> tuple[Field, ...]:
    """The fields of two versions, of which records name the ones they have.

    Raises: SchemaError where values of the older version would be left out.
    """
    before, names = {field.name: field for field in older}, {field.name.lower(): field.name for field in newer}
    fields = []
    for field in newer:
        old = before.get(field.name)
        if old and field.kind == "struct" and old.kind in ("map", "text"):
            raise SchemaError(
                f"Property '{within}{field.name}' of an older version of the JSON Schema had any properties, and has "
                f"only those that it names in a newer one. Values of the others would be lost. Give the new property "
                f"another name"
            )
        same = old and old.kind == field.kind
        nested = _merged(field.fields, old.fields, f"{within}{field.name}.") if old and same else field.fields
        fields.append(replace(field, fields=nested, required=field.required and old is not None and old.required))
    for field in older:
        if (name := names.get(field.name.lower(), field.name)) != field.name:
            raise SchemaError(
                f"Property '{within}{field.name}' of an older version is '{within}{name}' in a newer one of the JSON "
                f"Schema. Columns differ by more than case. Register a version that has the property under its old name"
            )
    return (*fields, *(replace(field, required=False) for field in older if field.name not in names.values()))


def _struct(fields: Sequence[Field]) -> StructType:
    from pyiceberg.types import NestedField, StructType

    made = [NestedField(1, f.name, _type(f), required=False, doc=json_text.comment(f, f.comment)) for f in fields]
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
            whole, files = json.loads(schema.text), {name: json.loads(text) for name, text in schema.references}
        except ValueError as error:
            raise SchemaError(f"The JSON Schema is not valid JSON: {error}. Correct it") from error
        self.budget = Budget("JSON")
        self.documents = Documents(whole, files, self.budget)

    def root(self) -> tuple[Field, ...]:
        try:
            parts = self.documents.root()
            kind, fields = self.kind(parts)
        except (TypeError, ValueError, AttributeError) as error:
            # A keyword has a value of another type than JSON Schema gives it.
            raise SchemaError(f"The JSON Schema is not valid: {error}. Correct it") from error
        if kind != "struct":
            found = next((choice for part in parts for choice in CHOICES if choice in part.keywords), None)
            reason = f": '{found}' has alternatives, and no 'properties' stand beside it" if found else ""
            raise SchemaError(f"The JSON Schema is of no object with properties, so it has no columns{reason}")
        return fields

    def field(self, name: str, parts: list[Part], required: bool) -> Field:
        """The field for values to which all of these parts apply."""
        with self.budget.level():
            kind, fields = self.kind(parts)
            required = required and not self.documents.allow_null(parts)
        comments = (part.keywords.get("description") for part in parts)
        return Field(name, kind, fields, required, next((text for text in comments if isinstance(text, str)), None))

    def kind(self, parts: list[Part]) -> tuple[Kind, tuple[Field, ...]]:
        type_ = _type_of(parts)
        properties = self.inner(parts, "properties")
        match type_:
            case "object" if properties:
                return "struct", self.members(parts, properties)
            case "object" if values := self.all(parts, "additionalProperties"):
                self.budget.spend_field()
                return "map", (self.field("value", values, False),)
            case "array" if (items := self.all(parts, "items")) and not _says(parts, "prefixItems"):
                self.budget.spend_field()
                return "list", (self.field("element", items, False),)
            case "string":
                return FORMATS.get(next(_said(parts, "format"), ""), "string"), ()
            case str() if type_ in SCALARS:
                return SCALARS[type_], ()
        listed = [*_said(parts, "enum"), *([value] for value in _said(parts, "const"))]
        is_text = bool(listed) and type_ is None and all(isinstance(value, str) for value in listed[0])
        return ("string" if is_text else "text"), ()

    def members(self, parts: list[Part], properties: Mapping[str, list[Part]]) -> tuple[Field, ...]:
        """The fields of an object. What applies to some objects only adds fields, of which none is required."""
        required = {name for names in _said(parts, "required") for name in names}
        self.budget.spend_field(len(properties))
        fields = tuple(self.field(name, found, name in required) for name, found in properties.items())
        more: tuple[Field, ...] = ()
        for part in parts:
            for alternative in self.documents.alternatives(part):
                with self.budget.level():
                    self.budget.spend_entries(len(alternative))
                    kind, found = self.kind(alternative)
                more = _either(more, found) if kind == "struct" else more
        return _extended(fields, more)

    def inner(self, parts: list[Part], keyword: str) -> dict[str, list[Part]]:
        """The parts of each schema that a keyword names, from all parts that have it."""
        found: dict[str, list[Part]] = {}
        for part in parts:
            for name, schema in part.keywords.get(keyword, {}).items():
                found.setdefault(name, []).extend(self.documents.parts(schema, part))
        return found

    def all(self, parts: list[Part], keyword: str) -> list[Part]:
        """The parts of the schemas that a keyword has, from all parts in which it is a schema."""
        schemas = ((part.keywords[keyword], part) for part in parts if isinstance(part.keywords.get(keyword), dict))
        return [one for schema, part in schemas for one in self.documents.parts(schema, part)]


def _type_of(parts: list[Part]) -> str | None:
    """The one type that values to which all parts apply have besides null; `many` if there are several, and None if no
    part says."""
    stated = [types(part.keywords, "") - {"null"} for part in parts if "type" in part.keywords]
    if not stated:
        if _says(parts, "properties"):
            return "object"
        return "many" if any(len(branches(part.keywords, c)) > 1 for part in parts for c in CHOICES) else None
    numbers = [each | {"integer"} if "number" in each else each for each in stated]
    common = set.intersection(*numbers)
    if all("number" in each for each in stated):
        common -= {"integer"}
    return common.pop() if len(common) == 1 else "many"


def _said(parts: list[Part], keyword: str) -> Iterator[Any]:
    return (part.keywords[keyword] for part in parts if keyword in part.keywords)


def _says(parts: list[Part], keyword: str) -> bool:
    return any(True for _ in _said(parts, keyword))


def _either(one: tuple[Field, ...], other: tuple[Field, ...]) -> tuple[Field, ...]:
    """The fields of objects of which some have these and some those: JSON text where the two differ in kind."""
    by_name = {field.name: field for field in one}
    for field in other:
        known = by_name.get(field.name)
        if known and known.kind == field.kind:
            field = replace(field, fields=_either(known.fields, field.fields), comment=known.comment or field.comment)
        elif known:
            field = replace(field, kind="text", fields=())
        by_name[field.name] = field
    return tuple(by_name.values())


def _extended(fields: tuple[Field, ...], more: tuple[Field, ...]) -> tuple[Field, ...]:
    """Fields with what applies to some values only, none of which is required."""
    others = {field.name: field for field in more}
    known = tuple(
        replace(field, fields=_extended(field.fields, others[field.name].fields))
        if field.name in others and others[field.name].kind == field.kind
        else field
        for field in fields
    )
    names = {field.name for field in fields}
    return (*known, *(_optional(field) for field in more if field.name not in names))


def _optional(field: Field) -> Field:
    return replace(field, required=False, fields=tuple(_optional(inner) for inner in field.fields))
