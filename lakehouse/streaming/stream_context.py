"""State shared by the threads of a stream."""

import threading
from collections.abc import Mapping
from dataclasses import dataclass, field
from queue import Queue

from lakehouse.config.loader import Config
from lakehouse.config.topic import Topic
from lakehouse.pipeline.clients import Clients
from lakehouse.streaming.scheduler import Scheduler
from lakehouse.streaming.stream_events import Event

MAX_EVENTS = 100
"""Capacity of the event queue; when it is full, batches wait until events are reported."""


@dataclass(frozen=True)
class StreamContext:
    """State shared by the threads of a stream.

    Attributes:
        config: The configuration.
        topics: The topics of the stream, by the names of their entries in lakehouse.yaml.
        clients: The clients that each thread copies its own connections from.
        scheduler: The scheduler; access requires `lock`.
        once: Whether the stream ends when its topics are caught up.
        stopping: Set when no further batch may begin.
        events: The events to report, in order.
        lock: Guards the scheduler; notified when a turn ends.
    """

    config: Config
    topics: Mapping[str, Topic]
    clients: Clients
    scheduler: Scheduler
    once: bool
    stopping: threading.Event
    events: Queue[Event] = field(default_factory=lambda: Queue(MAX_EVENTS))
    lock: threading.Condition = field(default_factory=threading.Condition)

    @property
    def is_done(self) -> bool:
        """True if the stream ends when its topics are caught up, and they are."""
        with self.lock:
            return self.once and self.scheduler.is_done
