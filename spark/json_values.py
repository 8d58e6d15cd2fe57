"""Parsed JSON values → values of their columns: dates, times, any value as its JSON text, maps with each key once."""

from __future__ import annotations

from pyspark.sql import Column
from pyspark.sql import functions as F

from lakehouse.core.sql import SPARK
from lakehouse.formats.json_schema import Field

LAST = """transform(array(array_sort(transform(map_keys({m}), (k, i) -> named_struct('k', k, 'i', -i)))), s ->
map_from_entries(transform(filter(s, (e, i) -> CASE WHEN i = 0 THEN true ELSE s[i - 1].k != e.k END), e ->
named_struct('key', e.k, 'value', map_values({m})[-e.i]))))[0]"""
"""Of each key of a map the last value: the first of its key, once sorted by key and place from the end."""


def converted(value: Column, field: Field) -> Column:
    """Return a parsed value in its column's type."""
    if not _is_converted(field):
        return value
    # As text, since nested expressions are limited to 100 levels where they are sent to Spark, and not where it parses.
    return F.call_function("transform", F.array(value), F.expr(f"x -> {_sql('x', field, 0)}"))[0]


def _sql(value: str, field: Field, level: int) -> str:
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
    twice = f"size(array_distinct(map_keys({value}))) < size({value})"
    once = f"if({twice}, {LAST.format(m=value)}, {value})"
    if not _is_converted(field.fields[0]):
        return once
    return f"transform_values({once}, (k{level}, {item}) -> {_sql(item, field.fields[0], level + 1)})"


def _is_converted(field: Field) -> bool:
    return field.kind in ("date", "timestamp", "text", "map") or any(map(_is_converted, field.fields))
