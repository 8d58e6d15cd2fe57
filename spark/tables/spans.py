"""Collect the minimum and maximum of a column, and convert them back to columns without loss."""

from __future__ import annotations

from pyspark.sql import Column
from pyspark.sql import functions as F
from pyspark.sql.types import DataType, IntegerType, LongType, StringType, TimestampType

SPANNED = (IntegerType, LongType, StringType, TimestampType)
"""Types whose minimum and maximum prune files. Spark and Iceberg order NaN and -0.0 of floats differently."""


def bound(column: Column, type_: DataType) -> Column:
    """Return the expression to collect for a minimum or maximum of a type.

    Timestamps are collected as microseconds: Python's end in the year 9999, and local times are ambiguous.
    """
    return F.unix_micros(column) if isinstance(type_, TimestampType) else column


def literal(value: object, type_: DataType) -> Column:
    """Return a collected bound as a column of its type."""
    return F.timestamp_micros(F.lit(value)) if isinstance(type_, TimestampType) else F.lit(value)
