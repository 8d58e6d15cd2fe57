"""Many topics into their tables, on and on: a bounded batch of each in turn, by the code of a single run.

Nothing is kept but in the tables: a stream that is stopped or killed anywhere, and two that take the same topics, are
what runs of `ingest` are. docs/streaming.md has the reasons.
"""

from __future__ import annotations

import math
import threading
import time
from collections import deque
from collections.abc import Iterable, Iterator
from contextlib import closing, suppress
from dataclasses import replace
from pkgutil import resolve_name
from queue import Empty, Queue

from lakehouse.config.loader import Config
from lakehouse.config.sensitive import unquoted
from lakehouse.config.topic import Topic
from lakehouse.core.batch import Positions
from lakehouse.core.errors import Paused, is_transient
from lakehouse.core.pacing import EVERY_SECONDS, LEAST_RECORDS, Turns, next_bound, pause
from lakehouse.pipeline.clients import Clients
from lakehouse.pipeline.ingestion import ingest
from lakehouse.pipeline.maintenance import keep_pace
from lakehouse.pipeline.mirror import mirrored
from lakehouse.pipeline.refusals import Refusals
from lakehouse.streaming.stream_events import Commit, Event, Healed, Served, SetAside, Tidied
from resources.kafka import Kafka
from resources.pauses import require_unpaused
from resources.readable import readable
from resources.stream_group import StreamGroup

WORKERS = 2
"""Topics served at once: while one batch is committed, another is decoded."""

POLL_SECONDS = 0.2
"""How old the topics' end offsets may be."""

STOP_SECONDS = 30
"""What a batch in progress gets to end in. One that does not is abandoned, which is safe."""

LEAVE_SECONDS = 5
"""What leaving the group of streams may take. One that was not left is, ten seconds later, by Kafka."""

RELEASE_SECONDS = 60
"""So long topics that pass to another stream wait for batches in progress."""

MANY_FILES = 100
"""So many data files may come to a table before small ones are merged."""

MOST_EVENTS = 100
"""So many wait to be told; then batches wait, too."""

PAUSED_SECONDS = 5.0
"""After so long it is looked whether a topic is still paused."""

ATTEMPTS = 5
"""How often a topic is tried in a stream that ends, where a system does not answer."""


