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


@dataclass(frozen=True, eq=False)
class SpilledRecords:
    """Records of a batch that files of rows lack, and no snapshot has."""

    batch: Batch
    """The range of the batch."""
    table: pa.Table
    """The records in the columns of the engine's log, with headers."""
