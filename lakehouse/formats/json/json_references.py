"""References within and between JSON Schemas: the targets of `$ref`.

Sources: JSON Schema Core, 8.2 (`$id` and `$anchor`; `id` in draft 4), RFC 6901 (pointers), RFC 3986 (URIs).
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING
from urllib.parse import unquote, urljoin

from lakehouse.core.errors import SchemaError
from lakehouse.formats.budget import Budget

if TYPE_CHECKING:
    from pydantic import JsonValue

EXCLUSIVE = re.compile(r"draft-0[3-7]\b")
"""Drafts, by their `$schema`, in which validators ignore the other keywords of a schema with a `$ref`."""


@dataclass(frozen=True)
class Resource:
    """A schema with an address of its own: a document, or a schema with an `$id` within one.

    Attributes:
        schema: The schema, whose pointers and anchors the references within it use.
        uri: The address, to which the references within it are relative; empty if unknown.
        dialect: Its `$schema`, or else that of the schema around it; empty if unknown.
    """

    schema: JsonValue
    uri: str
    dialect: str

    @property
    def has_exclusive_references(self) -> bool:
        """True if keywords beside a `$ref` are ignored."""
        return bool(EXCLUSIVE.search(self.dialect))


class References:
    """A schema and the documents that are registered as its references. Nothing is fetched from elsewhere.

    Args:
        whole: The schema.
        files: The documents by reference name.
        budget: The counters of this schema.
    """

    def __init__(self, whole: JsonValue, files: Mapping[str, JsonValue], budget: Budget):
        self._budget = budget
        self._by_uri: dict[str, list[Resource]] = {}
        self._by_schema: dict[int, Resource] = {}
        dialect = _dialect(whole, "")
        self.root = self._add(whole, "", dialect)
        self._files = {name: self._add(document, name, dialect) for name, document in files.items()}

    def around(self, schema: JsonValue, outer: Resource) -> Resource:
        """Return the resource that a schema is, or else the one around it."""
        return self._by_schema.get(id(schema), outer) if isinstance(schema, dict) else outer

    def target(self, reference: str, within: Resource) -> tuple[JsonValue, Resource]:
        """Return the target of a `$ref`, and the resource in which it is.

        Raises:
            SchemaError: It does not exist, or is no schema.
        """
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

    def _add(self, document: JsonValue, uri: str, dialect: str) -> Resource:
        """Add a document and the schemas with an `$id` within it."""
        root = Resource(document, _joined(uri, _id(document)), _dialect(document, dialect))
        self._put(root)
        stack = [(inner, root) for _, inner in items(document)]
        while stack:
            schema, outer = stack.pop()
            if uri := _id(schema, outer):
                outer = Resource(schema, _joined(outer.uri, uri), _dialect(schema, outer.dialect))
                self._put(outer)
            stack.extend((inner, outer) for _, inner in items(schema))
        return root

    def _put(self, resource: Resource) -> None:
        self._by_schema[id(resource.schema)] = resource
        known = self._by_uri.setdefault(resource.uri, [])
        # Two are enough to refuse a reference to them.
        if len(known) < 2 and all(resource.schema != other.schema for other in known):
            known.append(resource)

    def _resource(self, name: str, within: Resource) -> Resource:
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

    def _pointed(self, resource: Resource, pointer: str) -> tuple[JsonValue, Resource]:
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

    def _anchored(self, resource: Resource, anchor: str) -> JsonValue:
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


def _id(schema: JsonValue, outer: Resource | None = None) -> str:
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
