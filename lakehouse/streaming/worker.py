"""The threads of a stream: workers ingest a bounded batch of one topic after another, and a compactor merges files."""

import threading
import time
from collections.abc import Iterable, Mapping
from contextlib import closing
from dataclasses import dataclass, replace
from queue import Queue

from lakehouse.config.model import Config, Topic
from lakehouse.config.sensitive import hide_values
from lakehouse.core.errors import Yielded
from lakehouse.core.log_entry import IN_PROGRESS
from lakehouse.pipeline.batches.refusals import Refusals
from lakehouse.pipeline.clients import Clients
from lakehouse.pipeline.dead_letters.dead_letter_topic import try_publish_dead_letters
from lakehouse.pipeline.ingestion import Published, ingest
from lakehouse.pipeline.maintenance import compact_incrementally
from lakehouse.pipeline.production import produce
from lakehouse.streaming.pacing import backoff_seconds
from lakehouse.streaming.progress import Progress
from lakehouse.streaming.scheduler import POLL_SECONDS, WATCH_SECONDS, Scheduler
from lakehouse.streaming.stream_events import Commit, Event, TableCompacted, TopicBackedOff, TopicRecovered, TopicServed
from resources.kafka.offsets import readable_offsets
from resources.protocols import KafkaClient


@dataclass(frozen=True)
class StreamContext:
    """State shared by the threads of a stream."""

    config: Config
    topics: Mapping[str, Topic]
    """The topics of the stream, by the names of their entries in lakehouse.yaml."""
    clients: Clients
    """The clients that each thread copies its own connections from."""
    scheduler: Scheduler
    """The scheduler; access requires `lock`."""
    once: bool
    """Whether the stream ends when its topics are caught up."""
    stopping: threading.Event
    """Set when no further batch may begin."""
    events: Queue[Event]
    """The events to report, in order."""
    lock: threading.Condition
    """Guards the scheduler; notified when a turn ends."""
    progress: Progress
    """The progress of the threads."""

    @property
    def is_done(self) -> bool:
        """True if the stream ends when its topics are caught up, and they are."""
        with self.lock:
            return self.once and self.scheduler.is_done


