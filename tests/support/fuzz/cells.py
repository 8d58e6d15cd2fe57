"""Column types and cells in plain Python, to compare expectations with Arrow and Iceberg.

A column type is a text for a single value (`long`, `decimal(9, 2)`, as docs/types.md has them) and a tuple for others:
`("struct", ((name, type), …))`, `("list", type)`, `("map", key type, value type)`. A date or timestamp is a number of
days or microseconds, a struct a dictionary, and a map the tuple of its entries in order of their keys.
"""

from __future__ import annotations

import json
import math
import re
import struct
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
from pyiceberg import types as iceberg

Column = str | tuple

_ARROW = {
    pa.bool_(): "boolean",
    pa.int32(): "int",
    pa.int64(): "long",
    pa.float32(): "float",
    pa.float64(): "double",
    pa.string(): "string",
    pa.binary(): "binary",
    pa.date32(): "date",
    pa.timestamp("us"): "timestamp",
    pa.timestamp("us", "UTC"): "timestamptz",
}


@dataclass(frozen=True)
class JsonText:
    """A cell with the JSON text of a value, with any whitespace."""

    value: Any


@dataclass(frozen=True)
class AnyOf:
    """A cell with one of some values, or any cell if there are no options."""

    options: tuple[Any, ...]


def of_arrow(type_: pa.DataType) -> Column:
    """Return the column type of an Arrow type."""
    if pa.types.is_struct(type_):
        return ("struct", tuple((field.name, of_arrow(field.type)) for field in type_))
    if pa.types.is_map(type_):
        return ("map", of_arrow(type_.key_type), of_arrow(type_.item_type))
    if pa.types.is_list(type_):
        return ("list", of_arrow(type_.value_type))
    if pa.types.is_decimal(type_):
        return f"decimal({type_.precision}, {type_.scale})"
    return _ARROW[type_]


def of_iceberg(type_: iceberg.IcebergType) -> Column:
    """Return the column type of an Iceberg type."""
    match type_:
        case iceberg.StructType():
            return ("struct", tuple((field.name, of_iceberg(field.field_type)) for field in type_.fields))
        case iceberg.MapType():
            return ("map", of_iceberg(type_.key_type), of_iceberg(type_.value_type))
        case iceberg.ListType():
            return ("list", of_iceberg(type_.element_type))
    return str(type_)


def fits(actual: Column, wanted: Column) -> bool:
    """Return whether cells of one type can be written unchanged to a column of another type.

    Decimals need the same scale. Their precision is not compared, because the comparison of values covers it.
    """
    if isinstance(actual, str) and isinstance(wanted, str):
        scale = re.compile(r"decimal\(\d+, (\d+)\)").fullmatch
        return actual == wanted or bool((a := scale(actual)) and (b := scale(wanted)) and a[1] == b[1])
    if len(actual) != len(wanted) or isinstance(actual, str) or isinstance(wanted, str):
        return False
    if actual[0] == wanted[0] == "struct":
        pairs = list(zip(actual[1], wanted[1], strict=False))
        return len(actual[1]) == len(wanted[1]) and all(a[0] == b[0] and fits(a[1], b[1]) for a, b in pairs)
    return actual[0] == wanted[0] and all(fits(a, b) for a, b in zip(actual[1:], wanted[1:], strict=True))


def plain(cell: pa.Scalar) -> Any:
    """Return the Python value of a cell."""
    if not cell.is_valid:
        return None
    match cell:
        case pa.StructScalar():
            return {name: plain(value) for name, value in cell.items()}
        case pa.MapScalar():
            entries = [(plain(entry["key"]), plain(entry["value"])) for entry in cell.values]
            return in_order(entries)
        case pa.ListScalar():
            return [plain(value) for value in cell.values]
        case pa.TimestampScalar() | pa.Date32Scalar():
            return cell.value
    return cell.as_py()


def in_order(entries: list[tuple[Any, Any]]) -> tuple[tuple[Any, Any], ...]:
    """Return the cell of a map."""
    return tuple(sorted(entries, key=lambda entry: (str(type(entry[0])), entry[0])))


def differences(expected: Any, actual: Any, at: str = "") -> list[str]:
    """Return a message for each difference between two cells."""
    if isinstance(expected, AnyOf):
        wrong = [line for option in expected.options if (line := differences(option, actual, at))]
        return [] if len(wrong) < len(expected.options) or not wrong else wrong[0]
    if isinstance(expected, JsonText):
        return _json_differences(expected.value, actual, at)
    if type(expected) is not type(actual):
        return [f"{at or 'row'}: expected {expected!r}, found {actual!r}"]
    if isinstance(expected, dict):
        if expected.keys() != actual.keys():
            return [f"{at or 'row'}: expected fields {list(expected)}, found {list(actual)}"]
        return [line for name in expected for line in differences(expected[name], actual[name], f"{at}[{name!r}]")]
    if isinstance(expected, list | tuple) and len(expected) == len(actual):
        return [
            line
            for i, pair in enumerate(zip(expected, actual, strict=True))
            for line in differences(*pair, f"{at}[{i}]")
        ]
    if _same(expected, actual):
        return []
    return [f"{at or 'row'}: expected {expected!r}, found {actual!r}"]


def _same(one: Any, other: Any) -> bool:
    if isinstance(one, float):
        return (math.isnan(one) and math.isnan(other)) or struct.pack(">d", one) == struct.pack(">d", other)
    return one == other


def _json_differences(expected: Any, actual: Any, at: str) -> list[str]:
    try:
        if isinstance(actual, str) and differences(_numeric(expected), _numeric(json.loads(actual))) == []:
            return []
    except ValueError:
        pass
    return [f"{at}: expected the JSON text {json.dumps(expected)!r}, found {actual!r}"]


def _numeric(value: Any) -> Any:
    """Convert the numbers of a JSON value to floats, so that `1.0` equals `1` and `-0.0` equals `0`."""
    match value:
        case bool():
            return value
        case int() | float():
            return float(value) or 0.0
        case list():
            return [_numeric(item) for item in value]
        case dict():
            return {name: _numeric(item) for name, item in value.items()}
    return value
