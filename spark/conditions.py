"""Many conditions as one expression that is as deep as the logarithm of their number.

Protobuf, in which Spark Connect sends expressions, reads 100 messages within messages: a chain of fifty is too deep.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from operator import or_
from typing import Any

from pyspark.sql import Column
from pyspark.sql import functions as F


def none_of(faults: Sequence[Column]) -> Column:
    """None of the conditions, which are never null.

    They are the elements of a list: Spark's optimizer compares the conditions of a conjunction with each other, which
    takes minutes where each of a thousand columns has one.
    """
    return ~F.array_contains(F.array(*faults), F.lit(True))


def some(conditions: Sequence[Column]) -> Column:
    """At least one of the conditions; false without any."""
    joined = list(conditions)
    while len(joined) > 1:
        pairs = [or_(*joined[i : i + 2]) for i in range(0, len(joined) - 1, 2)]
        joined = pairs + joined[2 * len(pairs) :]
    return joined[0] if joined else F.lit(False)


def first_of(branches: Iterable[tuple[Column, Any]]) -> Column:
    """Return the value of the first condition that is true, null where none is; there is at least one branch."""
    chain: Any = F
    for condition, value in branches:
        chain = chain.when(condition, value)
    return chain
