"""Remove the extra branch that Spark reads in some unions (lakehouse.formats.avro.avro_resolution)."""

from __future__ import annotations

from pyspark.sql import Column
from pyspark.sql import functions as F

from lakehouse.formats.avro.avro_resolution import has_spare
from lakehouse.formats.avro.avro_types import Type


def without_spare(value: Column, place: Type) -> Column:
    """Return a decoded value without the extra branches of its unions."""
    if not _is_within(place):
        return value
    if len(place.branches) == 1:
        return _branch(value, place.branches[0])
    if has_spare(place):
        value = value.dropFields(f"member{len(place.branches)}")
    for i, branch in enumerate(place.branches):
        if _is_within(branch):
            value = value.withField(f"member{i}", _branch(value[f"member{i}"], branch))
    return value


def _branch(value: Column, type_: Type) -> Column:
    match type_.kind:
        case "record":
            for field in type_.fields:
                if _is_within(field.type):
                    value = value.withField(field.name, without_spare(value[field.name], field.type))
        case "array":
            return F.transform(value, lambda item: without_spare(item, type_.inner[0]))
        case "map":
            return F.transform_values(value, lambda _, item: without_spare(item, type_.inner[0]))
    return value


def _is_within(place: Type) -> bool:
    """Return whether a place contains such a union."""
    if has_spare(place):
        return True
    return any(_is_within(part) for branch in place.branches for part in _parts(branch))


def _parts(type_: Type) -> list[Type]:
    return [field.type for field in type_.fields] + list(type_.inner)
