"""Detect decoded values that the type of their column cannot hold: decimals with more digits, text that is not
UTF-8."""

from __future__ import annotations

from collections.abc import Iterator
from decimal import Decimal
from typing import TYPE_CHECKING

from pyspark.sql import Column
from pyspark.sql import functions as F

from lakehouse.formats.avro_resolution import LONG_DIGITS
from spark.conditions import some

if TYPE_CHECKING:
    from pyiceberg.types import IcebergType


def misfits(column: Column, type_: IcebergType) -> list[Column]:
    """Return conditions, never null, under which a column contains a value that its type cannot hold.

    Decimals of more than 64 bits need no condition, because Spark refuses values that do not fit. Shorter decimals are
    truncated to 64 bits without an error, and text is not validated, so that readers of the file would fail (Parquet,
    LogicalTypes: STRING is UTF-8).
    """
    return list(_faults(column, type_))


def _faults(column: Column, type_: IcebergType) -> Iterator[Column]:
    from pyiceberg.types import DecimalType, ListType, MapType, StringType, StructType

    match type_:
        case DecimalType() if type_.precision <= LONG_DIGITS:
            most = Decimal(10) ** (type_.precision - type_.scale)
            yield F.coalesce(F.abs(column) >= F.lit(most), F.lit(False))
        case StringType():
            yield F.coalesce(~F.is_valid_utf8(column), F.lit(False))
        case StructType():
            for field in type_.fields:
                yield from _faults(column[field.name], field.field_type)
        case ListType():
            yield from _each(column, type_.element_type)
        case MapType():
            yield from _each(F.map_keys(column), type_.key_type)
            yield from _each(F.map_values(column), type_.value_type)


def _each(items: Column, type_: IcebergType) -> Iterator[Column]:
    if _is_checked(type_):
        yield F.coalesce(F.exists(items, lambda item: some(misfits(item, type_))), F.lit(False))


def _is_checked(type_: IcebergType) -> bool:
    """Return whether values of the type have any condition, without building the conditions."""
    from pyiceberg.types import DecimalType, ListType, MapType, StringType, StructType

    match type_:
        case StructType():
            return any(_is_checked(field.field_type) for field in type_.fields)
        case ListType():
            return _is_checked(type_.element_type)
        case MapType():
            return _is_checked(type_.key_type) or _is_checked(type_.value_type)
    return isinstance(type_, StringType) or (isinstance(type_, DecimalType) and type_.precision <= LONG_DIGITS)
