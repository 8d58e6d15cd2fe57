"""What a record may hold though its type cannot: decimals with more digits, text that is not UTF-8."""

from __future__ import annotations

from collections.abc import Iterable
from decimal import Decimal
from functools import reduce
from typing import TYPE_CHECKING

from pyspark.sql import Column
from pyspark.sql import functions as F

from lakehouse.avro import LONG_DIGITS

if TYPE_CHECKING:
    from pyiceberg.types import IcebergType


def fit(column: Column, type_: IcebergType) -> Column | None:
    """Whether every value in a column is one of its type; None where there is nothing to look at.

    Longer decimals need no look: Spark refuses what they cannot hold. Shorter ones it cuts to 64 bits without a word,
    and text it takes as it comes, so that readers of the file would fail (Parquet, LogicalTypes: STRING is UTF-8).
    """
    from pyiceberg.types import DecimalType, ListType, MapType, StringType, StructType

    match type_:
        case DecimalType() if type_.precision <= LONG_DIGITS:
            most = Decimal(10) ** (type_.precision - type_.scale)
            return F.coalesce(F.abs(column) < F.lit(most), F.lit(True))
        case StringType():
            return F.coalesce(F.is_valid_utf8(column), F.lit(True))
        case StructType():
            return _every(fit(column[field.name], field.field_type) for field in type_.fields)
        case ListType():
            return _all(column, type_.element_type)
        case MapType():
            sides = (F.map_keys(column), type_.key_type), (F.map_values(column), type_.value_type)
            return _every(_all(*side) for side in sides)
    return None


def _all(items: Column, type_: IcebergType) -> Column | None:
    if fit(F.lit(None), type_) is None:
        return None
    return F.coalesce(F.forall(items, lambda item: fit(item, type_)), F.lit(True))


def _every(conditions: Iterable[Column | None]) -> Column | None:
    found = [condition for condition in conditions if condition is not None]
    return reduce(lambda a, b: a & b, found) if found else None
