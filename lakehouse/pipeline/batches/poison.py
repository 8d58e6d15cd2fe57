"""Isolate, by bisection, the record that aborts the Spark job which reads or decodes it (a poison pill)."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace

from lakehouse.config.model import Topic
from lakehouse.core.errors import TransientError, UnclearState
from lakehouse.core.offsets.batch import Batch, head
from lakehouse.pipeline.engine_values import JobFailed, Place


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


def first_aborting_record(decodable: Callable[[Batch], bool], batch: Batch) -> Place | None:
    """Return the place of the first record of a batch whose decoding aborts the Spark job; None if none does.

    Args:
        decodable: Returns whether Spark can decode a batch without aborting.
        batch: The batch.
    """
    while batch.offsets:
        prefix, is_poison = largest_decodable_prefix(decodable, batch)
        if is_poison:
            return _place(prefix)
        batch = replace(batch, start=prefix.end)
    return None


@contextmanager
def report_aborted(
    topic: Topic, effect: str, remedy: str, find: Callable[[], Place | None] = lambda: None
) -> Iterator[None]:
    """Raise an error with the effect and the remedy if Spark aborts a job, which names the record if `find` does."""
    try:
        yield
    except JobFailed as error:
        place = None
        with suppress(JobFailed):
            place = find()
        by = f" by the record in partition {place[0]} at offset {place[1]}" if place else ""
        # The text of Spark's error may quote values.
        problem = f"The Spark job that decodes records of '{topic.name}' was aborted{by} ({error.condition})"
        raise TransientError(f"{problem}; the log of Spark has the cause", effect, remedy) from error


def listed(places: Sequence[Place]) -> str:
    """Return places as text."""
    return ", ".join(f"partition {partition} offset {offset}" for partition, offset in places)


def _place(record: Batch) -> Place:
    """Return the place of the only record of a batch."""
    [place] = [(p, record.start[p]) for p, end in record.end.items() if end > record.start[p]]
    return place


def unreadable_record(topic: Topic, batch: Batch) -> UnclearState:
    """Return the error for a record that Spark's Kafka source cannot read.

    Args:
        topic: The topic as declared in lakehouse.yaml.
        batch: The single record.
    """
    partition, offset = _place(batch)
    position = ",".join(f"{p}:{end}" for p, end in sorted(batch.end.items()))
    return UnclearState(
        f"Spark cannot read the record of '{topic.name}' in partition {partition} at offset {offset}: its timestamp is "
        f"beyond the year 294,246, which happens if a producer sends nanoseconds instead of milliseconds. This record "
        f"and later ones were not published. Skip it with `lakehouse resume {topic.name} --at {position} --reason …`, "
        f"and correct the producer"
    )
