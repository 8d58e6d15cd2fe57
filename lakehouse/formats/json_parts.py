"""What a JSON Schema says of one value: its own keywords, and those of everything that it refers to and is all of.

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

REFERENCES_STAND_ALONE = re.compile(r"draft-0[3-7]\b")
"""Drafts, by their `$schema`, in which a `$ref` makes validators ignore the keywords beside it."""

CHOICES = ("oneOf", "anyOf")
CONDITIONS = ("if", "then", "else")
DEPENDENT = ("dependentSchemas", "dependencies")


@dataclass(frozen=True)
class Part:
    """One schema of those that all apply to a value.

    Attributes:
        keywords: What it says. Its `$ref` and `allOf` are parts of their own.
        document: The document that its local references are in.
        opened: The references that led here, as (document, place in it): one that comes again has no end.
        is_choice: It applies unless the value is null: a `oneOf` or `anyOf` has no other branch.
    """

    keywords: Mapping[str, Any]
    document: Any
    opened: frozenset[tuple[int, str]] = frozenset()
    is_choice: bool = False


class Documents:
    """A schema with the documents that are registered as its references. Nothing is fetched from anywhere.

    Args:
        whole: The schema.
        files: What is registered as its references, by the name that it refers to them by.
        budget: Counts what is read.
    """

    def __init__(self, whole: Any, files: Mapping[str, Any], budget: Budget):
        self._whole, self._files, self._budget = whole, files, budget

    def root(self) -> list[Part]:
        """Return the parts of the whole schema.

        Raises:
            SchemaError: It refers to itself, or to what is not there.
        """
        return self.parts(self._whole, Part({}, self._whole))

    def parts(self, schema: Any, within: Part) -> list[Part]:
        """Return the parts of a schema that stands in another one; none if it allows everything.

        Raises:
            SchemaError: It refers to itself, or to what is not there.
        """
        found: list[Part] = []
        self._collect(schema, Part({}, within.document, within.opened), found)
        return found

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
        """Whether null is valid where all of these parts apply."""
        return all(self._allows_null(part) for part in parts if not part.is_choice)

    def _allows_null(self, part: Part) -> bool:
        keywords = part.keywords
        if "const" in keywords and keywords["const"] is not None:
            return False
        if "enum" in keywords and None not in keywords["enum"]:
            return False
        # A schema that names properties is one of objects, whether or not it says so.
        if "null" not in types(keywords, "object" if "properties" in keywords else "null"):
            return False
        for choice in CHOICES:
            branches = keywords.get(choice)
            if isinstance(branches, list) and not any(self.allow_null(self.parts(one, part)) for one in branches):
                return False
        return True

    def _collect(self, schema: Any, within: Part, found: list[Part]) -> None:
        if not isinstance(schema, dict):
            return
        self._budget.spend_entries(_entries(schema))
        for unsupported in ("$dynamicRef", "$recursiveRef"):
            if unsupported in schema:
                raise SchemaError(f"The JSON Schema has '{unsupported}', which is not supported. Use '$ref'")
        with self._budget.level():
            stands_alone = "$ref" in schema and self._references_stand_alone(within.document)
            own = {key: schema[key] for key in ("description",) if key in schema} if stands_alone else schema
            found.append(Part(own, within.document, within.opened, within.is_choice))
            if "$ref" in schema:
                target, opened = self._resolved(schema["$ref"], within)
                self._collect(target, opened, found)
            for schemas in own.get("allOf", ()):
                self._collect(schemas, within, found)
            for choice in CHOICES:
                if len(alternatives := branches(own, choice)) == 1:
                    only = Part({}, within.document, within.opened, is_choice=True)
                    self._collect(alternatives[0], only, found)

    def _references_stand_alone(self, document: Any) -> bool:
        for each in (document, self._whole):
            if isinstance(each, dict) and isinstance(each.get("$schema"), str):
                return bool(REFERENCES_STAND_ALONE.search(each["$schema"]))
        return False

    def _resolved(self, reference: str, within: Part) -> tuple[Any, Part]:
        """The schema that a `$ref` leads to, and where that stands."""
        name, _, fragment = reference.partition("#")
        document = self._document(name, within.document) if name else within.document
        fragment = unquote(fragment)
        place = (id(document), fragment)
        if place in within.opened:
            raise SchemaError(f"JSON Schema '{reference}' refers to itself; Iceberg has no recursive types")
        found = self._pointed(document, fragment) if "/" in fragment else self._anchored(document, fragment)
        if found is None:
            raise SchemaError(f"The JSON Schema refers to '{reference}', where nothing is. Correct it")
        return found, Part({}, document, within.opened | {place}, within.is_choice)

    def _document(self, name: str, current: Any) -> Any:
        if name in self._files:
            return self._files[name]
        absolute = urljoin(_id(current), name)
        for document in (current, self._whole, *self._files.values()):
            if _id(document) and _id(document) in (name, absolute):
                return document
        if absolute in self._files:
            return self._files[absolute]
        raise SchemaError(f"The JSON Schema refers to '{name}', which is not registered as its reference")

    def _pointed(self, document: Any, pointer: str) -> Any:
        found, steps = document, pointer.removeprefix("/").split("/")
        self._budget.spend_entries(len(steps))
        for step in steps:
            key = step.replace("~1", "/").replace("~0", "~")
            if isinstance(found, dict):
                found = found.get(key)
            elif isinstance(found, list) and key.isdecimal() and int(key) < len(found):
                found = found[int(key)]
            else:
                return None
        return found

    def _anchored(self, document: Any, anchor: str) -> Any:
        """The schema of this name in a document; the document itself without one."""
        if not anchor:
            return document
        waiting = [document]
        while waiting:
            schema = waiting.pop()
            if isinstance(schema, dict):
                self._budget.spend_entries(_entries(schema))
                if schema.get("$anchor") == anchor or schema.get("$id", schema.get("id")) == f"#{anchor}":
                    return schema
                waiting.extend(schema.values())
            elif isinstance(schema, list):
                waiting.extend(schema)
        return None


def types(keywords: Mapping[str, Any], otherwise: str) -> set[str]:
    """Return the types that a schema names, or the one given where it names none.

    Raises:
        TypeError: It names them in another way than JSON Schema does.
    """
    stated = keywords.get("type", otherwise)
    if not isinstance(stated, str | list):
        raise TypeError("'type' is neither the name of a type nor a list of names")
    return {stated} if isinstance(stated, str) else set(stated)


def branches(keywords: Mapping[str, Any], choice: str) -> list[Any]:
    """Return the branches of a `oneOf` or `anyOf`, without null."""
    branches = keywords.get(choice)
    return [one for one in branches if one != {"type": "null"}] if isinstance(branches, list) else []


def _id(document: Any) -> str:
    found = document.get("$id", document.get("id", "")) if isinstance(document, dict) else ""
    return found.removesuffix("#") if isinstance(found, str) else ""


def _entries(schema: dict[str, Any]) -> int:
    """How much one schema says at its own level: its keywords, and what each of them lists."""
    return sum(1 + (len(value) if isinstance(value, dict | list) else 0) for value in schema.values())
