"""Values as Spark's Avro parser returns them: those that their type cannot hold, and the columns made of the others.

The parser reads an `int` as a `long`, in some unions as a record with one (lakehouse.formats.avro.avro_resolution).

The expressions are SQL text: as columns, those of values within lists within lists would nest deeper than the messages
of Spark Connect may (spark.decoding.conditions).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from lakehouse.core.sql import SPARK
from lakehouse.formats.avro import avro_types
from lakehouse.formats.avro.avro_format import is_double, is_long
from lakehouse.formats.avro.avro_resolution import (
    LONG_DIGITS,
    SPARK_LOGICAL,
    WIDE,
    fault,
    is_split,
    is_widened,
    read_by,
    target,
)
from lakehouse.formats.avro.avro_types import VARIABLE_DECIMAL, ZONED_TIMESTAMP, Type
from lakehouse.formats.avro.connect_types import INFINITE, ZONED

PRIMITIVES = {"long": "bigint", "bytes": "binary", "fixed": "binary", "enum": "string"}
"""Spark's names of types whose names differ from Avro's."""


def misfits(value: str, place: Type, level: int = 0) -> Iterator[str]:
    """Yield SQL conditions, never null, under which a value contains one that its type cannot hold.

    Serializers write numbers beyond the range of an `int` (fastavro). Decimals of more than 64 bits need no condition,
    because Spark refuses values that do not fit. Shorter decimals are truncated to 64 bits without an error, and text
    is not validated, so that readers of the file would fail (Parquet, LogicalTypes: STRING is UTF-8).

    Args:
        value: The SQL expression of the value.
        place: The reader's type.
        level: The number of lists and maps that contain the value.
    """
    for branch in place.branches:
        at = _member(value, place, branch)
        match branch.kind:
            case "int":
                yield _exceeds_int(at)
            case "bytes" | "fixed" if branch.logical == "decimal" and branch.precision <= LONG_DIGITS:
                yield f"coalesce(abs({at}) >= {10 ** (branch.precision - branch.scale)}BD, false)"
            case "string":
                yield _is_not_text(at)
                if branch.logical == ZONED_TIMESTAMP:
                    is_zoned = f"{at} RLIKE {SPARK.literal(ZONED)} AND {_zoned(at)} IS NOT NULL"
                    yield f"coalesce(NOT ({at} IN ({', '.join(map(SPARK.literal, INFINITE))}) OR {is_zoned}), false)"
            case "record":
                for field in branch.fields:
                    yield from misfits(f"{at}.{SPARK.identifier(field.name)}", field.type, level)
                if branch.logical == VARIABLE_DECIMAL:
                    yield _is_no_decimal(at, branch)
            case "array":
                yield from _of_items(at, level, misfits(_item(level), branch.inner[0], level + 1))
            case "map":
                yield from _of_items(f"map_keys({at})", level, [_is_not_text(_item(level))])
                yield from _of_items(f"map_values({at})", level, misfits(_item(level), branch.inner[0], level + 1))


def widened(value: str, wrote: Type, reads: Type, level: int = 0) -> Iterator[str]:
    """Yield SQL conditions, never null, under which a long or double of the reader is no int of one writer.

    Args:
        value: The SQL expression of the value.
        wrote: The writer's type.
        reads: The reader's type at the same place.
        level: The number of lists and maps that contain the value.
    """
    for branch in wrote.branches:
        to = target(wrote, branch, reads)
        if to is None or fault(branch, to):
            continue
        at = _member(value, reads, to)
        if is_widened(wrote, branch, reads, to):
            yield _exceeds_int(at)
        match branch.kind:
            case "record":
                readers = read_by(branch, to)
                for field in branch.fields:
                    if reader := readers.get(field.name):
                        yield from widened(f"{at}.{SPARK.identifier(reader.name)}", field.type, reader.type, level)
            case "array" | "map":
                items = at if branch.kind == "array" else f"map_values({at})"
                yield from _of_items(items, level, widened(_item(level), branch.inner[0], to.inner[0], level + 1))


def column(value: str, place: Type, level: int = 0) -> str:
    """Return the SQL expression of the column's value; null in place of a number that its type cannot hold."""
    if not _is_other(place):
        return value
    if not _has_conversion(place):
        # In compiled code, unlike functions of items.
        return f"try_cast({value} AS {_type(place)})"
    if len(place.branches) == 1:
        return _branch(_member(value, place, place.branches[0]), place.branches[0], level)
    members = [_branch(_member(value, place, branch), branch, level) for branch in place.branches]
    if is_long(place):
        return f"coalesce({', '.join(members)})"
    return _struct(value, {f"member{i}": member for i, member in enumerate(members)})


