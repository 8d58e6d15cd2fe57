"""A record that ends the work that reads or decodes it, found by halving."""

from __future__ import annotations

from collections.abc import Callable

from lakehouse.config.topic import Topic
from lakehouse.core.batch import Batch, split
from lakehouse.core.errors import UnclearState


def before_poison(decodable: Callable[[Batch], bool], batch: Batch) -> tuple[Batch, bool]:
    """The part of a batch that can be published, and whether that is one record that must not be decoded.

    Parameters: `decodable` tells whether decoding a batch comes to an end.
    Returns: all of the batch where all of it decodes; else the longest first part found that does; else one record.
    """
    if decodable(batch):
        return batch, False
    while batch.offsets > 1:
        half = split(batch, batch.offsets // 2)
        if decodable(half):
            return half, False
        batch = half
    # Once more: what failed for another reason must not be taken for a record's fault.
    return batch, not decodable(batch)


def unreadable(topic: Topic, batch: Batch) -> UnclearState:
    """Return the error for a record that Spark cannot even read.

    Args:
        topic: The entry in lakehouse.yaml.
        batch: The one record.
    """
    [(partition, offset)] = [(p, batch.start[p]) for p, end in batch.end.items() if end > batch.start[p]]
    position = ",".join(f"{p}:{end}" for p, end in sorted(batch.end.items()))
    return UnclearState(
        f"Spark cannot read the record of '{topic.name}' in partition {partition} at offset {offset}: its timestamp is "
        f"beyond the year 294,246, as when a producer sends nanoseconds in place of milliseconds. Nothing from there "
        f"on was published. Leave it out with `lakehouse resume {topic.name} --at {position} --reason …`, and correct "
        f"the producer"
    )
