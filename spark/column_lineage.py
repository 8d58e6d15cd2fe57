"""Determine the source columns of each column of a result, from Spark's query plan."""

from __future__ import annotations

import io
import re
from collections.abc import Collection
from contextlib import redirect_stdout

from pyspark.sql import DataFrame

from lakehouse.core.sql import SPARK

SCANNED = re.compile(r"BatchScan [^\[\n]*\[([^\]\n]*)\]")
"""Columns that a plan reads of an Iceberg table. Spark reads none that the result does not need."""


def columns_read(result: DataFrame, source: Collection[str]) -> dict[str, list[str]]:
    """Return the source columns that Spark reads to compute each column of a result, without computing it.

    Columns that select rows (filters, groups) are read for every column, and are therefore in all of them.

    Args:
        result: The result.
        source: The columns of the source table.
    """
    return {column: _read(result.select(SPARK.identifier(column)), source) for column in result.columns}


def _read(result: DataFrame, source: Collection[str]) -> list[str]:
    plan = io.StringIO()
    with redirect_stdout(plan):
        result.explain("simple")
    scanned = {
        name.rpartition("#")[0].strip() for columns in SCANNED.findall(plan.getvalue()) for name in columns.split(",")
    }
    return [column for column in source if column in scanned]
