"""What a record may hold though its type cannot: decimals with more digits, text that is not UTF-8."""

from __future__ import annotations

from collections.abc import Iterator
from decimal import Decimal
from typing import TYPE_CHECKING

from pyspark.sql import Column
from pyspark.sql import functions as F

from lakehouse.avro_resolution import LONG_DIGITS
from spark.conditions import every

if TYPE_CHECKING:
    from pyiceberg.types import IcebergType


def fit(column: Column, type_: IcebergType) -> Column | None:
    """Whether every value in a column is one of its type; None where there is nothing to look at.

    Longer decimals need no look: Spark refuses what they cannot hold. Shorter ones it cuts to 64 bits without a word,
    and text it takes as it comes, so that readers of the file would fail (Parquet, LogicalTypes: STRING is UTF-8).
    """
    return every(list(_conditions(column, type_)))


def _conditions(column: Column, type_: IcebergType) -> Iterator[Column]:
    from pyiceberg.types import DecimalType, ListType, MapType, StringType, StructType

    match type_:
        case DecimalType() if type_.precision <= LONG_DIGITS:
            most = Decimal(10) ** (type_.precision - type_.scale)
            yield F.coalesce(F.abs(column) < F.lit(most), F.lit(True))
        case StringType():
            yield F.coalesce(F.is_valid_utf8(column), F.lit(True))
        case StructType():
            for field in type_.fields:
                yield from _conditions(column[field.name], field.field_type)
        case ListType():
            yield from _each(column, type_.element_type)
        case MapType():
            yield from _each(F.map_keys(column), type_.key_type)
            yield from _each(F.map_values(column), type_.value_type)


def _each(items: Column, type_: IcebergType) -> Iterator[Column]:
    if _is_looked_at(type_):
        yield F.coalesce(F.forall(items, lambda item: fit(item, type_)), F.lit(True))


def _is_looked_at(type_: IcebergType) -> bool:
    """Whether there is something to look at in values of the type, without building what looks."""
    from pyiceberg.types import DecimalType, ListType, MapType, StringType, StructType

    match type_:
        case StructType():
            return any(_is_looked_at(field.field_type) for field in type_.fields)
        case ListType():
            return _is_looked_at(type_.element_type)
        case MapType():
            return _is_looked_at(type_.key_type) or _is_looked_at(type_.value_type)
    return isinstance(type_, StringType) or (isinstance(type_, DecimalType) and type_.precision <= LONG_DIGITS)
