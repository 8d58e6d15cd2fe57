"""Metrics of all topics, their tables and their readers, from the values that `lakehouse status` shows.

A measurement asks Kafka, the catalog and each reader, so it is made at intervals and not for each scrape. What could
not be measured has no sample, except in the metric that says so.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Protocol

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.metrics_core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from lakehouse.config.model import Config, Topic
from lakehouse.core.errors import logged_reason
from lakehouse.core.log_entry import LogEntry
from lakehouse.pipeline.dead_letters.dead_letter_queries import pending_dead_letters
from lakehouse.pipeline.maintenance import size
from lakehouse.readers.freshness import StageLag
from resources.iceberg.snapshots import commits
from resources.protocols import Resources

FAMILIES = {
    "topic_end_offset": "Sum of the topic's end offsets.",
    "topic_ingested_offset": "Sum of the next offsets to be ingested.",
    "topic_measured": "1 if the topic's offsets could be read.",
    "stage_lag_seconds": "Age of the oldest record or snapshot that the stage lacks; 0 if it lacks none.",
    "stage_missing": "Records (kafka, iceberg) or snapshots (readers) that the stage lacks.",
    "stage_snapshot_timestamp_seconds": "Commit time of the snapshot that the stage exposes.",
    "stage_fresh": "1 if the lag is known and within max_lag_seconds.",
    "stage_measured": "1 if the lag could be measured.",
    "topic_paused": "1 if the topic is paused.",
    "table_data_files": "Data files of the current snapshot.",
    "table_delete_files": "Delete files of the current snapshot.",
    "table_data_bytes": "Bytes of the current snapshot's data files.",
    "table_manifests": "Manifests of the current snapshot.",
    "table_snapshots": "Snapshots in the metadata.",
    "table_metadata_bytes": "Bytes of the metadata file.",
    "table_last_commit_timestamp_seconds": "Time of the newest published snapshot.",
    "table_measured": "1 if the table could be read.",
    "dead_letters": "Dead letters that are not rows yet, by reason or check.",
    "measurement_succeeded": "1 if the last measurement could read the list of topics.",
    "measured_timestamp_seconds": "Time when the last measurement ended.",
    "measurement_duration_seconds": "Duration of the last measurement.",
}
"""The metrics, without the prefix `lakehouse_`, and their descriptions."""

LABELS = {"topic": ("topic",), "table": ("topic",), "stage": ("topic", "stage"), "dead": ("topic", "reason")}
"""The labels of metrics by the first word of their names."""


class Measured(Protocol):
    """The status of a topic; lakehouse.cli.status.TopicStatus is one."""

    @property
    def topic(self) -> str: ...
    @property
    def end_offset(self) -> int | None: ...
    @property
    def ingested_offset(self) -> int | None: ...
    @property
    def stages(self) -> Collection[StageLag]: ...
    @property
    def failure(self) -> str: ...


@dataclass(eq=False)
class TableMetrics(Collector):
    """The last measurement of all topics.

    Attributes:
        config: The configuration.
        resources: The systems.
        status: Returns the status of all topics.
        registry: The registry that has these metrics.
    """

    config: Config
    resources: Resources
    status: Callable[[Config, Resources], Collection[Measured]]
    registry: CollectorRegistry = field(default_factory=CollectorRegistry)
    _measured_at: float = field(default_factory=time.monotonic)
    _samples: dict[str, dict[tuple[str, ...], float]] = field(default_factory=dict)
    _dead_letters: dict[str, tuple[int | None, Mapping[str, int]]] = field(default_factory=dict)
    """The dead letters by topic, with the snapshot of their table in which they were counted."""

    def __post_init__(self) -> None:
        self.registry.register(self)

    def text(self) -> str:
        """Return the last measurement in the text format of Prometheus."""
        return generate_latest(self.registry).decode()

    def measure(self) -> None:
        """Measure every topic. A topic that cannot be measured does not affect others."""
        began, samples = time.monotonic(), {name: dict[tuple[str, ...], float]() for name in FAMILIES}
        for measured in self.status(self.config, self.resources):
            for name, labels, value in self._of_topic(measured):
                samples[name][labels] = value
        samples["measurement_succeeded"][()] = 1
        samples["measurement_duration_seconds"][()] = time.monotonic() - began
        samples["measured_timestamp_seconds"][()] = time.time()
        self._samples, self._measured_at = samples, time.monotonic()

    def try_measure(self) -> LogEntry | None:
        """Measure every topic, and return the entry about why not even their list could be read; None if it was."""
        try:
            self.measure()
        except Exception as error:
            self._samples = {"measurement_succeeded": {(): 0}}
            message = logged_reason("The topics could not be measured", error)
            return LogEntry(message, logging.WARNING, error=type(error).__name__)
        return None

    def problems(self, seconds: float) -> Iterator[str]:
        """Yield a sentence if no measurement has ended for too long.

        Args:
            seconds: The time after which that is a problem.
        """
        if (age := time.monotonic() - self._measured_at) > seconds:
            yield f"the last measurement ended {age:.0f} s ago"

    def collect(self) -> Iterator[Metric]:
        """Yield the metrics of the last measurement."""
        for name, samples in self._samples.items():
            labels = LABELS.get(name.partition("_")[0], ())
            family = GaugeMetricFamily(f"lakehouse_{name}", FAMILIES[name], labels=labels)
            for values, sample in samples.items():
                family.add_metric(values, sample)
            yield family

    def describe(self) -> Iterator[Metric]:
        """Yield nothing: no other collector has these names."""
        return iter(())

    def _of_topic(self, measured: Measured) -> Iterator[tuple[str, tuple[str, ...], float]]:
        name = measured.topic
        yield "topic_measured", (name,), not measured.failure
        if measured.end_offset is not None:
            yield "topic_end_offset", (name,), measured.end_offset
        if measured.ingested_offset is not None:
            yield "topic_ingested_offset", (name,), measured.ingested_offset
        yield "topic_paused", (name,), any(stage.paused for stage in measured.stages)
        for stage in measured.stages:
            labels = name, stage.stage
            yield "stage_fresh", labels, stage.is_fresh
            yield "stage_measured", labels, stage.behind is not None
            if stage.behind is not None:
                yield "stage_lag_seconds", labels, stage.behind.seconds
                yield "stage_missing", labels, stage.behind.missing
        try:
            topic = self.config.topic(name)
            if topic.is_ingested:
                yield from self._of_table(topic, measured.stages)
                yield "table_measured", (name,), 1
        except Exception as error:
            logged_reason(f"The table of {name} could not be measured", error)
            yield "table_measured", (name,), 0

    def _of_table(self, topic: Topic, stages: Iterable[StageLag]) -> Iterator[tuple[str, tuple[str, ...], float]]:
        name, catalog = topic.name, self.resources.catalog
        ref, table = catalog.chain(topic.table_in(self.config.namespace)).newest
        with catalog.translate_errors():
            if table is None or table.current_snapshot() is None:
                return
            for part, number in vars(size(table)).items():
                yield f"table_{part}", (name,), number
            for _, milliseconds in commits(table)[:1]:
                yield "table_last_commit_timestamp_seconds", (name,), milliseconds / 1000
            for stage in stages:
                if stage.shows and (exposed := table.snapshot_by_id(stage.shows)):
                    yield "stage_snapshot_timestamp_seconds", (name, stage.stage), exposed.timestamp_ms / 1000
            letters = catalog.load(ref.dead_letters)
        snapshot_id = letters.metadata.current_snapshot_id if letters else None
        if self._dead_letters.get(name, (None, {}))[0] != snapshot_id:
            pending = pending_dead_letters(catalog, self.config.namespace, topic, 0)
            self._dead_letters[name] = snapshot_id, pending.by_reason
        for reason, number in self._dead_letters.get(name, (None, {}))[1].items():
            yield "dead_letters", (name, reason), number
