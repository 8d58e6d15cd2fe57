"""Compare the row counts and column sums that several engines compute of the same snapshot. No I/O."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyiceberg.schema import Schema

MAX_DIGITS = 28
"""Maximum precision of a summed decimal; sums have 38 digits in every engine, which leaves room for 10 billion rows."""


@dataclass(frozen=True)
class TableTotals:
    """Row count and column sums that one engine computed of one snapshot.

    Attributes:
        engine: The name of the engine.
        snapshot_id: The snapshot.
        rows: The number of rows.
        sums: The sum of each column; None if it has no values.
        scales: The number of digits after the decimal point of each column.
    """

    engine: str
    snapshot_id: int
    rows: int
    sums: Mapping[str, Decimal | None]
    scales: Mapping[str, int]

    @staticmethod
    def of(engine: str, snapshot_id: int, scales: Mapping[str, int], row: Sequence[object]) -> TableTotals:
        """Return the totals in a row of numbers: COUNT(*), then one SUM per column of `scales`."""
        rows, *sums = row
        exact = (None if value is None else Decimal(str(value)) for value in sums)
        return TableTotals(engine, snapshot_id, int(str(rows)), dict(zip(scales, exact, strict=True)), scales)


def summable_columns(schema: Schema) -> dict[str, int]:
    """Return the columns to sum, with the number of digits after the decimal point.

    These are the columns whose sum is exact in any order; decimals only if the sum of ten billion rows fits.
    """
    from pyiceberg.types import DecimalType, IntegerType, LongType

    scales = {}
    for column in schema.fields:
        match column.field_type:
            case IntegerType() | LongType():
                scales[column.name] = 0
            case DecimalType() as decimal if decimal.precision <= MAX_DIGITS:
                scales[column.name] = decimal.scale
    return scales


def differences(reference: TableTotals, totals: TableTotals) -> list[str]:
    """Return the differences between two engines' totals of the same snapshot, one sentence each."""
    sentences = []
    if totals.rows != reference.rows:
        sentences.append(f"{totals.engine} has {totals.rows:,} rows, {reference.engine} {reference.rows:,}")
    for column, expected in reference.sums.items():
        actual = totals.sums[column]
        if actual != expected:
            sentences.append(f"{totals.engine} sums {column} to {actual}, {reference.engine} to {expected}")
    return sentences
