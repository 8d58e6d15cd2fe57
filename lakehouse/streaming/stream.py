"""Ingest many topics continuously: one bounded batch of each topic in turn, by the same code as a single run.

All state is in the tables. A stream can therefore be stopped or killed at any point, and two streams may serve the same
topics. docs/streaming.md has the reasons.
"""

import json
import threading
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from hashlib import sha256
from queue import Empty, Queue

from lakehouse.config.model import Config, Topic
from lakehouse.core.tables.naming import table_name
from lakehouse.pipeline.batches.refusals import Refusals
from lakehouse.pipeline.clients import Clients
from lakehouse.streaming.progress import Progress
from lakehouse.streaming.scheduler import POLL_SECONDS, Backlog, Scheduler
from lakehouse.streaming.stream_events import Event
from lakehouse.streaming.worker import Compactor, StreamContext, Worker
from resources.build import with_own_connections
from resources.iceberg.namespace_identity import namespace_identity
from resources.kafka.stream_group import StreamGroup

WORKERS = 2
"""Number of topics served concurrently: while one batch is being committed, another is decoded."""

STOP_SECONDS = 30
"""Time that a batch in progress has to finish when the stream stops; then it is abandoned, which is safe."""

LEAVE_SECONDS = 5
"""Maximum time to leave the group of streams; otherwise Kafka removes the member ten seconds later."""

RELEASE_SECONDS = 60
"""Maximum time that topics reassigned to another stream wait for batches in progress."""

MAX_EVENTS = 100
"""Capacity of the event queue; when it is full, batches wait until events are reported."""


class Stream:
    """Serves topics until it is stopped or, with `once`, until each table has what its topic had at the beginning."""

    def __init__(
        self,
        config: Config,
        topics: Iterable[Topic],
        clients: Clients,
        *,
        once: bool = False,
        workers: int = WORKERS,
        stopping: threading.Event | None = None,
    ):
        """Create a stream; `run` starts it.

        Args:
            topics: The topics to serve.
            clients: The clients that each thread copies its own connections from.
            once: Whether to end when each table has what its topic had at the beginning.
            workers: The number of topics served concurrently.
            stopping: The event that `stop` sets.
        """
        self.once, self.topics = once, {topic.name: topic for topic in topics}
        self.namespace, self.clients = config.namespace, clients
        self.progress = Progress()
        # With `once`, the stream serves all of its topics, because its caller waits for all of them.
        self._groups = {} if once else self._groups_by_topic(config, clients)
        self._scheduler = Scheduler(self.topics, once=once, owns=self._owns)
        stopping = stopping or threading.Event()
        events: Queue[Event] = Queue(MAX_EVENTS)
        self._context = StreamContext(
            config, self.topics, clients, self._scheduler, once, stopping, events, threading.Condition(), self.progress
        )
        refusals = Refusals()
        targets = {f"worker {number}": Worker(self._context, refusals).run for number in range(1, workers + 1)}
        targets["compactor"] = Compactor(self._context).run
        self._threads = [threading.Thread(target=run, name=name, daemon=True) for name, run in targets.items()]

    def _groups_by_topic(self, config: Config, clients: Clients) -> Mapping[str, StreamGroup]:
        """Return the group that divides each topic in Kafka among the streams that fill the same tables from it.

        Streams of other environments and projects may fill other tables from the same topic. The group's name has the
        identity of the namespace, and tables that are not named after their topic are named in it by a digest.
        """
        tables: dict[str, set[str]] = {}
        for entry in self.topics.values():
            tables.setdefault(entry.topic, set()).add(entry.table)
        named = {topic: sorted(of) for topic, of in tables.items() if of != {table_name(topic)}}
        digest = sha256(json.dumps(named, sort_keys=True).encode()).hexdigest()[:16]

        def group(suffix: str, topics: Iterable[str]) -> Mapping[str, StreamGroup]:
            def name() -> str:
                catalog = with_own_connections(clients.catalog)
                return f"lakehouse.stream.{namespace_identity(catalog, config.namespace)}{suffix}"

            joined = [*topics]
            return dict.fromkeys(joined, StreamGroup(clients.kafka, name, joined, self._release, self._put))

        return {**group("", tables.keys() - named.keys()), **group(f".{digest}", named)}

    def _owns(self, topic: str, partitions: int) -> bool:
        """Return whether this stream, and no other of its group, serves a topic in Kafka."""
        return topic not in self._groups or self._groups[topic].serves(topic, partitions)

    @property
    def errors(self) -> Mapping[str, Exception]:
        """The errors because of which a stream with `once` gave up, by topic name; that of Kafka itself as `Kafka`."""
        errors = {name: state.error for name, state in self._scheduler.states.items() if state.error}
        return errors | ({"Kafka": self._scheduler.error} if self._scheduler.error else {})

    @property
    def is_ready(self) -> bool:
        """True if the stream has read its topics, and was not asked to stop."""
        return self._scheduler.polled_at is not None and not self._context.stopping.is_set()

    def backlogs(self) -> Mapping[str, Backlog]:
        """Return what each table lacks, by the name of the topic."""
        return self._scheduler.backlogs(time.monotonic())

    def run(self) -> Iterator[Event]:
        """Serve the topics and yield events. A slow consumer of the events slows the stream down.

        However the iteration ends, batches in progress have time to finish.
        """
        leaving = threading.Event()
        groups = dict.fromkeys(self._groups.values())
        members = [threading.Thread(target=group.run, args=[leaving], daemon=True) for group in groups]
        for thread in [*self._threads, *members]:
            thread.start()
        try:
            yield from self._events()
        finally:
            self.stop()
            for _ in self._events():
                pass
            # Leave the group last, so that no other stream begins these topics before the batches have ended.
            leaving.set()
            for member in members:
                member.join(LEAVE_SECONDS)

    def stop(self) -> None:
        """Begin no further batch; `run` ends when the batches in progress have."""
        self._context.stopping.set()

    def _events(self) -> Iterator[Event]:
        deadline, events = None, self._context.events
        while any(thread.is_alive() for thread in self._threads) or not events.empty():
            if self._context.stopping.is_set():
                deadline = deadline or time.monotonic() + STOP_SECONDS
                if time.monotonic() > deadline:
                    return
            with suppress(Empty):
                yield events.get(timeout=POLL_SECONDS)

    def _put(self, event: Event) -> None:
        self._context.events.put(event)

    def _release(self) -> None:
        """Wait until no turn is in progress.

        The topics are being reassigned to another stream, and the work of a turn in progress would be lost.
        """
        with self._context.lock:
            self._context.lock.wait_for(lambda: self._scheduler.is_idle, RELEASE_SECONDS)
