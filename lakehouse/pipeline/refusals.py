"""Batches that could not be published: a stream writes them again only when what decides about them has changed."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from lakehouse.config.checks import RowCount
from lakehouse.core.errors import BadRecords
from lakehouse.pipeline import quality
from lakehouse.pipeline.audit import AuditFailed

if TYPE_CHECKING:
    from lakehouse.pipeline.batch_context import BatchContext
    from lakehouse.pipeline.ingestion import Published

AGAIN_SECONDS = 3600.0
"""A refused batch is written again after so long in any case: a check may look at the time, or at tables that it does
not declare."""


@dataclass(frozen=True)
class _Refusal:
    decided_by: object
    error: Exception
    at: float


class Refusals:
    """Why the newest batch of each topic was refused, and by what.

    Args:
        clock: The time now, in seconds.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic):
        self._clock = clock
        self._known: dict[str, _Refusal] = {}

    def note(self, topic: str, decided_by: object, error: Exception) -> None:
        """Remember why a batch of a topic was refused.

        Args:
            topic: The name of the entry.
            decided_by: All that the decision depends on; equal where it would be the same.
            error: The reason.
        """
        self._known[topic] = _Refusal(decided_by, error, self._clock())

    def known(self, topic: str, decided_by: object) -> Exception | None:
        """Why a batch would be refused again; None where it may pass, or was not tried for an hour."""
        found = self._known.get(topic)
        if found is None or found.decided_by != decided_by or self._clock() - found.at >= AGAIN_SECONDS:
            return None
        return found.error


def publish_unless_refused(
    context: BatchContext, refusals: Refusals, publish: Callable[[BatchContext], Published]
) -> Published:
    """Publish a batch; one that was refused is not written again while nothing changed that decides about it.

    Raises: as `publish`.
    """
    decided_by = _decided_by(context)
    error = refusals.known(context.topic.name, decided_by)
    if error and not (isinstance(error, BadRecords) and _is_decodable_now(context)):
        raise error
    try:
        return publish(context)
    except (AuditFailed, BadRecords) as refused:
        refusals.note(context.topic.name, decided_by, refused)
        raise


def _decided_by(context: BatchContext) -> tuple[object, ...]:
    """What a refusal depends on. Not on where the batch ends, which moves while records come, unless rows are counted:
    what was refused is in every batch that begins there."""
    checks, batch = context.topic.checks, context.batch
    counts_rows = any(isinstance(check, RowCount) for check in checks.values())
    others = quality.referred(context.clients.catalog, context.namespace, checks)
    log = batch.cluster_id, batch.topic_id, batch.start, batch.end if counts_rows else None
    return *log, context.base, context.formats.fingerprints, others


def _is_decodable_now(context: BatchContext) -> bool:
    """Whether all records that have to be decoded can be, as by a schema that was registered under any subject."""
    from spark.explain import first_faults

    context = context.with_foreign_writers()
    return not first_faults(context.decoded(), context.formats.decoding(), limit=1)
