"""Conditions over records, which are true or false and never null, and their combinations.

A condition of SQL that reads a null is null, and so is its negation: a filter by either drops the record, which no
count would notice. Every condition that decides about a record is therefore the result of a function of this module.

Combinations have logarithmic depth: Spark Connect sends expressions as Protobuf messages, which may be nested 100 deep,
and a chain of fifty conditions is too deep.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from operator import or_
from typing import Any

from pyspark.sql import Column
from pyspark.sql import functions as F


def is_true(condition: Column) -> Column:
    """Return whether a condition is true: false if it is null."""
    return F.coalesce(condition, F.lit(False))


def none_of(faults: Sequence[Column]) -> Column:
    """Return whether none of the conditions is true.

    They are elements of an array, because Spark's optimizer compares the conditions of a conjunction pairwise, which
    takes minutes for a thousand columns with one condition each.
    """
    return ~is_true(F.array_contains(F.array(*faults), F.lit(True)))


def some(conditions: Sequence[Column]) -> Column:
    """Return whether at least one of the conditions is true; false if there are none."""
    joined = [is_true(condition) for condition in conditions]
    while len(joined) > 1:
        pairs = [or_(*joined[i : i + 2]) for i in range(0, len(joined) - 1, 2)]
        joined = pairs + joined[2 * len(pairs) :]
    return joined[0] if joined else F.lit(False)


def first_of(branches: Iterable[tuple[Column, Any]]) -> Column:
    """Return the value of the first condition that is true, or null if none is. There must be at least one branch."""
    chain: Any = F
    for condition, value in branches:
        chain = chain.when(condition, value)
    return chain