class Worker:
    """Serves the topics that the scheduler selects, with separate clients and a separate Spark session."""

    def __init__(self, context: StreamContext, refusals: Refusals):
        """Create a worker; `run` executes it in the calling thread.

        Args:
            context: State shared by the threads of the stream.
            refusals: Batches that could not be published, of all workers.
        """
        self._context, self._scheduler, self._refusals = context, context.scheduler, refusals
        self._clients: Clients | None = None
        self._failures = 0

    def run(self) -> None:
        """Serve topics; return when the stream stops or is done."""
        context = self._context
        while not context.stopping.is_set():
            context.progress.report()
            try:
                clients = self._clients = self._clients or context.clients.with_own_connections()
                name = self._next(clients.kafka)
            except Exception as error:
                self._failures += 1
                seconds = backoff_seconds(self._failures, transient=True)
                context.events.put(TopicBackedOff("", error, seconds))
                self._close()
                with context.lock:
                    if self._scheduler.gives_up(error, self._failures):
                        self._scheduler.error = error
                        context.stopping.set()
                context.stopping.wait(seconds)
                continue
            if self._failures:
                context.events.put(TopicRecovered("", self._failures))
                self._failures = 0
            if name is not None:
                self._serve(name, clients)
            elif context.is_done:
                break
            else:
                context.stopping.wait(POLL_SECONDS)
        self._close()
        context.progress.end()

    def _close(self) -> None:
        if self._clients:
            self._clients.close()
        self._clients = None

    def _next(self, kafka: KafkaClient) -> str | None:
        """Return the next topic to serve; None if none is ready. Wait for new records if no topic needs a turn."""
        context, scheduler = self._context, self._scheduler
        while True:
            with context.lock:
                if scheduler.is_poll_due(time.monotonic()):
                    self._poll(kafka, context.topics)
                    scheduler.polled_at = time.monotonic()
                name = scheduler.acquire(time.monotonic())
                ends = scheduler.begin_watch(time.monotonic()) if name is None else None
            if ends is None or not self._have_records(ends):
                return name

    def _have_records(self, ends: Mapping[str, Mapping[int, int]]) -> bool:
        """Return whether topics have records at or after these offsets, after waiting for some."""
        context, scheduler, has_records = self._context, self._scheduler, False
        try:
            # The clients of the stream itself, so that there is one consumer for all workers.
            has_records = context.clients.kafka.wait_for_records(
                ends, WATCH_SECONDS, lambda: context.stopping.is_set() or not scheduler.is_quiet
            )
        finally:
            with context.lock:
                scheduler.end_watch(has_records=has_records)
        return has_records

    def _poll(self, kafka: KafkaClient, names: Iterable[str]) -> None:
        """Store the topics' end offsets and faults. Several entries of lakehouse.yaml may share a Kafka topic."""
        topics = {name: self._context.topics[name].topic for name in names}
        readable, faults = readable_offsets(kafka, [*dict.fromkeys(topics.values())])
        for name, topic in topics.items():
            if topic in readable:
                ends = {partition: offsets.end for partition, offsets in readable[topic].partitions.items()}
                self._scheduler.set_ends(name, readable[topic].topic_id, ends, time.monotonic())
            elif topic in faults or self._scheduler.is_expected(name):
                self._scheduler.set_fault(name, faults.get(topic) or kafka.missing_topic_error(topic))
            else:
                self._scheduler.set_missing(name)

    def _serve(self, name: str, clients: Clients) -> None:
        context = self._context
        topic = context.topics[name]
        upstream = [context.config.topic(topic.source.upstream)] if topic.source.upstream else []
        IN_PROGRESS.set((None, ""))
        try:
            with hide_values(topic, *upstream):
                self._turn(topic, clients)
        except Exception as error:
            if not isinstance(error, Yielded):
                # The connections or credentials may be the cause, so the next turn begins with new ones.
                self._close()
            with context.lock:
                seconds = self._scheduler.back_off(name, error, time.monotonic())
                context.lock.notify_all()
            if seconds is not None:
                batch, phase = IN_PROGRESS.get()
                context.events.put(TopicBackedOff(name, error, seconds, batch=batch, phase=phase))

    def _turn(self, topic: Topic, clients: Clients) -> None:
        """Ingest one bounded batch of a topic, after deriving the topic if it is derived."""
        began, name, context, scheduler = time.monotonic(), topic.name, self._context, self._scheduler
        state = scheduler.states[name]
        with context.lock:
            if state.fault:
                self._poll(clients.kafka, [name])
            if state.fault:
                raise state.fault
        if topic.source.upstream:
            self._compute(topic, topic.source.upstream, clients)
        with context.lock:
            is_behind, ends, limit = scheduler.is_behind(name), state.ends or {}, scheduler.batch_limit(name)
        if not is_behind:
            with context.lock:
                failures = scheduler.end_idle(name, began)
                context.lock.notify_all()
            if failures is not None:
                context.events.put(TopicRecovered(name, failures))
            return
        published = self._ingest(topic, limit, clients)
        with context.lock:
            end = scheduler.finish_batch(name, published, ends, limit, began, time.monotonic())
        if end.is_first or not published:
            context.events.put(TopicServed(name))
        if end.is_recovered:
            context.events.put(TopicRecovered(name, end.failures))
        if published:
            context.events.put(Commit(topic, published, end.behind, end.waited))
        with context.lock:
            scheduler.release(name, end.not_before)
            context.lock.notify_all()

    def _ingest(self, topic: Topic, limit: int, clients: Clients) -> Published | None:
        """Ingest at most one batch, and produce its dead letters to their topic."""
        namespace, state = self._context.config.namespace, self._scheduler.states[topic.name]
        bounded = topic.model_copy(update={"max_records_per_batch": limit})
        with closing(ingest(namespace, bounded, clients, self._refusals, self._context.progress.report)) as batches:
            published = next(batches, None)
        if not state.is_served or not state.has_published_dead_letters or (published and published.counts.dead_letters):
            results = try_publish_dead_letters(namespace, topic, clients)
            state.has_published_dead_letters = all(result.passed for result in results)
            published = published and replace(published, findings=[*published.findings, *results])
        return published

    def _compute(self, topic: Topic, source: str, clients: Clients) -> None:
        """Derive a topic from the rows that were added to the table of its source since the last derivation."""
        context, scheduler = self._context, self._scheduler
        with context.lock:
            if not scheduler.is_computable(topic.name):
                return
            turns = scheduler.states[source].turns
        produce(context.config, topic, clients)
        with context.lock:
            # First: a stream with `once` reads the ends of a derived topic only here.
            self._poll(clients.kafka, [topic.name])
            scheduler.set_computed(topic.name, turns, time.monotonic())


class Compactor:
    """Merges the small files of the tables that the scheduler selects, until the stream stops or is done."""

    def __init__(self, context: StreamContext):
        self._context = context
        self._clients: Clients | None = None
        self._failures = 0

    def run(self) -> None:
        """Merge small files; return when the stream stops or is done."""
        context = self._context
        while not context.stopping.is_set():
            context.progress.report()
            with context.lock:
                name = context.scheduler.next_compaction()
            if name is not None:
                self._compact(name)
            elif context.is_done:
                break
            else:
                context.stopping.wait(POLL_SECONDS)
        self._close()
        context.progress.end()

    def _compact(self, name: str) -> None:
        context, topic = self._context, self._context.topics[name]
        event: TableCompacted | TopicBackedOff | None = None
        try:
            self._clients = self._clients or context.clients.with_own_connections()
            with hide_values(topic):
                maintained = compact_incrementally(
                    context.config.namespace, topic, self._clients.catalog, self._clients.engines
                )
            self._failures, event = 0, TableCompacted(name, maintained)
        except Yielded:
            # The next batches request it again.
            self._failures = 0
        except Exception as error:
            self._failures += 1
            event = TopicBackedOff(name, error, backoff_seconds(self._failures, transient=True), is_compaction=True)
            self._close()
        with context.lock:
            files = event.maintained.after.data_files if isinstance(event, TableCompacted) else None
            context.scheduler.end_compaction(name, files)
            context.lock.notify_all()
        if event:
            context.events.put(event)
        if isinstance(event, TopicBackedOff):
            context.stopping.wait(event.seconds)

    def _close(self) -> None:
        if self._clients:
            self._clients.close()
        self._clients = None
