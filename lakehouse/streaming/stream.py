"""Continuous ingestion of many topics: a bounded batch of each in turn, by the code of a single run.

All state is in the tables: a stream that is stopped or killed anywhere, and two streams of the same topics, are what
runs of `ingest` are. docs/streaming.md has the reasons.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from queue import Empty

from lakehouse.config.loader import Config
from lakehouse.config.topic import Topic
from lakehouse.pipeline.clients import Clients
from lakehouse.pipeline.refusals import Refusals
from lakehouse.streaming.compactor import Compactor
from lakehouse.streaming.context import StreamContext
from lakehouse.streaming.scheduler import POLL_SECONDS, Scheduler
from lakehouse.streaming.stream_events import Event
from lakehouse.streaming.worker import Worker
from resources.stream_group import StreamGroup

WORKERS = 2
"""Topics served at once: while one batch is committed, another is decoded."""

STOP_SECONDS = 30
"""What a batch in progress gets to end in. One that does not is abandoned, which is safe."""

LEAVE_SECONDS = 5
"""What leaving the group of streams may take. One that was not left is, ten seconds later, by Kafka."""

RELEASE_SECONDS = 60
"""So long topics that pass to another stream wait for batches in progress."""


class Stream:
    """Serves topics until it is stopped; or, `once`, until each table has what its topic held at the beginning."""

    def __init__(
        self,
        config: Config,
        topics: Iterable[Topic],
        systems: Clients,
        *,
        once: bool = False,
        workers: int = WORKERS,
        stopping: threading.Event | None = None,
    ):
        """
        Args:
            config: The configuration.
            topics: The topics to serve.
            systems: What each thread opens clients of its own from.
            once: Whether to end when each table has what its topic held at the beginning.
            workers: How many topics are served at once.
            stopping: What `stop` sets.
        """
        self.once, self.topics = once, {topic.name: topic for topic in topics}
        group = None
        if not once:
            # A stream that ends serves all of its topics: whoever started it waits for them.
            shared, names = f"lakehouse.stream.{config.namespace}", {topic.topic for topic in self.topics.values()}
            group = StreamGroup(systems.kafka, shared, names, self._release, self._put)
        self._scheduler = Scheduler(self.topics, once=once, owns=group.has if group else lambda topic, partitions: True)
        stopping = stopping or threading.Event()
        self._context = StreamContext(config, self.topics, systems, self._scheduler, once, stopping)
        self._group, refusals = group, Refusals()
        targets = [*(Worker(self._context, refusals).run for _ in range(workers)), Compactor(self._context).run]
        self._threads = [threading.Thread(target=target, daemon=True) for target in targets]

    @property
    def errors(self) -> Mapping[str, Exception]:
        """Why a stream that ended could not bring topics to their ends, by topic."""
        return {name: state.error for name, state in self._scheduler.states.items() if state.error}

    def run(self) -> Iterator[Event]:
        """Serve; yield what happens. A slow consumer of the events slows the stream down.

        However it ends, batches in progress are given time to end.
        """
        leaving = threading.Event()
        member = threading.Thread(target=self._group.stay, args=[leaving], daemon=True) if self._group else None
        for thread in filter(None, [*self._threads, member]):
            thread.start()
        try:
            yield from self._happening()
        finally:
            self.stop()
            for _ in self._happening():
                pass
            # Only now: until the batches in progress have ended, no other stream is to begin with their topics.
            leaving.set()
            if member:
                member.join(LEAVE_SECONDS)

    def stop(self) -> None:
        """Begin no further batch: `run` ends when those in progress have."""
        self._context.stopping.set()

    def _happening(self) -> Iterator[Event]:
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
        """Wait until no turn is in progress: the topics pass to another stream, and work on them would be lost."""
        with self._context.lock:
            self._context.lock.wait_for(lambda: self._scheduler.is_idle, RELEASE_SECONDS)
