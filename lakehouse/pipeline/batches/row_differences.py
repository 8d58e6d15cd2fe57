"""Rows of two tables that differ, by the places of their records and by columns, without values.

Values are compared by their bits: NaN equals NaN, and 0 differs from -0. Entries of maps have no order.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any

import pyarrow as pa

from lakehouse.pipeline.engine_values import Place

SLICE_ROWS = 10_000
"""Number of rows whose values are objects of Python at a time."""


def row_differences(one: pa.Table, other: pa.Table, place: Sequence[str]) -> dict[Place, list[str]]:
    """Return the columns that differ by place, in order; no columns for a place of which only one table has a row.

    Args:
        one: Rows.
        other: Other rows.
        place: The columns with the partition and the offset of a row.
    """
    one, other = (rows.sort_by([(name, "ascending") for name in place]) for rows in (one, other))
    places, others = _places(one, place), _places(other, place)
    of_one, of_other = Counter(places), Counter(others)
    differences: dict[Place, list[str]] = {place: [] for place in (of_one - of_other) + (of_other - of_one)}
    if differences:
        shared = sorted(place for place in of_one & of_other if place not in differences)
        one, other, places = _only(one, places, shared), _only(other, others, shared), shared
    for name in sorted({*one.column_names, *other.column_names}):
        if name not in one.column_names or name not in other.column_names:
            unequal: Iterator[int] = iter(range(len(places)))
        else:
            unequal = _unequal(one[name], other[name])
        for row in unequal:
            differences.setdefault(places[row], []).append(name)
    return dict(sorted(differences.items()))


def _places(rows: pa.Table, place: Sequence[str]) -> list[Place]:
    partitions, offsets = (rows[name].to_pylist() for name in place)
    return list(zip(partitions, offsets, strict=True))


def _only(rows: pa.Table, places: Sequence[Place], kept: Sequence[Place]) -> pa.Table:
    positions = {place: position for position, place in enumerate(places)}
    return rows.take(pa.array([positions[place] for place in kept], pa.int64()))


def _unequal(one: pa.ChunkedArray, other: pa.ChunkedArray) -> Iterator[int]:
    for start in range(0, len(one), SLICE_ROWS):
        values = (_values(column.slice(start, SLICE_ROWS)) for column in (one, other))
        for row, (value, other_value) in enumerate(zip(*values, strict=True), start):
            if value != other_value:
                yield row


def _values(column: pa.ChunkedArray) -> list[Any]:
    values = column.cast(_representable(column.type)).to_pylist(maps_as_pydicts="strict")
    return [*map(_exact, values)]


def _representable(type_: pa.DataType) -> pa.DataType:
    """Return a type with numbers in place of times, of which Python's types have fewer than Iceberg's."""
    if pa.types.is_timestamp(type_):
        return pa.int64()
    if pa.types.is_date(type_):
        return pa.int32()
    if pa.types.is_struct(type_):
        return pa.struct([field.with_type(_representable(field.type)) for field in type_])
    if pa.types.is_list(type_):
        return pa.list_(type_.value_field.with_type(_representable(type_.value_type)))
    if pa.types.is_map(type_):
        return pa.map_(type_.key_type, type_.item_field.with_type(_representable(type_.item_type)))
    return type_


def _exact(value: Any) -> Any:
    match value:
        case float():
            return value.hex()
        case dict():
            return {name: _exact(part) for name, part in value.items()}
        case list():
            return [*map(_exact, value)]
    return value
