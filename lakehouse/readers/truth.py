"""What engines say of the same rows, and where they differ. Pure: answers in, differences out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyiceberg.schema import Schema

MAX_DIGITS = 28
"""Of 38 that a sum has in every engine."""


@dataclass(frozen=True)
class Answer:
    """What one engine says of one snapshot: how many rows there are, and the sum of each column, None of no values.

    `scales` are the columns with the digits behind their point.
    """

    engine: str
    snapshot_id: int
    rows: int
    sums: Mapping[str, Decimal | None]
    scales: Mapping[str, int]

    @staticmethod
    def of(engine: str, snapshot_id: int, scales: Mapping[str, int], row: Sequence[object]) -> Answer:
        """An answer from a row of numbers: COUNT(*), and a SUM a column of `scales`."""
        rows, *sums = row
        exact = (None if value is None else Decimal(str(value)) for value in sums)
        return Answer(engine, snapshot_id, int(str(rows)), dict(zip(scales, exact, strict=True)), scales)


def summed(schema: Schema) -> dict[str, int]:
    """The columns that are summed, with the digits behind their point: those whose sum is exact in any order, and of
    decimals those that leave room for the sum of ten billion rows."""
    from pyiceberg.types import DecimalType, IntegerType, LongType

    scales = {}
    for column in schema.fields:
        match column.field_type:
            case IntegerType() | LongType():
                scales[column.name] = 0
            case DecimalType() as decimal if decimal.precision <= MAX_DIGITS:
                scales[column.name] = decimal.scale
    return scales


def differences(reference: Answer, answer: Answer) -> list[str]:
    """Where an answer is not the reference's, a sentence each; both are of the same snapshot."""
    found = []
    if answer.rows != reference.rows:
        found.append(f"{answer.engine} has {answer.rows:,} rows, {reference.engine} {reference.rows:,}")
    for column, wanted in reference.sums.items():
        got = answer.sums[column]
        if got != wanted:
            found.append(f"{answer.engine} sums {column} to {got}, {reference.engine} to {wanted}")
    return found
