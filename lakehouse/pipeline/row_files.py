"""Data files with the rows of a batch, and the records of the batch that are not in them.

Spark's Python workers load this module, so it loads no client library.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from lakehouse.core.offsets.batch import Batch

if TYPE_CHECKING:
    import pyarrow as pa
    from pyiceberg.manifest import DataFile


COMPILED, FAILED = "compiled", "the compiled decoder failed"
"""Values of the property `lakehouse.decoder` of snapshots, of which the second one is followed by the cause."""


@dataclass(frozen=True, eq=False)
class SpilledRecords:
    """Records of a batch that a compiled decoder did not make rows, which no snapshot has."""

    batch: Batch
    """The range of the batch."""
    table: pa.Table
    """The records in the columns of the engine's log, with headers."""


@dataclass(frozen=True)
class NoRowFiles:
    """The engine writes no files of rows of a batch: the reference decoder reads all records."""

    reason: str
    """The reason: a fixed text, and after a colon what was observed."""


@dataclass(frozen=True, eq=False)
class RowFiles:
    """Data files with rows of a batch, which no snapshot has yet."""

    files: Sequence[DataFile]
    rows: int
    """The number of rows in all files."""
    others: SpilledRecords
    """The other records of the batch: dead letters, and those that only the reference decoder reads."""
