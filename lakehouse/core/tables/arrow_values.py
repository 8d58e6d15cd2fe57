"""Convert Arrow values to Python values, including dates and times outside of Python's range."""

from contextlib import suppress
from datetime import UTC, date, datetime, time, timedelta
from typing import Any, Literal

import pyarrow as pa

PER_SECOND = {"s": 1, "ms": 1_000, "us": 1_000_000, "ns": 1_000_000_000}
DAY = 86_400_000_000_000
"""Nanoseconds per day."""
FIRST_DAY = 719_162
"""Days from 0001-01-01 to 1970-01-01."""
CYCLE_YEARS, CYCLE_DAYS = 400, 146_097
"""Period of the Gregorian calendar."""

Maps = Literal["strict", "lossy"]
"""Handling of a key that occurs twice in a map: KeyError, or the last value wins."""


def pylist(column: pa.Array | pa.ChunkedArray, maps: Maps = "strict") -> list[Any]:
    """Return the values of a column.

    Maps are dictionaries, or lists of `{"key": …, "value": …}` if their keys are structs, lists or maps. Dates and
    times that Python does not have are ISO text: those outside of the years 1 to 9999, as Spark writes them
    (`+10000-01-01`), and times of day in nanoseconds.
    """
    if not _differs(column.type):
        with suppress(OverflowError, ValueError):
            values: list[Any] = column.to_pylist(maps_as_pydicts=maps)
            return values
    return [_value(value, column.type, maps) for value in column.cast(_numbers(column.type)).to_pylist()]


def rows(table: pa.Table | pa.RecordBatch) -> list[dict[str, Any]]:
    """Return the rows of a table for display, with values as `pylist` returns them. Column names must be distinct."""
    columns = [pylist(column, "lossy") for column in table.columns]
    return [dict(zip(table.schema.names, values, strict=True)) for values in zip(*columns, strict=True)]


def _differs(type_: pa.DataType) -> bool:
    """Return True if Arrow's own conversion to Python changes or refuses some values of a type."""
    if pa.types.is_time64(type_) or (pa.types.is_map(type_) and pa.types.is_nested(type_.key_type)):
        return True
    return any(_differs(type_.field(i).type) for i in range(type_.num_fields))


def _numbers(type_: pa.DataType) -> pa.DataType:
    """Return the type with dates and times replaced by the integers they are stored as."""
    if pa.types.is_date32(type_):
        return pa.int32()
    if pa.types.is_timestamp(type_) or pa.types.is_time64(type_):
        return pa.int64()
    if pa.types.is_struct(type_):
        return pa.struct([field.with_type(_numbers(field.type)) for field in type_])
    if pa.types.is_map(type_):
        key, item = type_.key_field, type_.item_field
        return pa.map_(key.with_type(_numbers(key.type)), item.with_type(_numbers(item.type)))
    if pa.types.is_list(type_) or pa.types.is_large_list(type_):
        of = pa.list_ if pa.types.is_list(type_) else pa.large_list
        return of(type_.value_field.with_type(_numbers(type_.value_type)))
    if pa.types.is_fixed_size_list(type_):
        return pa.list_(type_.value_field.with_type(_numbers(type_.value_type)), type_.list_size)
    return type_


def _value(value: Any, type_: pa.DataType, maps: Maps) -> Any:
    if value is None:
        return None
    if pa.types.is_date32(type_):
        return _date(value)
    if pa.types.is_time64(type_):
        return _time(value * PER_SECOND["ns"] // PER_SECOND[type_.unit])
    if pa.types.is_timestamp(type_):
        return _moment(value * PER_SECOND["ns"] // PER_SECOND[type_.unit], has_zone=type_.tz is not None)
    if pa.types.is_struct(type_):
        return {field.name: _value(value[field.name], field.type, maps) for field in type_}
    if pa.types.is_map(type_):
        pairs = [(_value(key, type_.key_type, maps), _value(item, type_.item_type, maps)) for key, item in value]
        if pa.types.is_nested(type_.key_type):
            return [{"key": key, "value": item} for key, item in pairs]
        if maps == "strict" and len(dict(pairs)) < len(pairs):
            raise KeyError(f"A key occurs twice in {pairs}")
        return dict(pairs)
    if isinstance(value, list):
        return [_value(item, type_.value_type, maps) for item in value]
    return value


def _date(days: int) -> date | str:
    cycle, day = divmod(days + FIRST_DAY, CYCLE_DAYS)
    in_cycle = date.fromordinal(day + 1)
    year = in_cycle.year + CYCLE_YEARS * cycle
    if 1 <= year <= 9999:
        return in_cycle.replace(year=year)
    sign = "+" if year > 9999 else "-" if year < 0 else ""
    return f"{sign}{abs(year):04}-{in_cycle:%m-%d}"


def _time(nanos: int) -> time | str:
    micros, rest = divmod(nanos, 1000)
    if nanos == DAY:
        return "24:00:00.000000"
    value = (datetime(1970, 1, 1) + timedelta(microseconds=micros)).time()
    return f"{value.isoformat(timespec='microseconds')}{rest:03}" if rest else value


def _moment(nanos: int, *, has_zone: bool) -> datetime | str:
    days, rest = divmod(nanos, DAY)
    day, of_day = _date(days), _time(rest)
    if isinstance(day, date) and isinstance(of_day, time):
        return datetime.combine(day, of_day, UTC if has_zone else None)
    text = of_day if isinstance(of_day, str) else of_day.isoformat(timespec="microseconds")
    return f"{day}T{text}{'+00:00' if has_zone else ''}"
