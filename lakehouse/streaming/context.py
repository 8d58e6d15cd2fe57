"""What the threads of a stream share."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from dataclasses import dataclass, field
from queue import Queue

from lakehouse.config.loader import Config
from lakehouse.config.topic import Topic
from lakehouse.pipeline.clients import Clients
from lakehouse.streaming.scheduler import Scheduler
from lakehouse.streaming.stream_events import Event

MOST_EVENTS = 100
"""So many events may wait to be reported; then batches wait, too."""


@dataclass(frozen=True)
class StreamContext:
    """What the threads of a stream share.

    Attributes:
        config: The configuration.
        topics: The topics of the stream, by the names of their entries.
        clients: What each thread opens clients of its own from.
        scheduler: Guarded by `lock`.
        once: Whether the stream ends by itself.
        stopping: Set when no further batch is to begin.
        events: What happened, in order.
        lock: Notified when a turn ends.
    """

    config: Config
    topics: Mapping[str, Topic]
    clients: Clients
    scheduler: Scheduler
    once: bool
    stopping: threading.Event
    events: Queue[Event] = field(default_factory=lambda: Queue(MOST_EVENTS))
    lock: threading.Condition = field(default_factory=threading.Condition)

    @property
    def is_done(self) -> bool:
        """Whether a stream that ends has nothing left to do."""
        with self.lock:
            return self.once and self.scheduler.is_done