class Stream:
    """Serves topics until it is told to stop; or, `once`, until each table has what its topic held at the beginning.

    `errors` are, by topic, why a stream that ended could not bring it there. Workers are threads, each with connections
    and a Spark session of its own; one more merges small files. When `stopping` is set, as `stop` does, no further
    batch begins.
    """

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
        self.config, self.once = config, once
        self.topics = {topic.name: topic for topic in topics}
        self.errors: dict[str, Exception] = {}
        self._systems = systems
        targets = [self._work] * workers + [self._keep_tidy]
        self._threads = [threading.Thread(target=target, daemon=True) for target in targets]
        self._stopping = stopping or threading.Event()
        self._events: Queue[Event] = Queue(MOST_EVENTS)
        # A stream that ends takes all of its topics: whoever started it waits for them.
        shared, names = f"lakehouse.stream.{config.namespace}", {topic.topic for topic in self.topics.values()}
        self._group = None if once else StreamGroup(systems.kafka, shared, names, self._release, self._events.put)
        self._refusals = Refusals()
        # What follows belongs to who has the lock.
        self._lock = threading.Lock()
        self._turn_ended = threading.Condition(self._lock)
        self._turns = Turns(self.topics)
        self._polled = 0.0
        self._ends: dict[str, Positions] = {}
        self._faults: dict[str, Exception] = {}
        self._positions: dict[str, Positions] = {}
        self._noticed: dict[str, float] = {}
        self._bounds: dict[str, int] = {}
        self._served: set[str] = set()
        self._unmirrored: set[str] = set()
        self._failures: dict[str, int] = {}
        self._held: set[str] = set()
        self._files: dict[str, int] = {}
        self._untidy: deque[str] = deque()
        self._snapshots: dict[str, int | None] = {}
        self._derived: dict[str, int | None] = {}

    def run(self) -> Iterator[Event]:
        """Serve; yields what happens. Who takes the events slowly slows the stream down.

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
        self._stopping.set()

    def _happening(self) -> Iterator[Event]:
        deadline = None
        while any(thread.is_alive() for thread in self._threads) or not self._events.empty():
            if self._stopping.is_set():
                deadline = deadline or time.monotonic() + STOP_SECONDS
                if time.monotonic() > deadline:
                    return
            with suppress(Empty):
                yield self._events.get(timeout=POLL_SECONDS)

    def _work(self) -> None:
        systems: Clients | None = None
        failures = 0
        while not self._stopping.is_set():
            try:
                systems = systems or self._systems.apart()
                name = self._next(systems.kafka)
            except Exception as error:
                failures += 1
                self._events.put(SetAside("", error, pause(failures, transient=True)))
                if systems:
                    systems.close()
                systems = None
                self._stopping.wait(pause(failures, transient=True))
                continue
            if failures:
                self._events.put(Healed("", failures))
                failures = 0
            if name is None:
                if self.once and self._is_done():
                    break
                self._stopping.wait(POLL_SECONDS)
                continue
            try:
                with unquoted(*self._sources(name)):
                    self._turn(name, systems)
            except Exception as error:
                # Whatever it was, the next turn begins with connections and credentials of its own.
                systems.close()
                systems = None
                self._set_aside(name, error)
        if systems:
            systems.close()

    def _keep_tidy(self) -> None:
        """Merge the small files of one table after another."""
        systems: Clients | None = None
        failures = 0
        while not self._stopping.is_set():
            with self._lock:
                name = self._next_to_tidy()
            if name is None:
                if self.once and self._is_done():
                    break
                self._stopping.wait(POLL_SECONDS)
                continue
            event: Event
            try:
                systems = systems or self._systems.apart()
                with unquoted(self.topics[name]):
                    done = keep_pace(self.config.namespace, self.topics[name], systems.catalog, systems.spark)
                failures, event = 0, Tidied(name, done)
            except Exception as error:
                failures += 1
                event = SetAside(name, error, pause(failures, transient=True), tidying=True)
                if systems:
                    systems.close()
                systems = None
            with self._lock:
                self._untidy.popleft()
                if isinstance(event, Tidied):
                    self._files[name] = event.maintained.after.data_files
                if self.topics[name].replaces:
                    self._give_back(name, 0.0)
            self._events.put(event)
            if isinstance(event, SetAside):
                self._stopping.wait(event.seconds)
        if systems:
            systems.close()

    def _next_to_tidy(self) -> str | None:
        """The topic whose files are merged now. Where batches replace rows it leaves the row for that time, or one of
        both would fail; others are served, and at most repeat the batch in which the merged files come."""
        if not self._untidy:
            return None
        name = self._untidy[0]
        return self._turns.take(math.inf, self._waits_to_be_tidy) if self.topics[name].replaces else name

    def _waits_to_be_tidy(self, name: str) -> bool:
        return bool(self._untidy) and name == self._untidy[0] and self.topics[name].replaces

    def _release(self) -> None:
        """Wait until no turn is in progress: the topics pass to another stream, and work on them would be lost."""
        with self._turn_ended:
            self._turn_ended.wait_for(lambda: len(self._turns.row) == len(self.topics), RELEASE_SECONDS)

    def _give_back(self, name: str, not_before: float) -> None:
        """End a topic's turn; it has no other before that time."""
        self._turns.give_back(name, not_before)
        self._turn_ended.notify_all()

    def _is_ours(self, name: str) -> bool:
        """Whether this stream serves an entry, and not another one of the same group. Of a topic that cannot be read
        nobody knows whose it is, and each says why."""
        ends = self._ends.get(name, {})
        return self._group is None or name in self._faults or self._group.has(self.topics[name].topic, len(ends))

    def _next(self, kafka: Kafka) -> str | None:
        """The topic whose turn it is, of those that moved."""
        with self._lock:
            if time.monotonic() - self._polled > POLL_SECONDS and not (self.once and self._polled):
                self._poll(kafka, self.topics)
                self._polled = time.monotonic()
            return self._turns.take(
                time.monotonic(), lambda name: self._is_ready(name) and not self._waits_to_be_tidy(name)
            )

    def _poll(self, kafka: Kafka, names: Iterable[str]) -> None:
        """Note where topics end, and which cannot be read. Several entries may share a topic of Kafka."""
        asked = {name: self.topics[name].topic for name in names}
        found, faults = readable(kafka, [*dict.fromkeys(asked.values())])
        for name, topic in asked.items():
            if topic in found:
                self._note(name, {partition: offsets.end for partition, offsets in found[topic].items()})
            elif topic in faults or self._is_expected(name):
                self._miss(name, faults.get(topic) or kafka.missing(topic))

    def _is_expected(self, name: str) -> bool:
        """Whether an entry's topic has to exist: others make it, it was there before, or it is to be completed now."""
        source = self.topics[name].source
        return source.is_external or name in self._ends or (self.once and not source.upstream)

    def _miss(self, name: str, fault: Exception) -> None:
        """Note why an entry's topic cannot be read: its turn fails with that, and keeps no other from being served."""
        self._faults[name] = fault
        self._ends.setdefault(name, {})
        self._positions.pop(name, None)

    def _note(self, name: str, ends: Positions) -> None:
        if self._faults.pop(name, None):
            # It can be read again, so nothing is waited for any more.
            self._turns.not_before.pop(name, None)
        before = self._ends.get(name, {})
        if any(end < before.get(partition, 0) for partition, end in ends.items()):
            # It is another topic by now, or lost records: a turn will say which.
            self._positions.pop(name, None)
        self._ends[name] = ends
        if self._is_ready(name):
            self._noticed.setdefault(name, time.monotonic())

    def _is_ready(self, name: str) -> bool:
        """Whether a topic has, or may have, what its table lacks."""
        if name in self.errors:
            return False
        if self._is_derivable(name):
            return True
        is_behind = name in self._ends and (name not in self._positions or self._behind(name) > 0)
        return is_behind and self._is_ours(name)

    def _behind(self, name: str) -> int:
        position = self._positions[name]
        return sum(max(0, end - position.get(partition, 0)) for partition, end in self._ends[name].items())

    def _is_derivable(self, name: str) -> bool:
        """Whether a derived topic's source, if it is served here, has what the topic was not computed from."""
        source = self.topics[name].source.upstream
        if source not in self.topics or not self._is_ours(source):
            return False
        return name not in self._derived or self._derived[name] != self._snapshots.get(source)

    def _is_done(self) -> bool:
        with self._lock:
            waits = not self._polled or self._untidy or len(self._turns.row) < len(self.topics)
            return not waits and not any(map(self._is_ready, self.topics))

    def _turn(self, name: str, systems: Clients) -> None:
        """One bounded batch of a topic, and what belongs to it."""
        began, topic, namespace = time.monotonic(), self.topics[name], self.config.namespace
        with self._lock:
            if name in self._faults:
                self._poll(systems.kafka, [name])
            if fault := self._faults.get(name):
                raise fault
        if topic.source.upstream:
            self._derive(topic, topic.source.upstream, systems)
        with self._lock:
            is_ours, ends = self._is_ours(name), self._ends.get(name, {})
            bound = min(self._bounds.get(name, LEAST_RECORDS), topic.max_records_per_batch)
        if not is_ours:
            self._end_computed(name, began)
            return
        bounded = topic.model_copy(update={"max_records_per_batch": bound})
        with closing(ingest(namespace, bounded, systems, self._refusals)) as batches:
            published = next(batches, None)
        if name not in self._served or name in self._unmirrored or (published and published.counts.dead_letters):
            found = mirrored(namespace, topic, systems)
            (self._unmirrored.discard if all(one.passed for one in found) else self._unmirrored.add)(name)
            published = published and replace(published, findings=[*published.findings, *found])
        now = time.monotonic()
        with self._lock:
            is_first = name not in self._served
            self._served.add(name)
            self._positions[name] = published.batch.end if published else ends
            behind = self._behind(name) if ends else 0
            noticed = self._noticed.pop(name, began)
            if behind:
                self._noticed[name] = now
            failures, was_held = self._failures.pop(name, 0), name in self._held
            self._held.discard(name)
            if published:
                self._snapshots[name] = published.snapshot_id
                taken = published.batch.offsets
                self._bounds[name] = next_bound(bound, taken, now - began, topic.max_records_per_batch)
                if published.data_files - self._files.get(name, 0) >= MANY_FILES and name not in self._untidy:
                    self._untidy.append(name)
        if is_first:
            self._events.put(Served(name))
        if failures or was_held:
            self._events.put(Healed(name, failures))
        if published:
            self._events.put(Commit(topic, published, behind, now - noticed))
        # What is a whole batch behind waits for nobody but the others.
        waits = behind < bound and not self.once
        with self._lock:
            self._give_back(name, began + EVERY_SECONDS if waits else now)

    def _end_computed(self, name: str, began: float) -> None:
        """End the turn of a derived topic that was only computed here: another stream takes it."""
        with self._lock:
            failures = self._failures.pop(name, 0)
            self._give_back(name, began + EVERY_SECONDS)
        if failures:
            self._events.put(Healed(name, failures))

    def _sources(self, name: str) -> list[Topic]:
        """The topic, and the one that it is derived from: the values that a turn reads."""
        topic = self.topics[name]
        return [topic, *([self.config.topic(topic.source.upstream)] if topic.source.upstream else [])]

    def _derive(self, topic: Topic, source: str, systems: Clients) -> None:
        """Compute a derived topic from what its source's table got since."""
        with self._lock:
            if not self._is_derivable(topic.name):
                return
            snapshot = self._snapshots.get(source)
        require_unpaused(systems.catalog, self.config.namespace, topic.name)
        systems.kafka.ensure_topic(topic.topic, topic.partitions, topic.retention.records)
        resolve_name(topic.source.producer)(self.config, topic, systems)
        with self._lock:
            self._derived[topic.name] = snapshot
            self._poll(systems.kafka, [topic.name])

    def _set_aside(self, name: str, error: Exception) -> None:
        """Let a topic wait whose turn failed, longer each time, or that is paused; the others continue."""
        with self._lock:
            is_known = isinstance(error, Paused) and name in self._held
            if isinstance(error, Paused):
                self._held.add(name)
                seconds = PAUSED_SECONDS
            else:
                failures = self._failures[name] = self._failures.get(name, 0) + 1
                seconds = pause(failures, is_transient(error))
            if self.once and (not is_transient(error) or self._failures.get(name) == ATTEMPTS):
                self.errors[name] = error
            self._give_back(name, time.monotonic() + seconds)
        if not is_known:
            self._events.put(SetAside(name, error, seconds))
