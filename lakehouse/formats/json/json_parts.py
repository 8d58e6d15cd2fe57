"""Resolution of JSON Schemas: all schemas that apply to one value, through references and combinations.

Source: JSON Schema drafts 4 to 2020-12 (`$ref`, `allOf`, `anyOf`, `oneOf`, `if`, `dependentSchemas`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from lakehouse.core.errors import SchemaError
from lakehouse.formats.budget import Budget
from lakehouse.formats.json.json_keywords import fault
from lakehouse.formats.json.json_references import References, Resource, entries

if TYPE_CHECKING:
    from pydantic import JsonValue

CHOICES = ("oneOf", "anyOf")
CONDITIONS = ("if", "then", "else")
DEPENDENT = ("dependentSchemas", "dependencies")


@dataclass(frozen=True)
class Part:
    """One of the schemas that apply to a value.

    Attributes:
        keywords: The keywords of the schema. The targets of its `$ref` and `allOf` are parts of their own.
        resource: The resource in which its references are resolved.
        opened: The references on the way to this part, as ids of their targets, to detect recursion.
        is_choice: Whether it applies to all values but null, as the only other branch of a `oneOf` or `anyOf`.
    """

    keywords: Mapping[str, Any]
    resource: Resource
    opened: frozenset[int] = frozenset()
    is_choice: bool = False


class Documents:
    """A schema and the documents that are registered as its references. Nothing is fetched from elsewhere.

    Args:
        whole: The schema.
        files: The documents by reference name.
        budget: The counters of this schema.
    """

    def __init__(self, whole: JsonValue, files: Mapping[str, JsonValue], budget: Budget):
        self._whole, self._budget = whole, budget
        self._references = References(whole, files, budget)

    def root(self) -> list[Part]:
        """Return the parts of the whole schema.

        Raises:
            SchemaError: It refers to itself, or to a schema that does not exist.
        """
        return self.parts(self._whole, Part({}, self._references.root))

    def parts(self, schema: JsonValue, within: Part) -> list[Part]:
        """Return the parts of a subschema; none if it allows everything.

        Raises:
            SchemaError: It refers to itself, or to a schema that does not exist.
        """
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
