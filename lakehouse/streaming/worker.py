"""A thread of a stream that ingests: a bounded batch of one topic after another."""

from __future__ import annotations

import time
from collections.abc import Iterable
from contextlib import closing
from dataclasses import replace
from pkgutil import resolve_name

from lakehouse.config.sensitive import unquoted
from lakehouse.config.topic import Topic
from lakehouse.core.pacing import pause
from lakehouse.pipeline.clients import Clients
from lakehouse.pipeline.ingestion import Published, ingest
from lakehouse.pipeline.mirror import mirrored
from lakehouse.pipeline.refusals import Refusals
from lakehouse.streaming.context import StreamContext
from lakehouse.streaming.scheduler import POLL_SECONDS
from lakehouse.streaming.stream_events import Commit, Healed, Served, SetAside
from resources.kafka import Kafka
from resources.pauses import require_unpaused
from resources.readable import readable


class Worker:
    """Serves the topics that the scheduler names, with clients and a Spark session of its own."""

    def __init__(self, context: StreamContext, refusals: Refusals):
        """
        Args:
            context: What the threads of the stream share.
            refusals: Batches that could not be published, of all workers.
        """
        self._context, self._scheduler, self._refusals = context, context.scheduler, refusals
        self._clients: Clients | None = None
        self._failures = 0

    def run(self) -> None:
        """Serve topics; return when the stream stops or is done."""
        context = self._context
        while not context.stopping.is_set():
            try:
                clients = self._clients = self._clients or context.clients.apart()
                name = self._next(clients.kafka)
            except Exception as error:
                self._failures += 1
                seconds = pause(self._failures, transient=True)
                context.events.put(SetAside("", error, seconds))
                self._close()
                context.stopping.wait(seconds)
                continue
            if self._failures:
                context.events.put(Healed("", self._failures))
                self._failures = 0
            if name is not None:
                self._serve(name, clients)
            elif context.is_done:
                break
            else:
                context.stopping.wait(POLL_SECONDS)
        self._close()

    def _close(self) -> None:
        if self._clients:
            self._clients.close()
        self._clients = None

    def _next(self, kafka: Kafka) -> str | None:
        with self._context.lock:
            if self._scheduler.is_poll_due(time.monotonic()):
                self._poll(kafka, self._context.topics)
                self._scheduler.polled_at = time.monotonic()
            return self._scheduler.take(time.monotonic())

    def _poll(self, kafka: Kafka, names: Iterable[str]) -> None:
        """Note where topics end, and which cannot be read. Several entries may share a topic of Kafka."""
        asked = {name: self._context.topics[name].topic for name in names}
        found, faults = readable(kafka, [*dict.fromkeys(asked.values())])
        for name, topic in asked.items():
            if topic in found:
                ends = {partition: offsets.end for partition, offsets in found[topic].items()}
                self._scheduler.note_ends(name, ends, time.monotonic())
            elif topic in faults or self._scheduler.is_expected(name):
                self._scheduler.note_fault(name, faults.get(topic) or kafka.missing(topic))

    def _serve(self, name: str, clients: Clients) -> None:
        context = self._context
        topic = context.topics[name]
        upstream = [context.config.topic(topic.source.upstream)] if topic.source.upstream else []
        try:
            with unquoted(topic, *upstream):
                self._turn(topic, clients)
        except Exception as error:
            # Whatever it was, the next turn begins with connections and credentials of its own.
            self._close()
            with context.lock:
                seconds = self._scheduler.set_aside(name, error, time.monotonic())
                context.lock.notify_all()
            if seconds is not None:
                context.events.put(SetAside(name, error, seconds))

    def _turn(self, topic: Topic, clients: Clients) -> None:
        """Ingest one bounded batch of a topic, and compute the topic first where it is derived."""
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
            is_ours, ends, limit = scheduler.is_ours(name), state.ends or {}, scheduler.batch_limit(name)
        if not is_ours:
            with context.lock:
                failures = scheduler.end_computed(name, began)
                context.lock.notify_all()
            if failures:
                context.events.put(Healed(name, failures))
            return
        published = self._ingest(topic, limit, clients)
        with context.lock:
            end = scheduler.note_batch(name, published, ends, limit, began, time.monotonic())
        if end.is_first:
            context.events.put(Served(name))
        if end.is_recovered:
            context.events.put(Healed(name, end.failures))
        if published:
            context.events.put(Commit(topic, published, end.behind, end.waited))
        with context.lock:
            scheduler.give_back(name, end.not_before)
            context.lock.notify_all()

    def _ingest(self, topic: Topic, limit: int, clients: Clients) -> Published | None:
        """Ingest at most one batch, and produce its dead letters to their topic."""
        namespace, state = self._context.config.namespace, self._scheduler.states[topic.name]
        bounded = topic.model_copy(update={"max_records_per_batch": limit})
        with closing(ingest(namespace, bounded, clients, self._refusals)) as batches:
            published = next(batches, None)
        if not state.is_served or not state.is_mirrored or (published and published.counts.dead_letters):
            found = mirrored(namespace, topic, clients)
            state.is_mirrored = all(finding.passed for finding in found)
            published = published and replace(published, findings=[*published.findings, *found])
        return published

    def _compute(self, topic: Topic, source: str, clients: Clients) -> None:
        """Compute a derived topic from what its source's table got since."""
        context, scheduler = self._context, self._scheduler
        with context.lock:
            if not scheduler.is_computable(topic.name):
                return
            snapshot_id = scheduler.states[source].snapshot_id
        require_unpaused(clients.catalog, context.config.namespace, topic.name)
        clients.kafka.ensure_topic(topic.topic, topic.partitions, topic.retention.records)
        resolve_name(topic.source.producer)(context.config, topic, clients)
        with context.lock:
            scheduler.note_computed(topic.name, snapshot_id)
            self._poll(clients.kafka, [topic.name])
