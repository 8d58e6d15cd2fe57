"""The service of `lakehouse stream` and of the job `stream`.

It runs a stream, publishes its commits to the readers, and reports both to the log and to Dagster.
"""

import logging
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import dagster as dg
from dagster import AssetCheckEvaluation

from assets.results import batch_entry, check_results, registration_metadata
from assets.streaming.check import KAFKA, Verdicts
from assets.streaming.reports import Reporter
from lakehouse.config.model import Config, Topic
from lakehouse.core.errors import Paused, Yielded, is_transient, redact_credentials
from lakehouse.core.log_entry import LogEntry
from lakehouse.core.text import pluralize
from lakehouse.pipeline.clients import Clients
from lakehouse.pipeline.commits.audit import AuditFailed, CheckResult
from lakehouse.streaming.publishers import PublicationFailed, TablePublished, reader_publishers, request_publications
from lakehouse.streaming.stream import Stream
from lakehouse.streaming.stream_events import Commit, Event, TableCompacted, TopicBackedOff, TopicRecovered, TopicServed
from resources.kafka.stream_group import GroupUnavailable
from resources.protocols import Resources

END_SECONDS = 30
"""Time limit for readers to publish the last commits when a stream ends, and again for the events sent to Dagster.

The next stream or run publishes the remaining commits.
"""

MAX_NAMED = 10
"""Maximum number of topics that the first log message names."""

COMPACTION = "merging small files"

Log = Callable[[LogEntry], None]


def select_topics(config: Config, names: Sequence[str], existing: Sequence[str]) -> list[Topic]:
    """Return the named topics; without names, those of `continuous` entries, or all topics if no entry is continuous.

    A named topic that is derived is preceded by the topics that it is derived from, because it has no other records.

    Args:
        names: Names of declared topics.
        existing: Names of the topics in Kafka, which routes match.
    """
    routed = [topic for topic in config.routed_topics(existing) if topic.is_ingested]
    known = [*config.spark_topics.values(), *routed]
    named = {one.name: one for name in names for one in _with_sources(config, config.topic_written_by_spark(name))}
    return [*named.values()] or [topic for topic in known if topic.continuous] or known


def _with_sources(config: Config, topic: Topic) -> list[Topic]:
    source = config.topics.get(topic.source.upstream)
    return [*(_with_sources(config, source) if source and source.is_ingested else []), topic]


