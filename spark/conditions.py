"""Many conditions as one expression that is as deep as the logarithm of their number.

Protobuf, in which Spark Connect sends expressions, reads 100 messages within messages: a chain of fifty is too deep.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from operator import and_, or_

from pyspark.sql import Column


def every(conditions: Sequence[Column]) -> Column | None:
    """All of the conditions; None without any."""
    return _balanced(and_, conditions)


def some(conditions: Sequence[Column]) -> Column | None:
    """At least one of the conditions; None without any."""
    return _balanced(or_, conditions)


def _balanced(join: Callable[[Column, Column], Column], conditions: Sequence[Column]) -> Column | None:
    joined = list(conditions)
    while len(joined) > 1:
        pairs = [join(*joined[i : i + 2]) for i in range(0, len(joined) - 1, 2)]
        joined = pairs + joined[2 * len(pairs) :]
    return joined[0] if joined else None
