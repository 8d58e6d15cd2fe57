"""Count the dead letters of a stream's batches by reason, in a thread of its own that never delays a batch."""

from __future__ import annotations

import threading
from collections import Counter as Counts
from contextlib import suppress
from queue import Empty, Full, Queue

from prometheus_client import Counter

from lakehouse.core.errors import logged_reason
from lakehouse.pipeline.dead_letters.dead_letter_queries import reasons_of_batch
from lakehouse.streaming.stream_events import Commit
from resources.build import with_own_connections
from resources.iceberg.catalog import Catalog

MAX_WAITING = 1000
"""Maximum number of batches that wait to be counted."""

UNKNOWN = "unknown"
"""The reason of dead letters that could not be read, so that the sum over all reasons is right."""


class DeadLetterReasons:
    """Adds the dead letters of each published batch to a metric, by reason.

    Labels are the names in REASONS (lakehouse/core/tables/letter_columns.py), or UNKNOWN.
    """

    def __init__(self, catalog: Catalog, namespace: str, metric: Counter) -> None:
        """
        Args:
            catalog: The catalog with the tables of dead letters, whose connections are copied.
            namespace: The namespace of the tables.
            metric: The metric with the labels `topic` and `reason`.
        """
        self._catalog, self._namespace, self._metric = with_own_connections(catalog), namespace, metric
        self._batches: Queue[Commit] = Queue(MAX_WAITING)
        self._ending = threading.Event()
        self._thread = threading.Thread(target=self._work, name="dead letter reasons", daemon=True)

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def finish(self, seconds: float) -> None:
        """Count the batches that wait, and end the thread within some seconds."""
        self._ending.set()
        self._thread.join(seconds)

    def observe(self, commit: Commit) -> None:
        """Request that the dead letters of a published batch are counted."""
        if not (letters := commit.published.counts.dead_letters):
            return
        try:
            self._batches.put_nowait(commit)
        except Full:
            self._metric.labels(commit.topic.name, UNKNOWN).inc(letters)

    def _work(self) -> None:
        while not (self._ending.is_set() and self._batches.empty()):
            with suppress(Empty):
                commit = self._batches.get(timeout=0.2)
                for reason, number in self._reasons(commit).items():
                    self._metric.labels(commit.topic.name, reason).inc(number)

    def _reasons(self, commit: Commit) -> Counts[str]:
        topic, published = commit.topic, commit.published
        try:
            reasons = reasons_of_batch(self._catalog, self._namespace, topic, published.batch)
        except Exception as error:
            logged_reason(f"The dead letters of {topic.name} could not be read for the metrics", error)
            reasons = Counts()
        # Another writer may have changed them meanwhile.
        reasons[UNKNOWN] = published.counts.dead_letters - reasons.total()
        return +reasons
