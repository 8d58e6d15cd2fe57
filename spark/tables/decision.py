"""Sets of dead letters: decided while a batch is written, and verified before it is published.

A count does not distinguish records, so sets are compared by a digest of their partitions and offsets as well.
"""

from __future__ import annotations

from dataclasses import dataclass

from pyspark.sql import Column
from pyspark.sql import functions as F


@dataclass(frozen=True)
class Decision:
    """A set of dead letters.

    Attributes:
        count: Their number.
        digest: The digest of their partitions and offsets.
        recovered: How many of them have become rows since.
    """

    count: int = 0
    digest: int = 0
    recovered: int = 0


def digest(partition: Column, offset: Column, chosen: Column) -> Column:
    """Aggregate the partitions and offsets of chosen records to one number that does not depend on their order.

    Args:
        partition: The Kafka partition of each record.
        offset: The Kafka offset of each record.
        chosen: Whether a record is in the set.
    """
    place = F.xxhash64(partition.cast("long"), offset.cast("long"))
    return F.coalesce(F.bit_xor(F.when(chosen, place)), F.lit(0).cast("long"))
