"""JSON Schemas: validity of keywords, targets of references, and all schemas that apply to one value.

Sources: JSON Schema drafts 4 to 2020-12 (`$ref`, `allOf`, `anyOf`, `oneOf`, `if`, `dependentSchemas`) with their
metaschemas; JSON Schema Core, 8.2 (`$id` and `$anchor`; `id` in draft 4); RFC 6901 (pointers); RFC 3986 (URIs).
Keywords without an effect on columns are not checked.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote, urljoin

from lakehouse.core.errors import SchemaError
from lakehouse.formats.budget import Budget

if TYPE_CHECKING:
    from pydantic import JsonValue


EXCLUSIVE = re.compile(r"draft-0[3-7]\b")
"""Drafts, by their `$schema`, in which validators ignore the other keywords of a schema with a `$ref`."""


@dataclass(frozen=True)
class SchemaResource:
    """A schema with an address of its own: a document, or a schema with an `$id` within one."""

    schema: JsonValue
    """The schema, whose pointers and anchors the references within it use."""
    uri: str
    """The address, to which the references within it are relative; empty if unknown."""
    dialect: str
    """Its `$schema`, or else that of the schema around it; empty if unknown."""

    @property
    def has_exclusive_references(self) -> bool:
        """True if keywords beside a `$ref` are ignored."""
        return bool(EXCLUSIVE.search(self.dialect))


class SchemaReferences:
    """A schema and the documents that are registered as its references. Nothing is fetched from elsewhere."""

    def __init__(self, whole: JsonValue, files: Mapping[str, JsonValue], budget: Budget):
        self._budget = budget
        self._by_uri: dict[str, list[SchemaResource]] = {}
        self._by_schema: dict[int, SchemaResource] = {}
        dialect = _dialect(whole, "")
        self.root = self._add(whole, "", dialect)
        self._files = {name: self._add(document, name, dialect) for name, document in files.items()}

    def around(self, schema: JsonValue, outer: SchemaResource) -> SchemaResource:
        """Return the resource that a schema is, or else the one around it."""
        return self._by_schema.get(id(schema), outer) if isinstance(schema, dict) else outer

    def target(self, reference: str, within: SchemaResource) -> tuple[JsonValue, SchemaResource]:
        """Return the target of a `$ref`, and the resource in which it is."""
        name, _, fragment = reference.partition("#")
        resource, fragment = self._resource(name, within) if name else within, unquote(fragment)
        if "/" in fragment:
            target, resource = self._pointed(resource, fragment)
        else:
            target = self._anchored(resource, fragment)
        if not isinstance(target, dict | bool):
            what = "does not exist" if target is None else "is no schema"
            raise SchemaError(f"The JSON Schema refers to '{reference}', which {what}. Correct it")
        return target, resource

    def pointer(self, schema: JsonValue) -> str:
        """Return the pointer to a schema, with the name of the registered reference that contains it."""
        stack = [(f"{name}#", file.schema) for name, file in self._files.items()] + [("#", self.root.schema)]
        while stack:
            pointer, value = stack.pop()
            if value is schema:
                return pointer
            stack.extend((f"{pointer}/{escaped(key)}", inner) for key, inner in items(value))
        return "#"

    def _add(self, document: JsonValue, uri: str, dialect: str) -> SchemaResource:
        """Add a document and the schemas with an `$id` within it."""
        root = SchemaResource(document, _joined(uri, _id(document)), _dialect(document, dialect))
        self._put(root)
        stack = [(inner, root) for _, inner in items(document)]
        while stack:
            schema, outer = stack.pop()
            if uri := _id(schema, outer):
                outer = SchemaResource(schema, _joined(outer.uri, uri), _dialect(schema, outer.dialect))
                self._put(outer)
            stack.extend((inner, outer) for _, inner in items(schema))
        return root

    def _put(self, resource: SchemaResource) -> None:
        self._by_schema[id(resource.schema)] = resource
        known = self._by_uri.setdefault(resource.uri, [])
        # Two are enough to refuse a reference to them.
        if len(known) < 2 and all(resource.schema != other.schema for other in known):
            known.append(resource)

    def _resource(self, name: str, within: SchemaResource) -> SchemaResource:
        if name in self._files:
            return self._files[name]
        uri = _joined(within.uri, name)
        for resources in (self._by_uri.get(uri, []), self._by_uri.get(name, [])):
            if len(resources) > 1:
                raise SchemaError(
                    f"The JSON Schema refers to '{name}', which several schemas have as '$id'. Rename one"
                )
            if resources:
                return resources[0]
        if uri in self._files:
            return self._files[uri]
        raise SchemaError(
            f"The JSON Schema refers to '{name}', which is not registered as its reference. Register the reference"
        )

    def _pointed(self, resource: SchemaResource, pointer: str) -> tuple[JsonValue, SchemaResource]:
        value, tokens = resource.schema, pointer.removeprefix("/").split("/")
        self._budget.spend_entries(len(tokens))
        for token in tokens:
            key = token.replace("~1", "/").replace("~0", "~")
            if isinstance(value, dict):
                value = value.get(key)
            elif isinstance(value, list) and key.isdecimal() and int(key) < len(value):
                value = value[int(key)]
            else:
                return None, resource
            resource = self.around(value, resource)
        return value, resource

    def _anchored(self, resource: SchemaResource, anchor: str) -> JsonValue:
        """Return the schema with the anchor in a resource; the resource itself if the anchor is empty."""
        if not anchor:
            return resource.schema
        stack = [resource.schema]
        while stack:
            schema = stack.pop()
            if self.around(schema, resource) is not resource:
                continue
            if isinstance(schema, dict):
                self._budget.spend_entries(entries(schema))
                if schema.get("$anchor") == anchor or schema.get("$id", schema.get("id")) == f"#{anchor}":
                    return schema
            stack.extend(inner for _, inner in items(schema))
        return None


def entries(schema: dict[str, JsonValue]) -> int:
    """Return the number of keywords of one schema and of their immediate entries."""
    return sum(1 + (len(value) if isinstance(value, dict | list) else 0) for value in schema.values())


def escaped(key: str | int) -> str:
    """Return one step of a pointer (RFC 6901, 3)."""
    return str(key).replace("~", "~0").replace("/", "~1")


def items(value: JsonValue) -> Iterator[tuple[str | int, JsonValue]]:
    """Yield the members of an object by name, or the items of a list by position; none of other values."""
    if isinstance(value, dict):
        yield from value.items()
    elif isinstance(value, list):
        yield from enumerate(value)


def _id(schema: JsonValue, outer: SchemaResource | None = None) -> str:
    """Return the `$id` of a document, or of a schema in a resource; empty if it has none, or only an anchor."""
    if not isinstance(schema, dict) or (outer and outer.has_exclusive_references and "$ref" in schema):
        return ""
    # Any document may have draft 4's `id`; in a schema of a later draft, it is no keyword.
    may_be_old = outer is None or "draft-04" in outer.dialect
    uri = schema.get("$id", schema.get("id") if may_be_old else None)
    name, _, fragment = uri.partition("#") if isinstance(uri, str) else ("", "", "")
    return "" if fragment else name


def _dialect(schema: JsonValue, outer: str) -> str:
    dialect = schema.get("$schema") if isinstance(schema, dict) else None
    return dialect if isinstance(dialect, str) else outer


def _joined(base: str, uri: str) -> str:
    try:
        return urljoin(base, uri)
    except ValueError as error:
        raise SchemaError(f"The JSON Schema has '{uri}', which is not a valid URI. Correct it") from error


TYPES = ("array", "boolean", "integer", "null", "number", "object", "string")

Check = tuple[Callable[[object], bool], str]
"""A condition on a value, and what it requires."""


def _is_schema(value: object) -> bool:
    return isinstance(value, dict | bool)


def _is_text(value: object) -> bool:
    return isinstance(value, str)


def _is_list(value: object) -> bool:
    return isinstance(value, list)


def _is_names(value: object) -> bool:
    return isinstance(value, list) and all(isinstance(name, str) for name in value)


def _is_type(value: object) -> bool:
    names = value if isinstance(value, list) else [value]
    return bool(names) and all(isinstance(name, str) and name in TYPES for name in names)


SCHEMA: Check = (_is_schema, "a schema, which is an object, true or false")
TEXT: Check = (_is_text, "text")
LIST: Check = (_is_list, "a list")
OBJECT: Check = (lambda value: isinstance(value, dict), "an object")

KEYWORDS: Mapping[str, Check] = {
    **dict.fromkeys(("$schema", "$id", "$ref", "$anchor", "format"), TEXT),
    **dict.fromkeys(("additionalProperties", "if", "then", "else"), SCHEMA),
    **dict.fromkeys(("enum", "allOf", "anyOf", "oneOf"), LIST),
    **dict.fromkeys(("properties", "patternProperties", "dependentSchemas", "dependencies"), OBJECT),
    "items": (lambda value: _is_schema(value) or _is_list(value), "a schema or a list of schemas"),
    "required": (_is_names, "a list of names"),
    "type": (_is_type, f"one or several of {', '.join(TYPES)}"),
}
MEMBERS: Mapping[str, Check] = {
    **dict.fromkeys(("properties", "patternProperties", "dependentSchemas", "allOf", "anyOf", "oneOf"), SCHEMA),
    "dependencies": (lambda value: _is_schema(value) or _is_names(value), "a schema or a list of names"),
}
"""Checks of keywords, and of the members of keywords."""


def fault(schema: JsonValue) -> tuple[str, str] | None:
    """Return the first keyword of a schema that is not valid; None if there is none. Nested schemas are not checked.

    Returns:
        The pointer to the keyword within the schema, and the rule that its value violates.
    """
    if not _is_schema(schema):
        return "", SCHEMA[1]
    if not isinstance(schema, dict):
        return None
    for keyword in KEYWORDS:
        if keyword not in schema:
            continue
        value = schema[keyword]
        is_valid, rule = KEYWORDS[keyword]
        if not is_valid(value):
            return f"/{keyword}", rule
        if keyword in MEMBERS:
            is_valid, rule = MEMBERS[keyword]
            invalid = [key for key, member in items(value) if not is_valid(member)]
            if invalid:
                return f"/{keyword}/{escaped(invalid[0])}", rule
    return None


CHOICES = ("oneOf", "anyOf")
CONDITIONS = ("if", "then", "else")
DEPENDENT = ("dependentSchemas", "dependencies")
NAMING = frozenset(("properties", "items", "additionalProperties", *CHOICES, *CONDITIONS, *DEPENDENT))
"""Keywords that may add names of properties. The targets of `$ref` and `allOf` are parts of their own."""


@dataclass(frozen=True)
class Part:
    """One of the schemas that apply to a value."""

    keywords: Mapping[str, Any]
    """The keywords of the schema. The targets of its `$ref` and `allOf` are parts of their own."""
    resource: SchemaResource
    """The resource in which its references are resolved."""
    opened: frozenset[int] = frozenset()
    """The references on the way to this part, as ids of their targets, to detect recursion."""
    is_choice: bool = False
    """Whether it applies to all values but null, as the only other branch of a `oneOf` or `anyOf`."""


class Documents:
    """A schema and the documents that are registered as its references. Nothing is fetched from elsewhere."""

    def __init__(self, whole: JsonValue, files: Mapping[str, JsonValue], budget: Budget):
        self._whole, self._budget = whole, budget
        self._references = SchemaReferences(whole, files, budget)

    def root(self) -> list[Part]:
        """Return the parts of the whole schema."""
        return self.parts(self._whole, Part({}, self._references.root))

    def parts(self, schema: JsonValue, within: Part) -> list[Part]:
        """Return the parts of a subschema; none if it allows everything."""
        parts: list[Part] = []
        self._collect(schema, Part({}, within.resource, within.opened), parts)
        return parts

    def alternatives(self, part: Part) -> Iterator[list[Part]]:
        """Yield the parts of each schema that applies to some values only: branches, conditions, dependent schemas."""
        for choice in CHOICES:
            if len(alternatives := branches(part.keywords, choice)) > 1:
                yield from (self.parts(branch, part) for branch in alternatives)
        yield from (self.parts(part.keywords[name], part) for name in CONDITIONS if name in part.keywords)
        for name in DEPENDENT:
            for schema in part.keywords.get(name, {}).values():
                if isinstance(schema, dict):
                    yield self.parts(schema, part)

    def allow_null(self, parts: list[Part]) -> bool:
        """Return whether null is valid for a value to which all of the parts apply."""
        return all(self._allows_null(part) for part in parts if not part.is_choice)

    def _allows_null(self, part: Part) -> bool:
        keywords = part.keywords
        if "const" in keywords and keywords["const"] is not None:
            return False
        if "enum" in keywords and None not in keywords["enum"]:
            return False
        # A schema with properties is one of objects even without a type.
        if "null" not in types(keywords, "object" if "properties" in keywords else "null"):
            return False
        for choice in CHOICES:
            if choice in keywords and not any(self.allow_null(self.parts(one, part)) for one in keywords[choice]):
                return False
        return True

    def _collect(self, schema: JsonValue, within: Part, parts: list[Part]) -> None:
        if invalid := fault(schema):
            place, rule = invalid
            pointer = self._references.pointer(schema) + place
            raise SchemaError(f"The JSON Schema is not valid at '{pointer}': it must be {rule}. Correct it")
        if not isinstance(schema, dict):
            return
        self._budget.spend_entries(entries(schema))
        for unsupported in ("$dynamicRef", "$recursiveRef"):
            if unsupported in schema:
                raise SchemaError(f"The JSON Schema has '{unsupported}', which is not supported. Use '$ref'")
        with self._budget.level():
            resource = self._references.around(schema, within.resource)
            is_reference = "$ref" in schema and resource.has_exclusive_references
            valid: dict[str, Any] = schema
            keywords = {key: valid[key] for key in ("description",) if key in valid} if is_reference else valid
            part = Part(keywords, resource, within.opened, within.is_choice)
            parts.append(part)
            if "$ref" in schema:
                self._collect(*self._resolved(valid["$ref"], part), parts)
            for schemas in keywords.get("allOf", ()):
                self._collect(schemas, part, parts)
            for choice in CHOICES:
                if len(alternatives := branches(keywords, choice)) == 1:
                    self._collect(alternatives[0], replace(part, is_choice=True), parts)

    def _resolved(self, reference: str, within: Part) -> tuple[JsonValue, Part]:
        """Return the target of a `$ref`, and a Part with its resource."""
        target, resource = self._references.target(reference, within.resource)
        if id(target) in within.opened:
            raise SchemaError(
                f"JSON Schema '{reference}' refers to itself, but Iceberg has no recursive types. Remove the "
                f"recursion, or declare the property without a type"
            )
        return target, replace(within, resource=resource, opened=within.opened | {id(target)})


def types(keywords: Mapping[str, Any], otherwise: str) -> set[str]:
    """Return the types of a schema, or `otherwise` if it has none."""
    type_ = keywords.get("type", otherwise)
    return {type_} if isinstance(type_, str) else set(type_)


def branches(keywords: Mapping[str, Any], choice: str) -> list[Any]:
    """Return the branches of a `oneOf` or `anyOf`, without those that only null matches."""
    return [one for one in keywords.get(choice, ()) if not _is_null(one)]


def _is_null(schema: JsonValue) -> bool:
    if not isinstance(schema, dict):
        return False
    is_constant = schema.get("enum") == [None] or ("const" in schema and schema["const"] is None)
    return is_constant or schema.get("type") in ("null", ["null"])
