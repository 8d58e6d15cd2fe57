"""Records of a batch that files of rows lack.

Spark's Python workers load this module, so it loads no client library.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from lakehouse.core.offsets.batch import Batch

if TYPE_CHECKING:
    import pyarrow as pa

SPILLED_BYTES = 64 << 20
"""Maximum bytes of the records of a batch that files of rows lack: the driver collects them."""

MIN_OFFSETS = 20_000
"""Minimum number of offsets of a batch whose rows are appended by files of their own, which cost a small one too much
time. The dead letters of a smaller one are kept in a cache."""


def is_small(batch: Batch) -> bool:
    """Return whether a batch has fewer offsets."""
    return batch.offsets < MIN_OFFSETS


@dataclass(frozen=True, eq=False)
class SpilledRecords:
    """Records of a batch that files of rows lack, and no snapshot has."""

    batch: Batch
    """The range of the batch."""
    table: pa.Table
    """The records in the columns of the engine's log, with headers."""
