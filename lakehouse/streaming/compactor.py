"""The thread of a stream that merges small data files, one table at a time."""

from lakehouse.config.sensitive import hide_values
from lakehouse.core.pacing import backoff_seconds
from lakehouse.pipeline.clients import Clients
from lakehouse.pipeline.maintenance import compact_incrementally
from lakehouse.streaming.scheduler import POLL_SECONDS
from lakehouse.streaming.stream_context import StreamContext
from lakehouse.streaming.stream_events import TableCompacted, TopicBackedOff


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
        event: TableCompacted | TopicBackedOff
        try:
            self._clients = self._clients or context.clients.with_own_connections()
            with hide_values(topic):
                maintained = compact_incrementally(
                    context.config.namespace, topic, self._clients.catalog, self._clients.spark
                )
            self._failures, event = 0, TableCompacted(name, maintained)
        except Exception as error:
            self._failures += 1
            event = TopicBackedOff(name, error, backoff_seconds(self._failures, transient=True), is_compaction=True)
            self._close()
        with context.lock:
            files = event.maintained.after.data_files if isinstance(event, TableCompacted) else None
            context.scheduler.end_compaction(name, files)
            context.lock.notify_all()
        context.events.put(event)
        if isinstance(event, TopicBackedOff):
            context.stopping.wait(event.seconds)

    def _close(self) -> None:
        if self._clients:
            self._clients.close()
        self._clients = None