class StreamService:
    """A stream with the publishers of the readers and the reports to Dagster.

    Args:
        topics: The topics to ingest.
        resources: Has the resources of ingestion and of the readers as attributes.
        log: Logs an entry.
        instance: The Dagster instance that receives the events; None for none.
        once: End when all topics are ingested up to their current end offsets.
        stopping: Ends the stream once it is set.
    """

    def __init__(
        self,
        config: Config,
        topics: Sequence[Topic],
        resources: Resources,
        log: Log,
        instance: dg.DagsterInstance | None,
        *,
        once: bool = False,
        stopping: threading.Event | None = None,
    ):
        self.stream = Stream(config, topics, Clients.of(resources), once=once, stopping=stopping)
        self.observers: list[Callable[[Event | TablePublished | PublicationFailed], None]] = []
        """Functions that get every event, from several threads."""
        self._config, self._log = config, log
        self._failing: dict[str, list[str]] = {}
        self._unpublished: dict[str, Exception] = {}
        self._reporter = Reporter(instance, log)
        self._verdicts = Verdicts(self._reporter.report)
        self._publishers = reader_publishers(config, resources, self._on_publication)

    @property
    def readers(self) -> list[str]:
        """The names of the readers that expose the tables."""
        return [publisher.reader.name for publisher in self._publishers]

    def run(self) -> Mapping[str, Exception]:
        """Run until the stream ends.

        Returns:
            With `once`, the errors of topics that were not fully ingested, by name, and of readers that do not expose
            what was ingested, as `<reader>/<name>`.
        """
        names = list(self.stream.topics)
        more = f" and {len(names) - MAX_NAMED:,} more" if len(names) > MAX_NAMED else ""
        self._log(LogEntry(f"Ingesting {', '.join(names[:MAX_NAMED])}{more}; each commit is logged"))
        for topic in self.stream.topics.values():
            if topic.source.upstream and topic.source.upstream not in self.stream.topics:
                source, name = topic.source.upstream, topic.name
                problem = f"{name}: this stream does not ingest '{source}', so it derives nothing from its new rows"
                message = f"{problem}. Materialize {name}/kafka, or stream both"
                self._log(LogEntry(message, logging.WARNING, name))
        for publisher in self._publishers:
            publisher.start()
        self._reporter.start()
        try:
            for event in self.stream.run():
                self._on_event(event)
        finally:
            for publisher in self._publishers:
                publisher.finish(None if self.stream.once else END_SECONDS)
            self._reporter.finish(END_SECONDS)
        return {**self.stream.errors, **self._unpublished} if self.stream.once else self.stream.errors

    def _on_event(self, event: Event) -> None:
        for observe in self.observers:
            observe(event)
        request_publications(event, self.stream.topics, self._publishers)
        match event:
            case Commit(topic, published):
                behind = f", {pluralize(event.behind, 'record')} behind, lag {event.waited:.1f} s"
                self._log(batch_entry(topic, published, behind))
                self._reporter.report(self._materialization("iceberg", topic, published.snapshot_id, _numbers(event)))
                self._report_checks(topic, published.findings)
            case TopicBackedOff(name, (Paused() | Yielded()) as error):
                self._log(LogEntry(str(error), topic=name, error=type(error).__name__))
            case TopicBackedOff(name, error, seconds, is_compaction, batch, phase):
                failure = _failure(name or "Kafka", error, seconds)
                self._log(replace(failure, topic=name, batch=batch, phase=COMPACTION if is_compaction else phase))
                if not name:
                    self._verdicts.failed(KAFKA, "", error)
                elif isinstance(error, AuditFailed) and not self._route(self.stream.topics[name]):
                    # The audit's checks report this failure: the check `streaming` would alert a second time.
                    self._report_checks(self.stream.topics[name], error.findings)
                else:
                    self._verdicts.failed(*self._part("iceberg", name, COMPACTION if is_compaction else ""), error)
            case TopicServed(name):
                self._verdicts.passed(KAFKA, "")
                self._verdicts.passed(*self._part("iceberg", name))
            case TopicRecovered(name, failures):
                after = f" after {pluralize(failures, 'failure')}" if failures else ""
                self._log(LogEntry(f"{name or 'Kafka'}: recovered{after}", topic=name))
                self._verdicts.passed(*(self._part("iceberg", name) if name else (KAFKA, "")))
            case TableCompacted(name, result):
                message = f"{name}: {', '.join(result.actions)} ({result.seconds:.1f} s)"
                self._log(LogEntry(message, topic=name, phase=COMPACTION))
                self._verdicts.passed(*self._part("iceberg", name, COMPACTION))
            case GroupUnavailable(error):
                kind, effect = type(error).__name__, "The topics cannot be divided among streams"
                message = f"{effect}, so this one ingests all of them: {redact_credentials(error)} ({kind})"
                self._log(LogEntry(message, logging.WARNING, error=kind))

    def _on_publication(self, outcome: TablePublished | PublicationFailed) -> None:
        for observe in self.observers:
            observe(outcome)
        if isinstance(outcome, PublicationFailed):
            self._unpublished[f"{outcome.topic}/{outcome.stage}"] = outcome.error
            failure = _failure(f"{outcome.topic}/{outcome.stage}", outcome.error, outcome.seconds)
            self._log(replace(failure, topic=outcome.topic, reader=outcome.stage))
            self._verdicts.failed(*self._part(outcome.stage, outcome.topic), outcome.error)
            return
        stage, topic, snapshot_id, seconds = outcome.stage, outcome.topic, outcome.snapshot_id, outcome.seconds
        self._unpublished.pop(f"{topic.name}/{stage}", None)
        message = f"{topic.name}/{stage}: exposes snapshot {snapshot_id} ({seconds:.1f} s)"
        self._log(LogEntry(message, topic=topic.name, reader=stage))
        numbers = {"seconds": round(seconds, 2), "snapshot_id": str(snapshot_id)}
        event = self._materialization(stage, topic, snapshot_id, registration_metadata(outcome.registration) | numbers)
        self._reporter.report_latest(f"{topic.name}/{stage}", event)
        self._verdicts.passed(*self._part(stage, topic.name))

    def _materialization(
        self, stage: str, topic: Topic, snapshot_id: int, metadata: Mapping[str, Any]
    ) -> dg.AssetMaterialization:
        """Return a materialization to report without a run, because the event log of an endless run grows forever."""
        route = self._route(topic)
        return dg.AssetMaterialization(
            asset_key=[route or topic.name, stage],
            partition=topic.name if route else None,
            metadata=dict(metadata),
            tags={"dagster/data_version": str(snapshot_id)},
        )

    def _report_checks(self, topic: Topic, findings: list[CheckResult]) -> None:
        """Report the checks whose verdict changed, and all checks at the first call.

        A blocking check that was never reported blocks the assets downstream of the table.
        """
        before = self._failing.get(topic.name)
        self._failing[topic.name] = [finding.check for finding in findings if not finding.passed]
        changed = [one for one in findings if before is None or one.passed == (one.check in before)]
        if not self._route(topic):
            for result in check_results(changed):
                assert result.check_name is not None
                evaluation = AssetCheckEvaluation(
                    asset_key=dg.AssetKey([topic.name, "iceberg"]),
                    check_name=result.check_name,
                    passed=result.passed,
                    severity=result.severity,
                    description=result.description,
                    metadata=result.metadata,
                )
                self._reporter.report(evaluation)

    def _part(self, stage: str, name: str, work: str = "") -> tuple[tuple[str, str], str]:
        """Return the key of the topic's asset and the name of its part: the topic, if it is a route's, and the work."""
        route = self._route(self.stream.topics[name])
        return (route or name, stage), ", ".join(filter(None, [name if route else "", work]))

    def _route(self, topic: Topic) -> str | None:
        """Return the name of the topic's route, or None for a declared topic."""
        if topic.name in self._config.topics:
            return None
        return next(name for name, route in self._config.routes.items() if route.topic_named(topic.name))


def _failure(subject: str, error: Exception, seconds: float) -> LogEntry:
    """Return the entry about a failure that is retried after some seconds."""
    kind, level = type(error).__name__, logging.WARNING if is_transient(error) else logging.ERROR
    message = f"{subject}: {redact_credentials(error)} ({kind}). Retry in {seconds:.0f} s"
    return LogEntry(message, level, error=kind)


def _numbers(event: Commit) -> dict[str, Any]:
    published = event.published
    return {
        "records": published.counts.consumed,
        "rows": published.counts.rows,
        "dead_letters": published.counts.dead_letters,
        "bytes": published.data_bytes,
        "data_files": published.data_files,
        "records_behind": event.behind,
        "lag_seconds": round(event.waited, 2),
        "seconds": round(published.seconds, 2),
        "snapshot_id": str(published.snapshot_id),
        "next_offsets": {str(partition): offset for partition, offset in sorted(published.batch.end.items())},
    }
