"""Many conditions as one expression that is as deep as the logarithm of their number.

Protobuf, in which Spark Connect sends expressions, reads 100 messages within messages: a chain of fifty is too deep.
"""

from __future__ import annotations

from collections.abc import Sequence
from operator import or_

from pyspark.sql import Column
from pyspark.sql import functions as F


def none_of(faults: Sequence[Column]) -> Column:
    """None of the conditions, which are never null.

    They are the elements of a list: Spark's optimizer compares the conditions of a conjunction with each other, which
    takes minutes where each of a thousand columns has one.
    """
    return ~F.array_contains(F.array(*faults), F.lit(True))


def some(conditions: Sequence[Column]) -> Column | None:
    """At least one of the conditions; None without any."""
    joined = list(conditions)
    while len(joined) > 1:
        pairs = [or_(*joined[i : i + 2]) for i in range(0, len(joined) - 1, 2)]
        joined = pairs + joined[2 * len(pairs) :]
    return joined[0] if joined else None
