"""Rows that a table lacks, or has an older version of."""

from __future__ import annotations

from functools import reduce

from pyspark.sql import DataFrame
from pyspark.sql import functions as F


def missing(rows: DataFrame, table: str, key: tuple[str, ...]) -> DataFrame:
    """The rows whose key the table does not have."""
    there = rows.sparkSession.table(table).select(*[F.col(f"`{c}`").alias(f"__there_{c}") for c in key])
    same = reduce(lambda a, b: a & b, [F.col(f"`{c}`") == F.col(f"__there_{c}") for c in key])
    return rows.join(there, same, "leftanti")
