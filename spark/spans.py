"""The least and greatest value of a column, brought to this process and back without a change."""

from __future__ import annotations

from pyspark.sql import Column
from pyspark.sql import functions as F
from pyspark.sql.types import DataType, IntegerType, LongType, StringType, TimestampType

SPANNED = (IntegerType, LongType, StringType, TimestampType)
"""Types whose span prunes files. A float's NaN and -0.0 have one order in Spark and another one in Iceberg."""


def bound(column: Column, type_: DataType) -> Column:
    """Return what to collect for a least or greatest value of a type.

    Timestamps travel as microseconds: Python's end in the year 9999, and local time has hours that come twice.
    """
    return F.unix_micros(column) if isinstance(type_, TimestampType) else column


def literal(value: object, type_: DataType) -> Column:
    """Return a collected bound as a column of its type."""
    return F.timestamp_micros(F.lit(value)) if isinstance(type_, TimestampType) else F.lit(value)
