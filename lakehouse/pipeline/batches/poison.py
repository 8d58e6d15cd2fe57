"""Isolate, by bisection, the record that aborts the Spark job which reads or decodes it (a poison pill)."""

import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from functools import partial

from lakehouse.config.model import Topic
from lakehouse.core.errors import TransientError, UnclearState
from lakehouse.core.offsets.batch import Batch, head
from lakehouse.pipeline.batches.batch_context import BatchContext
from lakehouse.pipeline.engine_values import Controls, Deciding, JobFailed, Place, Reading

_CAUSE = re.compile(r"^[\w.]*(?:Error|Exception): .+$", re.MULTILINE)
"""The line of a traceback with the error, which may be one of Spark's Python workers."""


def publishable_part(context: BatchContext) -> BatchContext | None:
    """Return the first part of a batch, whose job was aborted, that can be published: the records before the one that
    aborts decoding, or that one as a dead letter; None if all records decode, so the failure had another cause.

    Raises:
        JobFailed: The records cannot be read at all, whether decoded or not.
        TransientError: Spark does not decode messages at all.
        UnclearState: Spark cannot read the first record.
    """
    batch, decodes = context.batch, partial(is_decodable, context)
    part, is_poison = largest_decodable_prefix(decodes, batch)
    if part == batch and not is_poison:
        # The schema of such a record may be registered under another subject.
        known = context.with_foreign_writers(context.decided())
        part, is_poison = largest_decodable_prefix(partial(is_decodable, known), batch)
    if is_poison and not context.engine.completes(Reading(context.records(part))):
        raise unreadable_record(context.topic, part)
    if is_poison or part == batch:
        require_decoder(context)
    if part == batch and not is_poison:
        return None
    if is_poison and context.topic.errors == "skip":
        # Replays read all records again, except those that are dead letters of this reason.
        context = replace(context, topic=context.topic.model_copy(update={"errors": "log"}))
    return replace(context, batch=part, is_poison=is_poison)


def is_decodable(context: BatchContext, batch: Batch) -> bool:
    """Return whether the engine can decode all records of a part of a batch without aborting. Dead letters count as
    decoded.

    Raises:
        JobFailed: The records cannot be read at all, whether decoded or not.
    """
    records = context.records(batch)
    decided = context.engine.decide(records, replace(context.decoding(), metadata={}))
    if context.engine.completes(Deciding(decided)):
        return True
    context.engine.completes(Reading(records))
    return False


def require_decoder(context: BatchContext) -> None:
    """Require that Spark decodes messages at all, before a record is blamed for a failure.

    Raises:
        TransientError: It does not, for example because executors lack a library.
    """
    topic = context.topic
    try:
        context.engine.completes(Controls(context.decoding(), topic.keeps_dead_letters))
    except JobFailed as error:
        causes = _CAUSE.findall(str(error))
        raise TransientError(
            f"Spark fails with an empty message of '{topic.name}' as well, so no record is to blame: "
            f"{causes[0] if causes else error.condition}",
            "No record was skipped, and nothing was published",
            "Install what the executors need (docs/clusters.md), and retry the run",
        ) from error


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


def aborting_record(context: BatchContext) -> Place | None:
    """Return the first record of a batch whose decoding aborts the Spark job; None if none does.

    Raises:
        JobFailed: The records cannot be read at all, whether decoded or not.
        TransientError: Spark does not decode messages at all.
    """
    batch = context.batch
    while batch.offsets:
        prefix, is_poison = largest_decodable_prefix(partial(is_decodable, context), batch)
        if is_poison:
            require_decoder(context)
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
