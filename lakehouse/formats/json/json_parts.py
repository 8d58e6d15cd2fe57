"""Resolution of JSON Schemas: all schemas that apply to one value, through references and combinations.

Sources: JSON Schema drafts 4 to 2020-12 (`$ref`, `$anchor`, `allOf`, `anyOf`, `oneOf`, `if`, `dependentSchemas`),
RFC 6901 (pointers), RFC 3986 (percent-encoding).
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import unquote, urljoin

from lakehouse.core.errors import SchemaError
from lakehouse.formats.budget import Budget

EXCLUSIVE_REFERENCES = re.compile(r"draft-0[3-7]\b")
"""Drafts, by their `$schema`, in which validators ignore the other keywords of a schema with a `$ref`."""

CHOICES = ("oneOf", "anyOf")
CONDITIONS = ("if", "then", "else")
DEPENDENT = ("dependentSchemas", "dependencies")


@dataclass(frozen=True)
class Part:
    """One of the schemas that apply to a value.

    Attributes:
        keywords: The keywords of the schema. The targets of its `$ref` and `allOf` are parts of their own.
        document: The document in which its local references are resolved.
        opened: The references on the way to this part, as (id of document, fragment), to detect recursion.
        is_choice: Whether it applies to all values but null, as the only other branch of a `oneOf` or `anyOf`.
    """

    keywords: Mapping[str, Any]
    document: Any
    opened: frozenset[tuple[int, str]] = frozenset()
    is_choice: bool = False


class Documents:
    """A schema and the documents that are registered as its references. Nothing is fetched from elsewhere.

    Args:
        whole: The schema.
        files: The documents by reference name.
        budget: The counters of this schema.
    """

    def __init__(self, whole: Any, files: Mapping[str, Any], budget: Budget):
        self._whole, self._files, self._budget = whole, files, budget

    def root(self) -> list[Part]:
        """Return the parts of the whole schema.

        Raises:
            SchemaError: It refers to itself, or to a schema that does not exist.
        """
        return self.parts(self._whole, Part({}, self._whole))

    def parts(self, schema: Any, within: Part) -> list[Part]:
        """Return the parts of a subschema; none if it allows everything.

        Raises:
            SchemaError: It refers to itself, or to a schema that does not exist.
        """
        parts: list[Part] = []
        self._collect(schema, Part({}, within.document, within.opened), parts)
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
            branches = keywords.get(choice)
            if isinstance(branches, list) and not any(self.allow_null(self.parts(one, part)) for one in branches):
                return False
        return True

    def _collect(self, schema: Any, within: Part, parts: list[Part]) -> None:
        if not isinstance(schema, dict):
            return
        self._budget.spend_entries(_entries(schema))
        for unsupported in ("$dynamicRef", "$recursiveRef"):
            if unsupported in schema:
                raise SchemaError(f"The JSON Schema has '{unsupported}', which is not supported. Use '$ref'")
        with self._budget.level():
            is_reference = "$ref" in schema and self._has_exclusive_references(within.document)
            keywords = {key: schema[key] for key in ("description",) if key in schema} if is_reference else schema
            parts.append(Part(keywords, within.document, within.opened, within.is_choice))
            if "$ref" in schema:
                target, opened = self._resolved(schema["$ref"], within)
                self._collect(target, opened, parts)
            for schemas in keywords.get("allOf", ()):
                self._collect(schemas, within, parts)
            for choice in CHOICES:
                if len(alternatives := branches(keywords, choice)) == 1:
                    only = Part({}, within.document, within.opened, is_choice=True)
                    self._collect(alternatives[0], only, parts)

    def _has_exclusive_references(self, document: Any) -> bool:
        for schema in (document, self._whole):
            if isinstance(schema, dict) and isinstance(schema.get("$schema"), str):
                return bool(EXCLUSIVE_REFERENCES.search(schema["$schema"]))
        return False

    def _resolved(self, reference: str, within: Part) -> tuple[Any, Part]:
        """Return the target of a `$ref`, and a Part with its document."""
        name, _, fragment = reference.partition("#")
        document = self._document(name, within.document) if name else within.document
        fragment = unquote(fragment)
        place = (id(document), fragment)
        if place in within.opened:
            raise SchemaError(
                f"JSON Schema '{reference}' refers to itself, but Iceberg has no recursive types. Remove the "
                f"recursion, or declare the property without a type"
            )
        target = self._pointed(document, fragment) if "/" in fragment else self._anchored(document, fragment)
        if target is None:
            raise SchemaError(f"The JSON Schema refers to '{reference}', which does not exist. Correct it")
        return target, Part({}, document, within.opened | {place}, within.is_choice)

    def _document(self, name: str, current: Any) -> Any:
        if name in self._files:
            return self._files[name]
        absolute = urljoin(_id(current), name)
        for document in (current, self._whole, *self._files.values()):
            if _id(document) and _id(document) in (name, absolute):
                return document
        if absolute in self._files:
            return self._files[absolute]
        raise SchemaError(
            f"The JSON Schema refers to '{name}', which is not registered as its reference. Register the reference"
        )

    def _pointed(self, document: Any, pointer: str) -> Any:
        value, tokens = document, pointer.removeprefix("/").split("/")
        self._budget.spend_entries(len(tokens))
        for token in tokens:
            key = token.replace("~1", "/").replace("~0", "~")
            if isinstance(value, dict):
                value = value.get(key)
            elif isinstance(value, list) and key.isdecimal() and int(key) < len(value):
                value = value[int(key)]
            else:
                return None
        return value

    def _anchored(self, document: Any, anchor: str) -> Any:
        """Return the schema with the anchor in a document; the document itself if the anchor is empty."""
        if not anchor:
            return document
        stack = [document]
        while stack:
            schema = stack.pop()
            if isinstance(schema, dict):
                self._budget.spend_entries(_entries(schema))
                if schema.get("$anchor") == anchor or schema.get("$id", schema.get("id")) == f"#{anchor}":
                    return schema
                stack.extend(schema.values())
            elif isinstance(schema, list):
                stack.extend(schema)
        return None


def types(keywords: Mapping[str, Any], otherwise: str) -> set[str]:
    """Return the types of a schema, or `otherwise` if it has none.

    Raises:
        TypeError: The type is not valid.
    """
    type_ = keywords.get("type", otherwise)
    if not isinstance(type_, str | list):
        raise TypeError("'type' is neither the name of a type nor a list of names")
    return {type_} if isinstance(type_, str) else set(type_)


def branches(keywords: Mapping[str, Any], choice: str) -> list[Any]:
    """Return the branches of a `oneOf` or `anyOf`, without null."""
    branches = keywords.get(choice)
    return [one for one in branches if one != {"type": "null"}] if isinstance(branches, list) else []


def _id(document: Any) -> str:
    id_ = document.get("$id", document.get("id", "")) if isinstance(document, dict) else ""
    return id_.removesuffix("#") if isinstance(id_, str) else ""


def _entries(schema: dict[str, Any]) -> int:
    """Return the number of keywords of one schema and of their immediate entries."""
    return sum(1 + (len(value) if isinstance(value, dict | list) else 0) for value in schema.values())
