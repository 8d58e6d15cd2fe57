"""Numbers that Spark takes of records while it writes them.

A count does not distinguish records, so sets of dead letters, which are decided while a batch is written and verified
before it is published, are compared by a digest of their partitions and offsets as well.
"""

from __future__ import annotations

from collections.abc import Mapping

from pyspark.sql import Column, Observation
from pyspark.sql import functions as F

from lakehouse.core.errors import Unreachable
from lakehouse.pipeline.engine_values import CountsLost


def observed_counts(observation: Observation) -> Mapping[str, int]:
    """Return the counts of an observation.

    Raises:
        CountsLost: Spark did not send them. A listener of the server gets them after the write, for which the server
            waits 100 ms only (SPARK-54279), and a response may be cut off before them.
    """
    if counts := observation.get:
        return counts
    cause = "the counts of a write did not arrive"
    raise CountsLost(Unreachable("Spark Connect", "its server", "its log and load", cause))


def digest(partition: Column, offset: Column, chosen: Column) -> Column:
    """Aggregate the partitions and offsets of chosen records to one number that does not depend on their order.

    Args:
        partition: The Kafka partition of each record.
        offset: The Kafka offset of each record.
        chosen: Whether a record is in the set.
    """
    place = F.xxhash64(partition.cast("long"), offset.cast("long"))
    return F.coalesce(F.bit_xor(F.when(chosen, place)), F.lit(0).cast("long"))
