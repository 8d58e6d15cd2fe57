"""Which columns of a table each column of a computed result is made from, as Spark itself sees it."""

from __future__ import annotations

import io
import re
from collections.abc import Collection
from contextlib import redirect_stdout

from pyspark.sql import DataFrame

from lakehouse.core.sql import SPARK

SCANNED = re.compile(r"BatchScan [^\[\n]*\[([^\]\n]*)\]")
"""The columns that a plan reads of an Iceberg table: Spark reads none that the result does not need."""


def columns_read(result: DataFrame, source: Collection[str]) -> dict[str, list[str]]:
    """For each column of a result, the source's columns that Spark reads to compute it; nothing is computed.

    What decides which rows there are (a filter, a group) is read for every column, and so is in all of them.

    Parameters: `source` are the columns of the table that the result is made from.
    """
    return {column: _read(result.select(SPARK.identifier(column)), source) for column in result.columns}


def _read(result: DataFrame, source: Collection[str]) -> list[str]:
    plan = io.StringIO()
    with redirect_stdout(plan):
        result.explain("simple")
    scanned = {
        name.rpartition("#")[0].strip() for found in SCANNED.findall(plan.getvalue()) for name in found.split(",")
    }
    return [column for column in source if column in scanned]
