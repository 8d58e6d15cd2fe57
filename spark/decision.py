"""Which records of a batch are dead letters: decided while it is written, and found again before it is published.

A count alone would not tell one record from another, so a digest of their places in Kafka goes with it.
"""

from __future__ import annotations

from dataclasses import dataclass

from pyspark.sql import Column
from pyspark.sql import functions as F


@dataclass(frozen=True)
class Decision:
    """The dead letters of a batch: how many, the digest of their places, and how many of them became rows since."""

    count: int = 0
    digest: int = 0
    landed: int = 0


def digest(partition: Column, offset: Column, chosen: Column) -> Column:
    """Aggregate the places of chosen records to one number, whatever their order.

    Args:
        partition: Kafka partition of each record.
        offset: Kafka offset of each record.
        chosen: whether a record counts.
    """
    place = F.xxhash64(partition.cast("long"), offset.cast("long"))
    return F.coalesce(F.bit_xor(F.when(chosen, place)), F.lit(0).cast("long"))
