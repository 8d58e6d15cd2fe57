"""Metrics of one stream: what its events count, and the state of its topics and threads when they are scraped.

Names and units follow https://prometheus.io/docs/practices/naming/. Labels have names of topics, readers, checks,
phases and classes of errors, whose numbers are bounded, and never a value of a record.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, Summary
from prometheus_client.metrics_core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from lakehouse.core import log_entry
from lakehouse.core.errors import Paused, Yielded
from lakehouse.core.log_entry import LogEntry
from lakehouse.core.offsets.batch import Counts
from lakehouse.metrics.dead_letter_reasons import DeadLetterReasons
from lakehouse.metrics.server import serving
from lakehouse.pipeline.commits.audit import AuditFailed, CheckResult
from lakehouse.streaming.publishers import PublicationFailed, TablePublished
from lakehouse.streaming.stream import Stream
from lakehouse.streaming.stream_events import Commit, Event, TableCompacted, TopicBackedOff
from resources.spark.connection import operations_in_flight

if TYPE_CHECKING:
    from assets.streaming.service import StreamService
    from lakehouse.pipeline.ingestion import Published

BATCH_SECONDS = (0.25, 0.5, 1, 2, 5, 10, 30, 60, 300)
"""Upper bounds of the histogram of batches, in seconds. A stream aims at two."""

END_SECONDS = 10
"""Time limit for the dead letters of the last batches to be counted when a stream ends."""

KAFKA = "(kafka)"
"""The label of failures to read Kafka itself, which belong to no topic."""


class StreamMetrics(Collector):
    """The metrics of a stream."""

    def __init__(
        self, stream: Stream, registry: CollectorRegistry, stuck_seconds: float, readers: Iterable[str] = ()
    ) -> None:
        """
        Args:
            stream: The stream.
            registry: The registry to which the metrics are added.
            stuck_seconds: Time without progress after which a thread is stuck.
            readers: The names of the readers that expose the stream's tables.
        """
        self._stream, self._stuck_seconds = stream, stuck_seconds
        of_topic, of_reader = ["topic"], ["topic", "reader"]
        counter, gauge = partial(Counter, registry=registry), partial(Gauge, registry=registry)
        summary, histogram = partial(Summary, registry=registry), partial(Histogram, registry=registry)
        self._records = counter("lakehouse_records", "Records of published batches by outcome.", [*of_topic, "outcome"])
        self._seconds = histogram(
            "lakehouse_batch_duration_seconds", "Duration of published batches.", of_topic, buckets=BATCH_SECONDS
        )
        self._decoders = counter(
            "lakehouse_batches",
            "Published batches by decoder, with the reason if it is not the compiled one.",
            [*of_topic, "decoder"],
        )
        self._phases = counter(
            "lakehouse_batch_phase_seconds", "Time of published batches by phase.", [*of_topic, "phase"]
        )
        self._bytes = counter("lakehouse_published_bytes", "Bytes added to the table.", of_topic)
        self._committed = gauge(
            "lakehouse_last_commit_timestamp_seconds", "Time of the newest published batch.", of_topic
        )
        self._failures = counter("lakehouse_failures", "Failed batches and compactions by error.", [*of_topic, "error"])
        self._checks = gauge(
            "lakehouse_check_failed", "1 if the check failed for the last batch.", [*of_topic, "check"]
        )
        self._compactions = counter("lakehouse_compactions", "Merges of small files.", of_topic)
        self._publications = summary(
            "lakehouse_publication_duration_seconds", "Duration until a reader exposes a table.", of_reader
        )
        self._published = gauge(
            "lakehouse_last_publication_timestamp_seconds",
            "Time when the reader last exposed the table's newest snapshot.",
            of_reader,
        )
        self._unpublished = counter("lakehouse_publication_failures", "Failed publications.", [*of_reader, "error"])
        self._failing = gauge(
            "lakehouse_consecutive_publication_failures", "Failed publications since the last success.", of_reader
        )
        letters = counter("lakehouse_new_dead_letters", "Dead letters of published batches.", [*of_topic, "reason"])
        self.reasons = DeadLetterReasons(stream.clients.catalog, stream.namespace, letters)
        registry.register(self)
        self._begin(stream.topics, tuple(readers))

    def _begin(self, topics: Iterable[str], readers: Iterable[str]) -> None:
        """Create the series whose labels are known, with 0.

        Prometheus computes an increase from the first sample, so the first batch would be missing in it.
        """
        for topic in topics:
            for outcome in Counts().outcomes:
                self._records.labels(topic, outcome)
            for of_topic in (self._seconds, self._bytes, self._compactions):
                of_topic.labels(topic)
            for reader in readers:
                self._publications.labels(topic, reader)
                self._failing.labels(topic, reader)

    def observe(self, event: Event | TablePublished | PublicationFailed) -> None:
        """Count an event of the stream, or of its publishers, from any thread."""
        match event:
            case Commit(topic, published):
                self._observe_batch(topic.name, published)
                self.reasons.observe(event)
            case TopicBackedOff(_, Paused() | Yielded()):
                pass
            case TopicBackedOff(topic, error):
                self._failures.labels(topic or KAFKA, type(error).__name__).inc()
                if isinstance(error, AuditFailed):
                    self._observe_checks(topic, error.findings)
            case TableCompacted(topic):
                self._compactions.labels(topic).inc()
            case TablePublished(reader, topic, seconds=seconds):
                self._publications.labels(topic.name, reader).observe(seconds)
                self._published.labels(topic.name, reader).set(time.time())
                self._failing.labels(topic.name, reader).set(0)
            case PublicationFailed(reader, topic, error):
                self._unpublished.labels(topic, reader, type(error).__name__).inc()
                self._failing.labels(topic, reader).inc()

    def _observe_batch(self, topic: str, published: Published) -> None:
        for outcome, number in published.counts.outcomes.items():
            self._records.labels(topic, outcome).inc(number)
        self._seconds.labels(topic).observe(published.seconds)
        self._decoders.labels(topic, published.decoder.partition(":")[0]).inc()
        for phase, seconds in published.phases.items():
            self._phases.labels(topic, phase).inc(seconds)
        self._bytes.labels(topic).inc(published.data_bytes)
        self._committed.labels(topic).set(time.time())
        self._observe_checks(topic, published.findings)

    def _observe_checks(self, topic: str, results: Iterable[CheckResult]) -> None:
        for result in results:
            self._checks.labels(topic, result.check).set(not result.passed)

    def collect(self) -> Iterator[Metric]:
        """Yield the state of topics and threads."""
        lacking = GaugeMetricFamily("lakehouse_backlog_records", "Offsets that the table lacks.", labels=["topic"])
        waiting = GaugeMetricFamily(
            "lakehouse_backlog_seconds",
            "Time since the first record that the table lacks was noticed.",
            labels=["topic"],
        )
        failing = GaugeMetricFamily(
            "lakehouse_consecutive_failures", "Failed batches since the last success.", labels=["topic"]
        )
        paused = GaugeMetricFamily(
            "lakehouse_paused", "1 if the topic is paused, or waits for a command.", labels=["topic"]
        )
        assigned = GaugeMetricFamily(
            "lakehouse_assigned", "1 if this stream, and no other, serves the topic.", labels=["topic"]
        )
        for topic, backlog in self._stream.backlogs().items():
            lacking.add_metric([topic], backlog.records)
            waiting.add_metric([topic], backlog.seconds)
            failing.add_metric([topic], backlog.failures)
            paused.add_metric([topic], backlog.is_paused)
            assigned.add_metric([topic], backlog.is_assigned)
        idle = GaugeMetricFamily(
            "lakehouse_thread_idle_seconds", "Time since the thread made progress.", labels=["thread"]
        )
        for thread, seconds in self._stream.progress.idle_seconds().items():
            idle.add_metric([thread], seconds)
        operations = GaugeMetricFamily(
            "lakehouse_spark_operations", "Operations of Spark in flight.", value=operations_in_flight()
        )
        yield from (lacking, waiting, failing, paused, assigned, idle, operations)

    def describe(self) -> Iterator[Metric]:
        """Yield nothing: the families have no samples that other collectors could have."""
        return iter(())

    def stuck(self) -> Iterator[str]:
        """Yield a sentence for each thread without progress for too long."""
        for thread, seconds in self._stream.progress.idle_seconds().items():
            if seconds > self._stuck_seconds:
                yield f"{thread} has made no progress for {seconds:.0f} s"

    def unready(self) -> Iterator[str]:
        """Yield a sentence if the stream does not ingest yet, or ends."""
        if not self._stream.is_ready:
            yield "the stream has not read its topics yet, or it is stopping"


@contextmanager
def serve_metrics(service: StreamService, address: tuple[str, int], stuck_seconds: float) -> Iterator[str]:
    """Serve the metrics, the health and the readiness of a stream until the end of the body, and yield the URL.

    Args:
        service: The stream, which does not run yet.
        address: The host and the port to listen on.
        stuck_seconds: Time without progress after which a thread is stuck.

    Raises:
        LakehouseError: Another process listens there.
    """
    registry = CollectorRegistry()
    metrics = StreamMetrics(service.stream, registry, stuck_seconds, service.readers)
    service.observers.append(metrics.observe)
    with serving(address, registry, {"/healthz": metrics.stuck, "/readyz": metrics.unready}) as url:
        log_entry.write(LogEntry(f"Metrics: {url}/metrics"))
        metrics.reasons.start()
        try:
            yield url
        finally:
            metrics.reasons.finish(END_SECONDS)
