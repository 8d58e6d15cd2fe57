"""The place of a record: the Kafka partition and offset, which identify it within its topic.

The log, decoded records, rows and dead letters have it in other columns. Queries that combine them select it as NAMES.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce
from operator import and_
from typing import NamedTuple

from pyspark.sql import Column
from pyspark.sql import functions as F

from lakehouse.core.offsets.batch import Positions
from lakehouse.core.sql import SPARK
from lakehouse.core.tables import letter_columns
from spark.decoding.conditions import some
from spark.decoding.decoded import record

NAMES = ["kafka_partition", "kafka_offset"]
"""The columns of a place in queries."""


class PlaceColumns(NamedTuple):
    """The columns in which records have their places."""

    partition: Column
    offset: Column

    def named(self) -> list[Column]:
        """Return the columns by the names NAMES."""
        return [column.alias(name) for column, name in zip(self, NAMES, strict=True)]

    def equals(self, other: PlaceColumns) -> Column:
        """Return whether two records are the same."""
        return (self.partition == other.partition) & (self.offset == other.offset)

    def is_within(self, start: Positions, end: Positions) -> Column:
        """Return whether a place is from `start` (inclusive) to `end` (exclusive) by partition."""
        inside = [
            (self.partition == p) & (self.offset >= start.get(p, 0)) & (self.offset < after)
            for p, after in end.items()
            if after > start.get(p, 0)
        ]
        return some([F.lit(False), *inside])

    def is_one_of(self, places: Sequence[tuple[int, int]]) -> Column:
        """Return whether a place is one of some places."""
        return some([F.lit(False), *((self.partition == p) & (self.offset == o) for p, o in places)])


def in_log() -> PlaceColumns:
    """Return the columns of spark.records."""
    return PlaceColumns(F.col("partition"), F.col("offset"))


def in_decoded() -> PlaceColumns:
    """Return the columns of decoded records."""
    return PlaceColumns(record("partition"), record("offset"))


def in_rows(names: Sequence[str]) -> PlaceColumns:
    """Return the columns of a table, given by their names there."""
    return PlaceColumns(*(F.col(SPARK.identifier(name)) for name in names))


def in_letters(alias: str = "") -> PlaceColumns:
    """Return the columns of dead letters, which may have an alias in the query."""
    return PlaceColumns(*(F.col(f"{alias}.{name}" if alias else name) for name in letter_columns.PLACE))


def in_query(alias: str = "") -> PlaceColumns:
    """Return the columns NAMES, which may have an alias in the query."""
    return PlaceColumns(*(F.col(f"{alias}.{name}" if alias else name) for name in NAMES))


def with_key(place: PlaceColumns, key: Sequence[str]) -> list[Column]:
    """Return a place as NAMES, and the columns that identify a row by generated names, for `same_key`."""
    return [*place.named(), *(F.col(SPARK.identifier(name)).alias(f"key_{n}") for n, name in enumerate(key))]


def same_key(one: str, other: str, key: Sequence[str]) -> Column:
    """Return whether two rows of `with_key`, given by their aliases, have the same key. A null equals a null."""
    return reduce(and_, (F.col(f"{one}.key_{n}").eqNullSafe(F.col(f"{other}.key_{n}")) for n in range(len(key))))
