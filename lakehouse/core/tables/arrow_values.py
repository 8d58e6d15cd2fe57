"""Convert Arrow values to Python values, including dates and times outside of Python's range."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta
from typing import Any, Literal

import pyarrow as pa

PER_SECOND = {"s": 1, "ms": 1_000, "us": 1_000_000, "ns": 1_000_000_000}
DAY = 86_400_000_000
"""Microseconds per day."""
FIRST_DAY = 719_162
"""Days from 0001-01-01 to 1970-01-01."""
CYCLE_YEARS, CYCLE_DAYS = 400, 146_097
"""Period of the Gregorian calendar."""

Maps = Literal["strict", "lossy"]
"""Handling of a key that occurs twice in a map: KeyError, or the last value wins."""


def pylist(column: pa.Array | pa.ChunkedArray, maps: Maps = "strict") -> list[Any]:
    """Return the values of a column, maps as dictionaries.

    Dates and times outside of the years 1 to 9999 are text, as Spark writes them: `+10000-01-01`.
    """
    try:
        values: list[Any] = column.to_pylist(maps_as_pydicts=maps)
        return values
    except (OverflowError, ValueError):
        type_ = column.type
        return [_value(value, type_) for value in column.cast(_numbers(type_)).to_pylist(maps_as_pydicts=maps)]


def rows(table: pa.Table | pa.RecordBatch) -> list[dict[str, Any]]:
    """Return the rows of a table for display, with values as `pylist` returns them. Column names must be distinct."""
    columns = [pylist(column, "lossy") for column in table.columns]
    return [dict(zip(table.schema.names, values, strict=True)) for values in zip(*columns, strict=True)]


def _numbers(type_: pa.DataType) -> pa.DataType:
    """Return the type with dates and times replaced by the integers they are stored as."""
    if pa.types.is_date32(type_):
        return pa.int32()
    if pa.types.is_timestamp(type_):
        return pa.int64()
    if pa.types.is_struct(type_):
        return pa.struct([field.with_type(_numbers(field.type)) for field in type_])
    if pa.types.is_map(type_):
        key, item = type_.key_field, type_.item_field
        return pa.map_(key.with_type(_numbers(key.type)), item.with_type(_numbers(item.type)))
    if pa.types.is_list(type_) or pa.types.is_large_list(type_):
        of = pa.list_ if pa.types.is_list(type_) else pa.large_list
        return of(type_.value_field.with_type(_numbers(type_.value_type)))
    return type_


def _value(value: Any, type_: pa.DataType) -> Any:
    if value is None:
        return None
    if pa.types.is_date32(type_):
        return _date(value)
    if pa.types.is_timestamp(type_):
        return _moment(value * 1_000_000 // PER_SECOND[type_.unit], has_zone=type_.tz is not None)
    if pa.types.is_struct(type_):
        return {field.name: _value(value[field.name], field.type) for field in type_}
    if pa.types.is_map(type_):
        return {_value(key, type_.key_type): _value(item, type_.item_type) for key, item in value.items()}
    if pa.types.is_list(type_) or pa.types.is_large_list(type_):
        return [_value(item, type_.value_type) for item in value]
    return value


def _date(days: int) -> date | str:
    cycle, day = divmod(days + FIRST_DAY, CYCLE_DAYS)
    in_cycle = date.fromordinal(day + 1)
    year = in_cycle.year + CYCLE_YEARS * cycle
    if 1 <= year <= 9999:
        return in_cycle.replace(year=year)
    sign = "+" if year > 9999 else "-" if year < 0 else ""
    return f"{sign}{abs(year):04}-{in_cycle:%m-%d}"


def _moment(micros: int, *, has_zone: bool) -> datetime | str:
    days, rest = divmod(micros, DAY)
    day, time = _date(days), (datetime(1970, 1, 1) + timedelta(microseconds=rest)).time()
    if isinstance(day, date):
        return datetime.combine(day, time, UTC if has_zone else None)
    return f"{day}T{time.isoformat(timespec='microseconds')}{'+00:00' if has_zone else ''}"
