"""Formats `json_schema` and `json`: columns of JSON Schemas, or one column of text.

Sources: JSON Schema drafts 4 to 2020-12; RFC 8259 (JSON), RFC 3339 (dates and times). docs/types.md has the rules as a
table. Values without an exact column type are stored as JSON text.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal

from lakehouse.core.errors import SchemaError
from lakehouse.formats.budget import MAX_JSON_NESTING, Budget, nesting, require_fields, require_json, require_nesting
from lakehouse.formats.columns import distinct
from lakehouse.formats.format import MessageSchema, RegisteredFormat
from lakehouse.formats.json import json_text
from lakehouse.formats.json.json_schema import CHOICES, NAMING, Documents, Part, branches, types
from lakehouse.formats.primitive_formats import PrimitiveFormat
from lakehouse.formats.schema import RegisteredSchema, Shape

if TYPE_CHECKING:
    from pyiceberg.types import IcebergType, StructType


Kind = Literal["string", "text", "date", "timestamp", "long", "double", "boolean", "struct", "list", "map"]
"""Kind of a column: `text` is any JSON value as its text; a `map` has string keys."""

SCALARS: Mapping[str, Kind] = {"string": "string", "integer": "long", "number": "double", "boolean": "boolean"}
FORMATS: Mapping[str, Kind] = {"date": "date", "date-time": "timestamp"}
SINGLE = frozenset((*SCALARS.values(), *FORMATS.values()))
"""Kinds of messages that are one value."""


@dataclass(frozen=True)
class JsonField:
    """A property of an object, the element of a list, or the value of a map.

    `fields` are those of a struct, or the one element or value of a list or map. A `required` field must be present and
    not null. A number `of_integers` is written as an integer, which its column represents up to 2⁵³.
    """

    name: str
    kind: Kind
    fields: tuple[JsonField, ...] = ()
    required: bool = False
    comment: str | None = None
    of_integers: bool = False


class JsonSchemaFormat(RegisteredFormat):
    """JSON objects in the Confluent wire format."""

    name = "json_schema"
    decoder = "spark.codecs.json_codec:decoder"
    schema_type = "JSON"
    suffix = ".json"
    names_are_optional = True

    def reader(self, schema: MessageSchema) -> tuple[JsonField, ...]:
        return reader(schema.read_by, schema.column)

    def columns(self, reader: tuple[JsonField, ...]) -> Shape:
        return columns(reader)

    def names(self, schema: RegisteredSchema) -> tuple[str, ...]:
        parsed = self.parse(schema)
        title = parsed.get("title") if isinstance(parsed, dict) else None
        return (title,) if isinstance(title, str) and title else ()


def columns(fields: Sequence[JsonField]) -> Shape:
    """Return the columns of a return value of `reader`."""
    return Shape(_struct(fields))


def reader(schemas: Sequence[RegisteredSchema], column: str = "") -> tuple[JsonField, ...]:
    """Return the properties over all versions of a schema; only those that every version requires are required.

    Properties of the newest version come first; those that only older versions have follow, since records of old
    writers may have them.

    Args:
        schemas: The versions, oldest first.
        column: The name of the column of messages that are one value; empty if such messages are refused.
    """
    versions = [_Schema(schema).root(column) for schema in schemas]
    fields = versions[-1]
    for older in reversed(versions[:-1]):
        fields = _merged(fields, older)
    require_fields("JSON", fields)
    require_nesting("JSON", nesting(fields), MAX_JSON_NESTING)
    return fields


def is_single(schema: RegisteredSchema) -> bool:
    """Return whether messages of a schema are one value, and no objects with properties."""
    try:
        return not _Schema(schema).properties()
    except SchemaError:
        # A version that no table can have.
        return False


def written(fields: tuple[JsonField, ...], schema: RegisteredSchema, column: str = "") -> tuple[JsonField, ...]:
    """Return the fields of the columns for messages of one version, in which some numbers are integers."""
    try:
        return _with_integers(fields, _Schema(schema).root(column))
    except SchemaError:
        # A version that no table can have.
        return fields


def _with_integers(fields: tuple[JsonField, ...], version: tuple[JsonField, ...]) -> tuple[JsonField, ...]:
    before = {field.name: field for field in version}
    return tuple(
        replace(
            field,
            fields=_with_integers(field.fields, before[field.name].fields),
            of_integers=(field.kind, before[field.name].kind) == ("double", "long"),
        )
        if field.name in before
        else field
        for field in fields
    )


def _merged(newer: tuple[JsonField, ...], older: tuple[JsonField, ...], within: str = "") -> tuple[JsonField, ...]:
    """Return the fields of two versions."""
    before, names = {field.name: field for field in older}, {field.name.lower(): field.name for field in newer}
    fields = []
    for field in newer:
        old = before.get(field.name)
        if old and field.kind == "struct" and old.kind in ("map", "text"):
            raise SchemaError(
                f"Property '{within}{field.name}' allowed any properties in an older version of the JSON Schema, and "
                f"has named ones in a newer version (TYPE_MISMATCH). Values of the others would be lost. Give the new "
                f"property another name"
            )
        same = old and old.kind == field.kind
        nested = _merged(field.fields, old.fields, f"{within}{field.name}.") if old and same else field.fields
        fields.append(replace(field, fields=nested, required=field.required and old is not None and old.required))
    for field in older:
        if (name := names.get(field.name.lower(), field.name)) != field.name:
            raise SchemaError(
                f"Property '{within}{field.name}' of an older version is '{within}{name}' in a newer one of the JSON "
                f"Schema, but names of columns are case-insensitive (CASE_COLLISION). Register a version with the old "
                f"name"
            )
    return (*fields, *(replace(field, required=False) for field in older if field.name not in names.values()))


def _struct(fields: Sequence[JsonField]) -> StructType:
    from pyiceberg.types import NestedField, StructType

    columns = [NestedField(1, f.name, _type(f), required=False, doc=json_text.comment(f, f.comment)) for f in fields]
    distinct(columns)
    return StructType(*columns)


def _type(field: JsonField) -> IcebergType:
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


@dataclass(frozen=True)
class _Alternative:
    """A schema that applies to some of the values to which another one applies."""

    parts: list[Part]
    """Its parts."""
    alternatives: list[_Alternative]
    """The schemas that apply to some of its values only."""


def _nested(alternatives: list[_Alternative]) -> Iterator[_Alternative]:
    """Yield alternatives and those within them, at every depth."""
    for one in alternatives:
        yield one
        yield from _nested(one.alternatives)


class _Schema:
    """Fields of one schema and its references, collected recursively."""

    def __init__(self, schema: RegisteredSchema):
        require_json("JSON", [schema.text, *(text for _, text in schema.references)])
        try:
            whole, files = json.loads(schema.text), {name: json.loads(text) for name, text in schema.references}
        except ValueError as error:
            raise SchemaError(f"The JSON Schema is not valid JSON: {error}. Correct it") from error
        self.budget = Budget("JSON")
        self.documents = Documents(whole, files, self.budget)

    def properties(self) -> tuple[JsonField, ...]:
        """Return the properties of the whole schema; none if it is not one of objects."""
        parts = self.documents.root()
        return self.members(parts) if _allow_objects(parts) else ()

    def root(self, column: str) -> tuple[JsonField, ...]:
        """Return the properties of the whole schema, or the column of its values.

        Raises:
            SchemaError: Values are no objects, and either have no column or a type that no column of keys has.
        """
        if fields := self.properties():
            return fields
        if column and (field := self.field(column, self.documents.root(), True)).kind in SINGLE:
            return (field,)
        raise SchemaError(
            "The JSON Schema does not describe an object with properties, so it has no columns. Add 'properties'"
        )

    def field(self, name: str, parts: list[Part], required: bool) -> JsonField:
        """Return the field of values to which all of the parts apply."""
        with self.budget.level():
            kind, fields = self.kind(parts)
            required = required and not self.documents.allow_null(parts)
        comments = (part.keywords.get("description") for part in parts)
        return JsonField(name, kind, fields, required, next((text for text in comments if isinstance(text, str)), None))

    def kind(self, parts: list[Part]) -> tuple[Kind, tuple[JsonField, ...]]:
        type_ = _type_of(parts)
        match type_:
            case "object" if any(_values(parts, "properties")):
                return "struct", self.members(parts)
            case "object" if values := self.all(parts, "additionalProperties"):
                self.budget.spend_field()
                return "map", (self.value(parts, values),)
            case "array" if (items := self.all(parts, "items")) and not _has(parts, "prefixItems"):
                self.budget.spend_field()
                others = [self.all(one.parts, "items") for one in _nested(self.alternatives(parts))]
                return "list", (self.extended("element", items, False, others),)
            case "string":
                return FORMATS.get(next(_values(parts, "format"), ""), "string"), ()
            case str() if type_ in SCALARS:
                return SCALARS[type_], ()
        enums = [*_values(parts, "enum"), *([value] for value in _values(parts, "const"))]
        is_text = bool(enums) and type_ is None and all(isinstance(value, str) for value in enums[0])
        return ("string" if is_text else "text"), ()

    def members(self, parts: list[Part], alternatives: list[_Alternative] | None = None) -> tuple[JsonField, ...]:
        """Return the fields of an object. Schemas that apply to some objects only add optional fields.

        Args:
            alternatives: The schemas that apply to some objects only, if they are known already.
        """
        properties = self.inner(parts, "properties")
        required = {name for names in _values(parts, "required") for name in names}
        self.budget.spend_field(len(properties))
        alternatives = self.alternatives(parts) if alternatives is None else alternatives
        others = [self.inner(one.parts, "properties", properties) for one in _nested(alternatives)]
        fields = tuple(
            self.extended(name, inner, name in required, [other[name] for other in others if name in other])
            for name, inner in properties.items()
        )
        optional: tuple[JsonField, ...] = ()
        for one in alternatives:
            if _allow_objects(one.parts):
                with self.budget.level():
                    optional = _either(optional, self.members(one.parts, one.alternatives))
        return _extended(fields, optional)

    def extended(self, name: str, parts: list[Part], required: bool, others: list[list[Part]]) -> JsonField:
        """Return the field of values to which all parts apply, and to some values also one of the others.

        If the column has the form of objects, the others add fields to it. Other columns have all values.
        """
        field = self.field(name, parts, required)
        optional: tuple[JsonField, ...] = ()
        for other in others if field.fields else ():
            if any(NAMING & part.keywords.keys() for part in other):
                with self.budget.repeated_fields():
                    both = self.field(name, [*parts, *other], False)
                if both.kind == field.kind:
                    optional = _either(optional, _narrowed(field.fields, both.fields))
        return replace(field, fields=_extended(field.fields, optional))

    def value(self, parts: list[Part], values: list[Part]) -> JsonField:
        """Return the field of the values of a map: JSON text if properties with some names have another type."""
        others = [self.all(one.parts, "additionalProperties") for one in _nested(self.alternatives(parts))]
        field = self.extended("value", values, False, others)
        for pattern in self.inner(parts, "patternProperties").values():
            [field] = _either((field,), (self.field("value", pattern, False),))
        return field

    def alternatives(self, parts: list[Part]) -> list[_Alternative]:
        """Return the schemas that apply to some of the values only to which all parts apply."""
        alternatives = []
        for part in parts:
            for alternative in self.documents.alternatives(part):
                with self.budget.level():
                    self.budget.spend_entries(len(alternative))
                    alternatives.append(_Alternative(alternative, self.alternatives(alternative)))
        return alternatives

    def inner(self, parts: list[Part], keyword: str, names: Collection[str] | None = None) -> dict[str, list[Part]]:
        """Return the parts of the schemas in a keyword, by name, from all parts that have the keyword.

        Args:
            names: The names to return; all if None.
        """
        by_name: dict[str, list[Part]] = {}
        for part in parts:
            for name, schema in part.keywords.get(keyword, {}).items():
                if names is None or name in names:
                    by_name.setdefault(name, []).extend(self.documents.parts(schema, part))
        return by_name

    def all(self, parts: list[Part], keyword: str) -> list[Part]:
        """Return the parts of the schema of a keyword, from all parts in which the keyword is a schema."""
        schemas = ((part.keywords[keyword], part) for part in parts if isinstance(part.keywords.get(keyword), dict))
        return [inner for schema, part in schemas for inner in self.documents.parts(schema, part)]


def _allow_objects(parts: list[Part]) -> bool:
    return all("object" in types(part.keywords, "object") for part in parts)


def _type_of(parts: list[Part]) -> str | None:
    """Return the type of non-null values to which all parts apply: `many` if several, None if no part has a type."""
    alternatives = [types(part.keywords, "") - {"null"} for part in parts if "type" in part.keywords]
    if not alternatives:
        if _has(parts, "properties"):
            return "object"
        return "many" if any(len(branches(part.keywords, c)) > 1 for part in parts for c in CHOICES) else None
    numbers = [alternative | {"integer"} if "number" in alternative else alternative for alternative in alternatives]
    common = set.intersection(*numbers)
    if all("number" in alternative for alternative in alternatives):
        common -= {"integer"}
    return common.pop() if len(common) == 1 else "many"


def _values(parts: list[Part], keyword: str) -> Iterator[Any]:
    return (part.keywords[keyword] for part in parts if keyword in part.keywords)


def _has(parts: list[Part], keyword: str) -> bool:
    return any(True for _ in _values(parts, keyword))


def _either(one: tuple[JsonField, ...], other: tuple[JsonField, ...]) -> tuple[JsonField, ...]:
    """Return the fields of two alternatives; those that differ in kind are JSON text."""
    by_name = {field.name: field for field in one}
    for field in other:
        known = by_name.get(field.name)
        if known and known.kind == field.kind:
            field = replace(field, fields=_either(known.fields, field.fields), comment=known.comment or field.comment)
        elif known:
            field = replace(field, kind="text", fields=())
        by_name[field.name] = field
    return tuple(by_name.values())


def _narrowed(fields: tuple[JsonField, ...], narrower: tuple[JsonField, ...]) -> tuple[JsonField, ...]:
    """Return fields to which further schemas apply, with the kinds of the fields without them."""
    known = {field.name: field for field in fields}
    return tuple(
        field
        if field.name not in known
        else replace(field, fields=_narrowed(known[field.name].fields, field.fields))
        if known[field.name].kind == field.kind
        else known[field.name]
        for field in narrower
    )


def _extended(fields: tuple[JsonField, ...], optional: tuple[JsonField, ...]) -> tuple[JsonField, ...]:
    """Return fields extended by those that apply to some values only, which become optional."""
    others = {field.name: field for field in optional}
    known = tuple(
        replace(field, fields=_extended(field.fields, others[field.name].fields))
        if field.name in others and others[field.name].kind == field.kind
        else field
        for field in fields
    )
    names = {field.name for field in fields}
    return (*known, *(_optional(field) for field in optional if field.name not in names))


def _optional(field: JsonField) -> JsonField:
    return replace(field, required=False, fields=tuple(_optional(inner) for inner in field.fields))


class JsonFormat(PrimitiveFormat):
    """JSON text."""

    name = "json"
    decoder = "spark.codecs.plain_codecs:json"
    type = "string"
    is_scalar = False
    file_type = "JSON"

    def reader(self, schema: MessageSchema) -> Any:
        return reader(schema.read_by) if schema.read_by else super().reader(schema)

    def columns(self, reader: Any) -> Shape:
        return super().columns(reader) if isinstance(reader, str) else columns(reader)
