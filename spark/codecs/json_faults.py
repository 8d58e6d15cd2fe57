"""Detect parsed JSON values that violate their schema or do not fit their column.

The conditions are SQL text: as columns, those of values within lists within lists would nest deeper than the messages
of Spark Connect may (spark.decoding.conditions).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from lakehouse.core.sql import SPARK
from lakehouse.formats.json.json_explain import DATE, EXACT_INTEGER, FIRST_MOMENT, LAST_MOMENT, MOMENT
from lakehouse.formats.json.json_format import JsonField

FIRST, LAST = (f"TIMESTAMP '{moment}'" for moment in (FIRST_MOMENT, LAST_MOMENT))

INFINITE = 'Infinity"'
"""The end of the text that Spark writes for a number that exceeds a double, in values of any type and in text."""


def struct_faults(struct: str, fields: Sequence[JsonField], level: int = 0) -> Iterator[str]:
    """Yield SQL conditions, never null, under which a field of an object is missing or has a value that does not fit.

    Args:
        struct: The SQL expression of the object; if it is null, nothing is required.
        fields: Its fields.
        level: The number of lists and maps that contain the object.
    """
    for field in fields:
        value = f"{struct}.{SPARK.identifier(field.name)}"
        if field.required:
            yield f"({struct} IS NOT NULL AND {value} IS NULL)"
            if field.kind == "text":
                # JSON's null, which is a value of a variant.
                yield f"coalesce(is_variant_null({value}), false)"
        yield from _faults(value, field, level)


def _faults(value: str, field: JsonField, level: int) -> Iterator[str]:
    match field.kind:
        case "date":
            is_date = f"{value} RLIKE {SPARK.literal(DATE)} AND try_cast({value} AS DATE) IS NOT NULL"
            yield f"({value} IS NOT NULL AND NOT ({is_date}))"
        case "timestamp":
            # The zone of a text can move it out of the years 1 to 9999. The cast is null for other text.
            is_within = f"try_cast(upper({value}) AS TIMESTAMP) BETWEEN {FIRST} AND {LAST}"
            is_moment = f"coalesce({value} RLIKE {SPARK.literal(MOMENT)} AND {is_within}, false)"
            yield f"({value} IS NOT NULL AND NOT {is_moment})"
        case "double":
            # A number too large for a double is parsed as infinite.
            yield f"coalesce(abs({value}) = double('Infinity'), false)"
            if field.of_integers:
                yield f"coalesce(abs({value}) >= {EXACT_INTEGER}D, false)"
        case "struct":
            yield from struct_faults(value, field.fields, level)
        case "list" | "map":
            yield from _any_item(value, field, level, lambda item, inner: _item_faults(item, inner, level + 1))


def _item_faults(item: str, field: JsonField, level: int) -> Iterator[str]:
    if field.required:
        yield f"{item} IS NULL"
    yield from _faults(item, field, level)


def has_infinite_text(struct: str, fields: Sequence[JsonField]) -> str:
    """Return the SQL condition under which text in an object contains what Spark writes for an infinite number.

    Fields of any type are not examined, but those within other fields are.
    """
    examined = (field for field in fields if field.kind != "text")
    conditions = [f for field in examined for f in _infinite(f"{struct}.{SPARK.identifier(field.name)}", field, 0)]
    return f"array_contains(array({', '.join(conditions or ['false'])}), true)"


def _infinite(value: str, field: JsonField, level: int) -> Iterator[str]:
    match field.kind:
        case "string":
            yield f"coalesce(contains({value}, {SPARK.literal(INFINITE)}), false)"
        case "text":
            yield f"coalesce(contains(to_json({value}), {SPARK.literal(INFINITE)}), false)"
        case "struct":
            for inner in field.fields:
                yield from _infinite(f"{value}.{SPARK.identifier(inner.name)}", inner, level)
        case "list" | "map":
            yield from _any_item(value, field, level, lambda item, inner: _infinite(item, inner, level + 1))


def _any_item(
    value: str, field: JsonField, level: int, conditions_of: Callable[[str, JsonField], Iterator[str]]
) -> Iterator[str]:
    """Yield the condition that one of the conditions is true for an item of a list or map, if there are conditions."""
    item = f"x{level}"
    if conditions := " OR ".join(conditions_of(item, field.fields[0])):
        items = f"map_values({value})" if field.kind == "map" else value
        yield f"coalesce(exists({items}, {item} -> {conditions}), false)"
