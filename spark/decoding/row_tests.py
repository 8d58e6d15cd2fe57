"""Tests of rows that users declare, whose errors stop no job and whose patterns end no server."""

from __future__ import annotations

from collections.abc import Callable

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import Column
from pyspark.sql import functions as F

from lakehouse.core.patterns import MOST_BYTES, Matches
from lakehouse.core.sql import SPARK


def outcome(test: str | Matches) -> Column:
    """Return whether a row passes a test of lakehouse.config.checks.RowCheck: null if the test raises an error."""
    if isinstance(test, Matches):
        matches = F.arrow_udf(_matcher(test.whole), "boolean")  # type: ignore[call-overload]  # its stub lacks this form
        result: Column = matches(F.col(SPARK.identifier(test.column)).cast("string"))
        return result
    # The branch of a CASE is not a subexpression that Spark computes once for several tests, outside of each.
    return F.when(F.monotonically_increasing_id() >= 0, F.expr(test))


def _matcher(pattern: str) -> Callable[[pa.Array], pa.Array]:
    """Return the function that Spark's Python workers run."""

    def matches(values: pa.Array) -> pa.Array:
        is_short = pc.less_equal(pc.binary_length(values), MOST_BYTES)
        short = pc.if_else(is_short, values, None)
        return pc.if_else(is_short, pc.fill_null(pc.match_substring_regex(short, pattern), True), False).fill_null(True)

    return matches
