"""Threads that publish a stream's commits to the readers, soon after each commit and without delaying batches."""

import threading
import time
from collections.abc import Callable, Iterable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from types import SimpleNamespace

from pyiceberg.table import Table

from lakehouse.config.model import Config, Topic
from lakehouse.core.errors import is_transient
from lakehouse.core.tables.naming import TableRef
from lakehouse.readers import configured
from lakehouse.readers.reader import Publish, Reader, Registration
from lakehouse.streaming.pacing import RoundRobin, backoff_seconds
from lakehouse.streaming.stream_events import Commit, Event, TopicServed
from resources.build import with_own_connections
from resources.protocols import Resources


@dataclass(frozen=True)
class TablePublished:
    """A reader exposes a table as it was published."""

    stage: str
    topic: Topic
    snapshot_id: int
    registration: Registration
    """The state that the reader exposes."""
    seconds: float
    """Duration of the publication."""


@dataclass(frozen=True)
class PublicationFailed:
    """A reader could not expose a topic's table."""

    stage: str
    topic: str
    error: Exception
    seconds: float
    """Time until the next attempt."""


@dataclass(frozen=True)
class PublicationRequest:
    """A topic whose table may have a snapshot that readers lack."""

    topic: Topic
    loaded: tuple[TableRef, Table] | None = None
    """The table of the topic as another publisher loaded it; None if it must be loaded."""


class ReaderPublisher:
    """A reader, and the queue of tables to publish through it.

    Args:
        resources: Include the catalog and the reader's resource, whose connections are copied.
        on_event: Called with each result, from this publisher's thread.
    """

    def __init__(
        self,
        reader: Reader,
        namespace: str,
        resources: Resources,
        on_event: Callable[[TablePublished | PublicationFailed], None],
    ) -> None:
        self.reader, self.downstream = reader, list[ReaderPublisher]()
        copies = {name: with_own_connections(getattr(resources, name)) for name in {"catalog", reader.resource}}
        self._namespace, self._on_event = namespace, on_event
        self._resources: Resources = SimpleNamespace(**copies)
        self._session = ExitStack()
        self._publish: Publish | None = None
        self._requests: dict[str, PublicationRequest] = {}
        self._failures: dict[str, int] = {}
        self._turns = RoundRobin()
        self._changed = threading.Condition()
        self._ending = False
        self._thread = threading.Thread(target=self._work, daemon=True)

    def start(self) -> None:
        """Start the publisher's thread."""
        self._thread.start()

    def enqueue(self, request: PublicationRequest) -> None:
        """Request publication of the newest snapshot."""
        name = request.topic.name
        with self._changed:
            if name not in self._failures:
                self._failures[name] = 0
                self._turns.release(name, 0.0)
            self._requests[name] = request
            self._changed.notify()

    def finish(self, seconds: float | None) -> None:
        """Publish the queued tables, with one attempt each, and end the thread.

        Args:
            seconds: The maximum time to wait; unlimited if None.
        """
        with self._changed:
            self._ending = True
            self._changed.notify()
        self._thread.join(seconds)

    def _work(self) -> None:
        while True:
            with self._changed:
                if self._ending:
                    self._turns.not_before.clear()
                name = self._turns.acquire(time.monotonic(), self._requests.__contains__)
                if name is None:
                    if self._ending:
                        return
                    self._changed.wait(0.2)
                    continue
                request = self._requests.pop(name)
            self._serve(request)

    def _serve(self, request: PublicationRequest) -> None:
        began, topic = time.monotonic(), request.topic
        try:
            loaded = request.loaded or self._resources.catalog.chain(topic.table_in(self._namespace)).published
            registration = self._published(topic, *loaded) if loaded else None
        except Exception as error:
            with self._changed:
                self._failures[topic.name] += 1
                seconds = backoff_seconds(self._failures[topic.name], is_transient(error))
                self._turns.release(topic.name, time.monotonic() + seconds)
                if not self._ending:
                    self._requests.setdefault(topic.name, request)
            self._on_event(PublicationFailed(self.reader.name, topic.name, error, seconds))
            return
        with self._changed:
            self._failures[topic.name] = 0
            self._turns.release(topic.name, began + self.reader.min_interval_seconds)
        if loaded is None or registration is None:
            return
        # A reader can only expose what its upstream exposes, so its request is enqueued after the upstream's success.
        # The loaded table is passed on, because loading takes longer the more snapshots the table has.
        for publisher in self.downstream:
            publisher.enqueue(PublicationRequest(topic, loaded))
        seconds, snapshot_id = time.monotonic() - began, loaded[1].metadata.current_snapshot_id
        assert snapshot_id is not None
        self._on_event(TablePublished(self.reader.name, topic, snapshot_id, registration, seconds))

    def _published(self, topic: Topic, ref: TableRef, table: Table) -> Registration:
        try:
            if self._publish is None:
                self._publish = self._session.enter_context(self.reader.session(self._resources))
            return self.reader.publish_tables(topic, ref, table, self._resources, self._publish)
        except Exception:
            # The session may be lost, or its credentials may have been rotated.
            self._publish = None
            self._session.close()
            raise


def reader_publishers(
    config: Config, resources: Resources, on_event: Callable[[TablePublished | PublicationFailed], None]
) -> list[ReaderPublisher]:
    """Return a publisher with its own connections for each reader of the current environment, linked to its upstream's.

    Args:
        resources: Include the catalog and the readers' resources.
        on_event: Called with each result, from the publishers' threads.
    """
    publishers: dict[str, ReaderPublisher] = {}
    for reader in configured(config):
        publishers[reader.name] = ReaderPublisher(reader, config.namespace, resources, on_event)
        if upstream := publishers.get(reader.upstream):
            upstream.downstream.append(publishers[reader.name])
    return list(publishers.values())


def request_publications(event: Event, topics: Mapping[str, Topic], publishers: Iterable[ReaderPublisher]) -> None:
    """Request the publication of a table of which a turn of a stream has ended.

    Another writer may have published the table's newest snapshot, and ended before readers exposed it.

    Args:
        event: An event of the stream.
        topics: The topics of the stream by name.
        publishers: The publishers of all readers. Those with an upstream follow it.
    """
    match event:
        case Commit(topic):
            pass
        case TopicServed(name):
            topic = topics[name]
        case _:
            return
    for publisher in publishers:
        if publisher.reader.upstream == "iceberg":
            publisher.enqueue(PublicationRequest(topic))
