"""Convert parsed JSON values to the types of their columns.

Dates and times are cast, values of any type become their JSON text, and maps keep the last value of each key.
"""

from __future__ import annotations

from pyspark.sql import Column
from pyspark.sql import functions as F

from lakehouse.core.sql import SPARK
from lakehouse.formats.json.json_format import JsonField

LAST = """transform(array(array_sort(transform(map_keys({m}), (k, i) -> named_struct('k', k, 'i', -i)))), s ->
map_from_entries(transform(filter(s, (e, i) -> CASE WHEN i = 0 THEN true ELSE s[i - 1].k != e.k END), e ->
named_struct('key', e.k, 'value', map_values({m})[-e.i]))))[0]"""
"""Template: the last value of each key of a map, which is the first one when sorted by key and descending position."""


def converted(value: Column, field: JsonField) -> Column:
    """Return a parsed value in the type of its column."""
    if not _is_converted(field):
        return value
    # As SQL text: nested expressions are limited to 100 levels in Spark Connect's messages, but not in Spark's parser.
    return F.call_function("transform", F.array(value), F.expr(f"x -> {_sql('x', field, 0)}"))[0]


def _sql(value: str, field: JsonField, level: int) -> str:
    if not _is_converted(field):
        return value
    item = f"x{level}"
    match field.kind:
        case "date":
            return f"try_cast({value} AS DATE)"
        case "timestamp":
            return f"try_cast(upper({value}) AS TIMESTAMP)"
        case "text":
            return f"if(is_variant_null({value}), NULL, to_json({value}))"
        case "struct":
            parts = ((part, f"{value}.{SPARK.identifier(part.name)}") for part in field.fields)
            members = (f"{SPARK.literal(part.name)}, {_sql(of, part, level + 1)}" for part, of in parts)
            return f"if({value} IS NULL, NULL, named_struct({', '.join(members)}))"
        case "list":
            return f"transform({value}, {item} -> {_sql(item, field.fields[0], level + 1)})"
    unique = with_unique_keys(value)
    if not _is_converted(field.fields[0]):
        return unique
    return f"transform_values({unique}, (k{level}, {item}) -> {_sql(item, field.fields[0], level + 1)})"


def with_unique_keys(value: str) -> str:
    """Return the SQL expression of a map with the last value of each key."""
    has_duplicates = f"size(array_distinct(map_keys({value}))) < size({value})"
    return f"if({has_duplicates}, {LAST.format(m=value)}, {value})"


def _is_converted(field: JsonField) -> bool:
    return field.kind in ("date", "timestamp", "text", "map") or any(map(_is_converted, field.fields))
