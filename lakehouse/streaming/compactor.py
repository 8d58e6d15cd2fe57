"""The thread of a stream that merges small data files, of one table after another."""

from __future__ import annotations

from lakehouse.config.sensitive import unquoted
from lakehouse.core.pacing import pause
from lakehouse.pipeline.clients import Clients
from lakehouse.pipeline.maintenance import keep_pace
from lakehouse.streaming.context import StreamContext
from lakehouse.streaming.scheduler import POLL_SECONDS
from lakehouse.streaming.stream_events import SetAside, Tidied


class Compactor:
    """Merges the small files of the tables that the scheduler names, until the stream stops or is done."""

    def __init__(self, context: StreamContext):
        self._context = context
        self._clients: Clients | None = None
        self._failures = 0

    def run(self) -> None:
        """Merge small files; return when the stream stops or is done."""
        context = self._context
        while not context.stopping.is_set():
            with context.lock:
                name = context.scheduler.next_compaction()
            if name is not None:
                self._compact(name)
            elif context.is_done:
                break
            else:
                context.stopping.wait(POLL_SECONDS)
        self._close()

    def _compact(self, name: str) -> None:
        context, topic = self._context, self._context.topics[name]
        event: Tidied | SetAside
        try:
            self._clients = self._clients or context.clients.apart()
            with unquoted(topic):
                done = keep_pace(context.config.namespace, topic, self._clients.catalog, self._clients.spark)
            self._failures, event = 0, Tidied(name, done)
        except Exception as error:
            self._failures += 1
            event = SetAside(name, error, pause(self._failures, transient=True), tidying=True)
            self._close()
        with context.lock:
            files = event.maintained.after.data_files if isinstance(event, Tidied) else None
            context.scheduler.end_compaction(name, files)
            context.lock.notify_all()
        context.events.put(event)
        if isinstance(event, SetAside):
            context.stopping.wait(event.seconds)

    def _close(self) -> None:
        if self._clients:
            self._clients.close()
        self._clients = None
