"""Data files with the rows of a batch, and the records of the batch that are not in them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from lakehouse.pipeline.engine_values import LetterOrigin, Written
from lakehouse.pipeline.spilled_records import SpilledRecords

if TYPE_CHECKING:
    from pyiceberg.manifest import DataFile
    from pyiceberg.table import Table


COMPILED, FAILED = "compiled", "the compiled decoder failed"
"""Values of the property `lakehouse.decoder` of snapshots, of which the second one is followed by the cause."""


@dataclass(frozen=True)
class NoRowFiles:
    """The engine writes no files of rows of a batch: the reference decoder reads all records."""

    reason: str
    """The reason: a fixed text, and after a colon what was observed."""


@dataclass(frozen=True, eq=False)
class LetterFiles:
    """Files of a table of dead letters, which no snapshot has yet."""

    table: Table
    """The table as loaded before they were written."""
    files: Sequence[DataFile]

    @property
    def count(self) -> int:
        """The number of dead letters."""
        return sum(file.record_count for file in self.files)


@dataclass(frozen=True, eq=False)
class RowFiles:
    """Data files with rows of a batch, which no snapshot has yet."""

    files: Sequence[DataFile]
    rows: int
    """The number of rows in all files."""
    others: SpilledRecords
    """The other records of the batch: dead letters, and those that only the reference decoder reads."""
    decoder: str = COMPILED
    """`compiled`, or the reason why the reference decoder decided the rows."""
    written: Written | None = None
    """The outcomes of all records of the batch; None if the others were not decided."""
    letters: LetterFiles | None = None
    """Files of dead letters, whose records are not among the others; None if there are none."""


@dataclass(frozen=True, eq=False)
class LetterTable:
    """The table of dead letters, of which an engine may write files."""

    table: Table
    origin: LetterOrigin
    """The origin of the dead letters."""
