"""Isolate, by bisection, the record that aborts the Spark job which reads or decodes it (a poison pill)."""

from __future__ import annotations

from collections.abc import Callable

from lakehouse.config.topic import Topic
from lakehouse.core.errors import UnclearState
from lakehouse.core.offsets.batch import Batch, head


def largest_decodable_prefix(decodable: Callable[[Batch], bool], batch: Batch) -> tuple[Batch, bool]:
    """Return the first part of a batch that can be published, and whether it is one record that must not be decoded.

    Args:
        decodable: Returns whether Spark can decode a batch without aborting.
        batch: The batch.

    Returns:
        The whole batch if all of it decodes; else the longest decodable first part that bisection reaches; else the
        first record, with True if decoding it fails again.
    """
    if decodable(batch):
        return batch, False
    while batch.offsets > 1:
        half = head(batch, batch.offsets // 2)
        if decodable(half):
            return half, False
        batch = half
    # Decode it again, so that a transient failure is not attributed to the record.
    return batch, not decodable(batch)


def unreadable_record(topic: Topic, batch: Batch) -> UnclearState:
    """Return the error for a record that Spark's Kafka source cannot read.

    Args:
        topic: The topic as declared in lakehouse.yaml.
        batch: The single record.
    """
    [(partition, offset)] = [(p, batch.start[p]) for p, end in batch.end.items() if end > batch.start[p]]
    position = ",".join(f"{p}:{end}" for p, end in sorted(batch.end.items()))
    return UnclearState(
        f"Spark cannot read the record of '{topic.name}' in partition {partition} at offset {offset}: its timestamp is "
        f"beyond the year 294,246, which happens if a producer sends nanoseconds instead of milliseconds. This record "
        f"and later ones were not published. Skip it with `lakehouse resume {topic.name} --at {position} --reason …`, "
        f"and correct the producer"
    )