def _branch(value: str, type_: Type, level: int) -> str:
    item = _item(level)
    match type_.kind, type_.logical:
        case "int", "date":
            return f"date_from_unix_date(try_cast({value} AS int))"
        case "int", _:
            return f"try_cast({value} AS int)"
        case "string", avro_types.ZONED_TIMESTAMP:
            infinite = (f"WHEN {SPARK.literal(text)} THEN timestamp_micros({at})" for text, at in INFINITE.items())
            return f"CASE {value} {' '.join(infinite)} ELSE {_zoned(value)} END"
        case "record", avro_types.VARIABLE_DECIMAL:
            return _decimal(value, type_)
        case "record", _:
            parts = {field.name: f"{value}.{SPARK.identifier(field.name)}" for field in type_.fields}
            return _struct(value, {field.name: column(parts[field.name], field.type, level) for field in type_.fields})
        case "array", _:
            return f"transform({value}, {item} -> {column(item, type_.inner[0], level + 1)})"
        case "map", _:
            return f"transform_values({value}, (k{level}, {item}) -> {column(item, type_.inner[0], level + 1)})"
    return value


def _zoned(value: str) -> str:
    return f"try_cast(upper({value}) AS timestamp)"


def _decimal(value: str, type_: Type) -> str:
    """Return the number of a VARIABLE_DECIMAL, rounded to the digits after the point; null if it does not fit.

    Its exponent has a limit because Spark would expand the digits of any.
    """
    most, to = type_.precision, f"decimal({type_.precision}, {type_.scale})"
    number = f"try_cast(concat(CAST({value}.value AS string), 'E', CAST(-{value}.scale AS string)) AS {to})"
    is_near = f"{value}.scale BETWEEN {-most} AND {most + type_.scale}"
    return f"CASE WHEN {value}.value = 0 THEN CAST(0 AS {to}) WHEN {is_near} THEN {number} END"


def _is_no_decimal(value: str, type_: Type) -> str:
    excess = f"try_cast(concat('1E', CAST({value}.scale - {type_.scale} AS string)) AS decimal({type_.precision}, 0))"
    is_rounded = f"{value}.scale > {type_.scale} AND coalesce({value}.value % {excess}, {value}.value) != 0"
    return f"coalesce({value}.value IS NOT NULL AND ({_decimal(value, type_)} IS NULL OR {is_rounded}), false)"


def _struct(value: str, members: dict[str, str]) -> str:
    parts = (f"{member} AS {SPARK.identifier(name)}" for name, member in members.items())
    return f"if({value} IS NULL, NULL, struct({', '.join(parts)}))"


def _member(value: str, place: Type, branch: Type) -> str:
    """Return the expression of a branch."""
    if len(place.branches) == 1 or is_double(place):
        return value
    index = next(i for i, other in enumerate(place.branches) if other is branch)
    return f"{value}.member{index}" + (f".{WIDE}" if branch.kind == "int" and is_split(place) else "")


def _of_items(items: str, level: int, conditions: Iterable[str]) -> Iterator[str]:
    if joined := " OR ".join(conditions):
        yield f"coalesce(exists({items}, {_item(level)} -> {joined}), false)"


def _item(level: int) -> str:
    return f"x{level}"


def _exceeds_int(value: str) -> str:
    return f"coalesce({value} NOT BETWEEN {-(2**31)} AND {2**31 - 1}, false)"


def _is_not_text(value: str) -> str:
    return f"coalesce(NOT is_valid_utf8({value}), false)"


def _is_other(place: Type) -> bool:
    """Return whether a column differs from the value that Spark reads."""
    return any(
        branch.kind == "int" or _is_converted(branch) or any(map(_is_other, _parts(branch)))
        for branch in place.branches
    )


def _has_conversion(place: Type) -> bool:
    """Return whether a value contains one that no cast converts, or a record in place of an int."""
    return is_split(place) or any(
        _is_converted(branch) or any(map(_has_conversion, _parts(branch))) for branch in place.branches
    )


def _is_converted(type_: Type) -> bool:
    return (type_.kind, type_.logical) == ("int", "date") or type_.logical in (ZONED_TIMESTAMP, VARIABLE_DECIMAL)


def _parts(type_: Type) -> list[Type]:
    return [field.type for field in type_.fields] + list(type_.inner)


def _type(place: Type) -> str:
    """Return the Spark type of a column."""
    if is_double(place):
        return "double"
    if len(place.branches) == 1:
        return _branch_type(place.branches[0])
    return _struct_type({f"member{i}": _branch_type(branch) for i, branch in enumerate(place.branches)})


def _branch_type(type_: Type) -> str:
    match type_.kind:
        case "record":
            return _struct_type({field.name: _type(field.type) for field in type_.fields})
        case "array":
            return f"array<{_type(type_.inner[0])}>"
        case "map":
            return f"map<string, {_type(type_.inner[0])}>"
    if type_.logical == "decimal":
        return f"decimal({type_.precision}, {type_.scale})"
    if type_.logical in SPARK_LOGICAL:
        return "timestamp_ntz" if type_.logical.startswith("local") else "timestamp"
    return PRIMITIVES.get(type_.kind, type_.kind)


def _struct_type(members: dict[str, str]) -> str:
    return f"struct<{', '.join(f'{SPARK.identifier(name)}: {type_}' for name, type_ in members.items())}>"
