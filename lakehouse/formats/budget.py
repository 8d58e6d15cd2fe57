"""What one schema may cost, whatever its format.

A schema comes from whoever may register one. A type is expanded wherever it is referred to, so a kilobyte of text can
describe billions of columns: each format counts what it is about to expand, before it recurses.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Protocol

from lakehouse.core.errors import SchemaError

MAX_CHARACTERS = 1_000_000
"""Of a schema's text together with its references."""

MAX_REFERENCES = 200
"""Schemas that one schema refers to, also indirectly."""

MAX_DEPTH = 64
"""Types within types, references followed included."""

MAX_NESTING, MAX_JSON_NESTING = 24, 16
"""Columns within columns of a table, and those of JSON Schema, whose checks take Spark twice as long with each level.
Spark Connect does not send the expressions that deeper ones need."""

MAX_FIELDS = 2_000
"""Columns after expansion: nested ones, elements of lists, and keys and values of maps included."""

MAX_ENTRIES = 100_000
"""Enum symbols and keywords that are read during expansion; a type that is used twice counts twice."""

MAX_BRACKETS = 4 * MAX_DEPTH
"""A level of types takes at most this many of JSON: in Avro a record, its fields, a field and a union."""

_STRING_OR_BRACKET = re.compile(r'"(?:[^"\\]|\\.)*+"?|[\[{]|([\]}])', re.DOTALL)
"""A string that does not end takes the rest of the text, so that no character is looked at twice."""


class _Nested(Protocol):
    @property
    def fields(self) -> Iterable[_Nested]: ...


class Budget:
    """Counts the expansion of one schema; each method raises SchemaError at its limit.

    Args:
        format_: the schema's format, as messages call it.
    """

    def __init__(self, format_: str) -> None:
        self.format = format_
        self.fields = self.entries = self.depth = 0

    def spend_field(self, count: int = 1) -> None:
        """Count fields that are about to become columns."""
        self.fields += count
        if self.fields > MAX_FIELDS:
            raise SchemaError(
                f"The {self.format} schema has more than {MAX_FIELDS:,} fields with every use of a type expanded. "
                f"Split it, or keep nested data in one text or bytes field"
            )

    def spend_entries(self, count: int) -> None:
        """Count enum symbols, or the keywords of one JSON Schema."""
        self.entries += count
        if self.entries > MAX_ENTRIES:
            raise SchemaError(
                f"The {self.format} schema has more than {MAX_ENTRIES:,} enum symbols and keywords with every use of a "
                f"type expanded. Use text in place of large enums, and fewer references"
            )

    @contextmanager
    def level(self) -> Iterator[None]:
        """One type within another."""
        if self.depth == MAX_DEPTH:
            raise _too_deep(self.format)
        self.depth += 1
        try:
            yield
        finally:
            self.depth -= 1


def require_characters(format_: str, characters: int) -> None:
    """Check the size of a schema and its references.

    Raises:
        SchemaError: It is over the limit.
    """
    if characters > MAX_CHARACTERS:
        raise SchemaError(
            f"The {format_} schema has {characters:,} characters with its references, more than {MAX_CHARACTERS:,}. "
            f"Split it, or remove comments"
        )


def require_json(format_: str, texts: Sequence[str]) -> None:
    """Check the size and nesting of JSON texts before a parser recurses.

    Raises:
        SchemaError: One of them is over the limit.
    """
    require_characters(format_, sum(map(len, texts)))
    for text in texts:
        depth = 0
        for found in _STRING_OR_BRACKET.finditer(text):
            if found.group().startswith('"'):
                continue
            depth += -1 if found.group(1) else 1
            if depth > MAX_BRACKETS:
                raise _too_deep(format_)


def require_fields(format_: str, fields: Iterable[_Nested]) -> None:
    """Check how many fields several versions have together.

    Args:
        format_: the schema's format, as messages call it.
        fields: merged from versions of which each is within its budget.

    Raises:
        SchemaError: They are too many.
    """
    Budget(format_).spend_field(_count(fields))


def require_nesting(format_: str, levels: int, most: int) -> None:
    """Check how deep columns are within columns.

    Raises:
        SchemaError: They are deeper than `most`.
    """
    if levels > most:
        raise SchemaError(
            f"The {format_} schema has {levels} levels of columns within columns, more than {most}. Flatten it, or "
            f"keep what is deeper as text"
        )


def nesting(fields: Iterable[_Nested]) -> int:
    """How many levels of fields there are within fields."""
    return max((1 + nesting(field.fields) for field in fields if field.fields), default=0)


def _count(fields: Iterable[_Nested]) -> int:
    return sum(1 + _count(field.fields) for field in fields)


def _too_deep(format_: str) -> SchemaError:
    return SchemaError(f"The {format_} schema nests deeper than {MAX_DEPTH} types. Flatten it")
