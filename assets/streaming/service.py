"""A stream with its followers, told of in the log and in Dagster: what `lakehouse stream` and the job `stream` run."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import dagster as dg
from dagster import AssetCheckEvaluation

from assets.iceberg import check_results, said
from assets.readers import metadata
from assets.streaming.check import Verdicts
from assets.streaming.reports import Reporter
from assets.streaming.results import KAFKA
from lakehouse.config.loader import Config
from lakehouse.config.topic import Topic
from lakehouse.core.errors import Paused
from lakehouse.pipeline.audit import AuditFailed, Finding
from lakehouse.pipeline.clients import Clients
from lakehouse.streaming.followers import Noted, NotShown, Shown, followers
from lakehouse.streaming.stream import Stream
from lakehouse.streaming.stream_events import Commit, Event, Healed, Served, SetAside, Tidied
from resources.stream_group import Undivided

END_SECONDS = 30
"""The time in which readers publish the last commits when a stream ends, and then the same time for the events of
Dagster. The next stream or run publishes what is left."""

MOST_NAMED = 10
"""Topics that the first line of the log names."""

TIDYING = "merging small files"

Say = Callable[[str], None]


def chosen(config: Config, names: Sequence[str], there: Sequence[str]) -> list[Topic]:
    """The topics of those names; without any, those of `continuous` entries, or all where there are none.

    Parameters: `there` are the topics that Kafka has, for routes.
    Raises: ConfigError for a name that is not declared.
    """
    known = [*config.by_spark.values(), *(topic for topic in config.routed(there) if topic.engine == "spark")]
    return [config.topic(name) for name in names] or [topic for topic in known if topic.continuous] or known


class Streaming:
    """A stream, and those who show and tell of what it publishes.

    Parameters: `systems` has ingestion's resources and the readers' as attributes; `say` takes each
    sentence of the log; `instance` is the Dagster that is told, where there is one; `stopping`, once set, ends it.
    """

    def __init__(
        self,
        config: Config,
        topics: Sequence[Topic],
        systems: Any,
        say: Say,
        instance: dg.DagsterInstance | None,
        *,
        once: bool = False,
        stopping: threading.Event | None = None,
    ):
        own = Clients.of(systems)
        self.stream = Stream(config, topics, own, once=once, stopping=stopping)
        self._config, self._say = config, say
        self._failing: dict[str, list[str]] = {}
        self._reporter = Reporter(instance, say)
        self._verdicts = Verdicts(self._reporter.each)
        self._followers = followers(config, systems, self._told)

    def run(self) -> Mapping[str, Exception]:
        """Serve until the stream ends; returns the errors of topics that it could not bring to their ends."""
        names = list(self.stream.topics)
        more = f" and {len(names) - MOST_NAMED:,} more" if len(names) > MOST_NAMED else ""
        self._say(f"Taking {', '.join(names[:MOST_NAMED])}{more}; each commit is told as it comes")
        for follower in self._followers:
            follower.start()
        self._reporter.start()
        try:
            for event in self.stream.run():
                self._tell(event)
        finally:
            for follower in self._followers:
                follower.end(None if self.stream.once else END_SECONDS)
            self._reporter.end(END_SECONDS)
        return self.stream.errors

    def _tell(self, event: Event) -> None:
        match event:
            case Commit(topic, published):
                for follower in self._followers:
                    if follower.reader.upstream == "iceberg":
                        follower.note(Noted(topic, published.snapshot_id))
                self._say(f"{said(topic, published)}, {event.behind:,} behind, {event.waited:.1f} s after they came")
                self._reporter.each(self._shown("iceberg", topic, published.snapshot_id, _numbers(event)))
                self._checked(topic, published.findings)
            case SetAside(_, Paused() as error):
                self._say(str(error))
            case SetAside(name, error, seconds):
                self._say(f"{name or 'Kafka'}: {error} ({type(error).__name__}). It is tried again in {seconds:.0f} s")
                if not name:
                    self._verdicts.failed(KAFKA, "", error)
                elif isinstance(error, AuditFailed) and not self._route(self.stream.topics[name]):
                    # The audit's own checks fail then: one failure is one alert.
                    self._checked(self.stream.topics[name], error.findings)
                else:
                    self._verdicts.failed(*self._part("iceberg", name, TIDYING if event.tidying else ""), error)
            case Served(name):
                self._verdicts.passed(KAFKA, "")
                self._verdicts.passed(*self._part("iceberg", name))
            case Healed(name, failures):
                self._say(f"{name or 'Kafka'}: continues{f', after {failures} failures' if failures else ''}")
                self._verdicts.passed(*(self._part("iceberg", name) if name else (KAFKA, "")))
            case Tidied(name, done):
                self._say(f"{name}: {', '.join(done.done)} ({done.seconds:.1f} s)")
                self._verdicts.passed(*self._part("iceberg", name, TIDYING))
            case Undivided(why):
                self._say(f"All topics are taken, also those of other streams: {why} ({type(why).__name__})")

    def _told(self, what: Shown | NotShown) -> None:
        if isinstance(what, NotShown):
            said = f"{what.hop}/{what.topic}: {what.error} ({type(what.error).__name__})"
            self._say(f"{said}. It is tried again in {what.seconds:.0f} s")
            self._verdicts.failed(*self._part(what.hop, what.topic), what.error)
            return
        self._say(f"{what.hop}/{what.topic.name}: shows snapshot {what.snapshot_id} ({what.seconds:.1f} s)")
        numbers = {"seconds": round(what.seconds, 2), "snapshot_id": str(what.snapshot_id)}
        event = self._shown(what.hop, what.topic, what.snapshot_id, metadata(what.registration) | numbers)
        self._reporter.newest(f"{what.hop}/{what.topic.name}", event)
        self._verdicts.passed(*self._part(what.hop, what.topic.name))

    def _shown(self, hop: str, topic: Topic, snapshot_id: int, metadata: Mapping[str, Any]) -> dg.AssetMaterialization:
        """A materialization without a run: the log of a run that never ends would grow without end, too."""
        route = self._route(topic)
        return dg.AssetMaterialization(
            asset_key=[hop, route or topic.name],
            partition=topic.name if route else None,
            metadata=dict(metadata),
            tags={"dagster/data_version": str(snapshot_id)},
        )

    def _checked(self, topic: Topic, findings: list[Finding]) -> None:
        """Tell of checks whose verdict turned; of all at first: a check that blocks, and that Dagster never heard of,
        holds up whatever stands on the table."""
        before = self._failing.get(topic.name)
        self._failing[topic.name] = [finding.check for finding in findings if not finding.passed]
        turned = [one for one in findings if before is None or one.passed == (one.check in before)]
        if not self._route(topic):
            for result in check_results(turned):
                assert result.check_name is not None
                evaluation = AssetCheckEvaluation(
                    asset_key=dg.AssetKey(["iceberg", topic.name]),
                    check_name=result.check_name,
                    passed=result.passed,
                    severity=result.severity,
                    description=result.description,
                    metadata=result.metadata,
                )
                self._reporter.each(evaluation)

    def _part(self, hop: str, name: str, work: str = "") -> tuple[tuple[str, str], str]:
        """The asset that a topic is part of, and what to call that part: nothing, where it is the whole."""
        route = self._route(self.stream.topics[name])
        return (hop, route or name), ", ".join(filter(None, [name if route else "", work]))

    def _route(self, topic: Topic) -> str | None:
        """The route that the topic comes from, where it has no entry of its own."""
        if topic.name in self._config.topics:
            return None
        return next(name for name, route in self._config.routes.items() if route.routed(topic.name))


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
