"""Batches that could not be published, which a stream retries only after a relevant change."""

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

from lakehouse.config.checks import RowCount
from lakehouse.core.errors import BadRecords
from lakehouse.pipeline.batches.batch_context import BatchContext
from lakehouse.pipeline.commits import column_checks
from lakehouse.pipeline.commits.audit import AuditFailed, is_incomplete

T = TypeVar("T")

AGAIN_SECONDS = 3600.0
"""Interval after which a refused batch is retried in any case: a check may depend on the time or on undeclared
tables."""


@dataclass(frozen=True)
class _Refusal:
    decided_by: object
    error: Exception
    at: float


class Refusals:
    """The newest refused batch of each topic, with the error and its inputs.

    Args:
        clock: Returns the current time in seconds.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic):
        self._clock = clock
        self._known: dict[str, _Refusal] = {}

    def note(self, topic: str, decided_by: object, error: Exception) -> None:
        """Record the error of a refused batch of a topic.

        Args:
            topic: The name of the topic's entry in lakehouse.yaml.
            decided_by: Everything that the decision depends on; equal values lead to the same decision.
            error: The error.
        """
        self._known[topic] = _Refusal(decided_by, error, self._clock())

    def known(self, topic: str, decided_by: object) -> Exception | None:
        """Return the error that a batch would fail with again; None if it may pass, or was last tried an hour ago."""
        refusal = self._known.get(topic)
        if refusal is None or refusal.decided_by != decided_by or self._clock() - refusal.at >= AGAIN_SECONDS:
            return None
        return refusal.error


def publish_unless_refused(context: BatchContext, refusals: Refusals, publish: Callable[[BatchContext], T]) -> T:
    """Publish a batch, unless it was refused and nothing that the decision depends on has changed.

    Returns:
        The return value of `publish`.

    Raises:
        AuditFailed: The batch failed its audit, now or before.
        BadRecords: Records cannot be decoded, and the topic's policy is to stop.
    """
    decided_by = _decided_by(context)
    error = refusals.known(context.topic.name, decided_by)
    if error and not (isinstance(error, BadRecords) and _is_decodable_now(context)):
        raise error
    try:
        return publish(context)
    except (AuditFailed, BadRecords) as refused:
        if not (isinstance(refused, AuditFailed) and is_incomplete(refused.findings)):
            refusals.note(context.topic.name, decided_by, refused)
        raise


def _decided_by(context: BatchContext) -> tuple[object, ...]:
    """Return what a refusal depends on.

    The end of the batch is left out unless rows are counted: it moves as records arrive, and every batch with the same
    start contains the rows that were refused.
    """
    checks, batch = context.topic.checks, context.batch
    counts_rows = any(isinstance(check, RowCount) for check in checks.values())
    snapshots = column_checks.referenced_snapshots(context.clients.catalog, context.ref.namespace, checks)
    log = batch.cluster_id, batch.topic_id, batch.start, batch.end if counts_rows else None
    return *log, context.base, context.schemas.fingerprints, snapshots


def _is_decodable_now(context: BatchContext) -> bool:
    """Return whether all records can be decoded now, for example because a schema was registered under another
    subject."""
    context = context.with_foreign_writers(context.decided())
    return not context.decided().first_faults(limit=1)
