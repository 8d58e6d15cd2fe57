"""A check of one column."""

from typing import Literal

from lakehouse.config.checks import ColumnCheck, RowCheck


class MultipleOf(ColumnCheck, RowCheck):
    """A column is a multiple of a number."""

    type: Literal["multiple_of"]
    number: int

    @property
    def condition(self) -> str:
        return f"CAST(`{self.column}` AS INT) % {self.number} = 0"
