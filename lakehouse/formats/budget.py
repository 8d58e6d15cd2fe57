"""Limits on the size of one schema, for all formats.

Schemas are untrusted. A type is expanded at every reference to it, so a kilobyte of text can describe billions of
columns: each format counts what it is about to expand before it recurses.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Protocol

from lakehouse.core.errors import SchemaError

MAX_CHARACTERS = 1_000_000
"""Maximum characters of a schema's text and its references."""

MAX_REFERENCES = 200
"""Maximum number of schemas that one schema refers to, directly or indirectly."""

MAX_DEPTH = 64
"""Maximum levels of types within types, through references too."""

MAX_NESTING, MAX_JSON_NESTING = 24, 16
"""Maximum levels of columns within columns of a table, and of a JSON Schema, whose checks take Spark twice as long with
each level. Spark Connect fails to send the expressions for deeper columns."""

MAX_FIELDS = 2_000
"""Maximum number of columns after expansion, with nested ones, elements of lists, and keys and values of maps."""

MAX_ENTRIES = 100_000
"""Maximum number of enum symbols and keywords after expansion; a type that is used twice counts twice."""

MAX_BRACKETS = 4 * MAX_DEPTH
"""Maximum levels of JSON brackets. A level of types needs at most four: in Avro a record, its fields, a field and a
union."""

_STRING_OR_BRACKET = re.compile(r'"(?:[^"\\]|\\.)*+"?|[\[{]|([\]}])', re.DOTALL)
"""A string without an end matches the rest of the text, so that the search is linear."""


class _Nested(Protocol):
    @property
    def fields(self) -> Iterable[_Nested]: ...


class Budget:
    """Counters for the expansion of one schema; each method raises SchemaError at its limit."""

    def __init__(self, format_: str) -> None:
        self.format = format_
        self.fields = self.entries = self.depth = 0

    def spend_field(self, count: int = 1) -> None:
        """Add fields that are about to become columns."""
        self.fields += count
        if self.fields > MAX_FIELDS:
            raise SchemaError(
                f"The {self.format} schema has more than {MAX_FIELDS:,} fields with every use of a type expanded. "
                f"Split it, or keep nested data in one text or bytes field"
            )

    def spend_entries(self, count: int) -> None:
        """Add enum symbols, or the keywords of one JSON Schema."""
        self.entries += count
        if self.entries > MAX_ENTRIES:
            raise SchemaError(
                f"The {self.format} schema has more than {MAX_ENTRIES:,} enum symbols and keywords with every use of a "
                f"type expanded. Use text in place of large enums, and fewer references"
            )

    @contextmanager
    def repeated_fields(self) -> Iterator[None]:
        """Do not count the fields of the context, which become columns that are counted elsewhere."""
        fields = self.fields
        try:
            yield
        finally:
            self.fields = fields

    @contextmanager
    def level(self) -> Iterator[None]:
        """Add a level of types for the duration of the context."""
        if self.depth == MAX_DEPTH:
            raise _too_deep(self.format)
        self.depth += 1
        try:
            yield
        finally:
            self.depth -= 1


def require_characters(format_: str, characters: int) -> None:
    """Check the size of a schema and its references."""
    if characters > MAX_CHARACTERS:
        raise SchemaError(
            f"The {format_} schema has {characters:,} characters with its references, more than {MAX_CHARACTERS:,}. "
            f"Split it, or remove comments"
        )


def require_json(format_: str, texts: Sequence[str]) -> None:
    """Check the size and nesting of JSON texts before a parser recurses."""
    require_characters(format_, sum(map(len, texts)))
    for text in texts:
        depth = 0
        for token in _STRING_OR_BRACKET.finditer(text):
            if token.group().startswith('"'):
                continue
            depth += -1 if token.group(1) else 1
            if depth > MAX_BRACKETS:
                raise _too_deep(format_)


def require_fields(format_: str, fields: Iterable[_Nested]) -> None:
    """Check the number of fields of several versions together.

    Args:
        fields: The merged fields of versions that are each within their budget.
    """
    Budget(format_).spend_field(_count(fields))


def require_nesting(format_: str, levels: int, maximum: int) -> None:
    """Check the number of levels of columns within columns."""
    if levels > maximum:
        raise SchemaError(
            f"The {format_} schema has {levels} levels of columns within columns, more than {maximum}. Flatten it, or "
            f"store deeper levels as text"
        )


def nesting(fields: Iterable[_Nested]) -> int:
    """Return the number of levels of fields within fields."""
    return max((1 + nesting(field.fields) for field in fields if field.fields), default=0)


def _count(fields: Iterable[_Nested]) -> int:
    return sum(1 + _count(field.fields) for field in fields)


def _too_deep(format_: str) -> SchemaError:
    return SchemaError(f"The {format_} schema nests deeper than {MAX_DEPTH} types. Flatten it")
