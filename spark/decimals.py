"""Decimals with more digits than their type has: a record may hold them, whatever its schema says."""

from __future__ import annotations

from decimal import Decimal
from functools import reduce
from typing import TYPE_CHECKING

from pyspark.sql import Column
from pyspark.sql import functions as F

from lakehouse.avro import LONG_DIGITS

if TYPE_CHECKING:
    from pyiceberg.types import IcebergType


def fit(column: Column, type_: IcebergType) -> Column | None:
    """Whether no decimal in a column has more digits than its type; None where there is none to look at.

    Longer types need no look: Spark refuses what they cannot hold. Shorter ones it cuts to 64 bits without a word.
    """
    from pyiceberg.types import DecimalType, ListType, MapType, StructType

    match type_:
        case DecimalType() if type_.precision <= LONG_DIGITS:
            most = Decimal(10) ** (type_.precision - type_.scale)
            return F.coalesce(F.abs(column) < F.lit(most), F.lit(True))
        case StructType():
            found = [fit(column[field.name], field.field_type) for field in type_.fields]
            parts = [part for part in found if part is not None]
            return reduce(lambda a, b: a & b, parts) if parts else None
        case ListType() if fit(column, type_.element_type) is not None:
            return F.coalesce(F.forall(column, lambda item: fit(item, type_.element_type)), F.lit(True))
        case MapType() if fit(column, type_.value_type) is not None:
            values = F.map_values(column)
            return F.coalesce(F.forall(values, lambda item: fit(item, type_.value_type)), F.lit(True))
    return None
