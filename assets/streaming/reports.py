"""Reports a stream's events to Dagster from a separate thread: a slow or unavailable Dagster never blocks ingestion."""

import logging
import math
import threading
import time
from collections import deque
from collections.abc import Callable

import dagster as dg
from dagster import AssetCheckEvaluation

from lakehouse.core.errors import redact_credentials
from lakehouse.core.log_entry import LogEntry
from lakehouse.core.text import pluralize
from lakehouse.streaming.pacing import RoundRobin, backoff_seconds

INTERVAL_SECONDS = 30.0
"""Minimum time between two `report_latest` events of one name. Dagster keeps all events forever."""

MAX_QUEUED = 10_000
"""Maximum number of queued events, of about 2 KB each. The oldest events are dropped beyond it."""

Event = dg.AssetMaterialization | AssetCheckEvaluation


class Reporter:
    """Reports events without a run to Dagster, and retries until they are stored.

    Args:
        instance: The Dagster instance; without one, events are discarded.
        log: Logs an entry.
    """

    def __init__(self, instance: dg.DagsterInstance | None, log: Callable[[LogEntry], None]):
        self._instance, self._log = instance, log
        self._queue: deque[Event] = deque(maxlen=MAX_QUEUED)
        self._dropped = 0
        self._latest: dict[str, Event] = {}
        self._turns = RoundRobin()
        self._changed = threading.Condition()
        self._ending = threading.Event()
        self._thread = threading.Thread(target=self._work, daemon=True)

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def report(self, event: Event) -> None:
        """Queue an event."""
        if self._instance:
            with self._changed:
                self._dropped += len(self._queue) == MAX_QUEUED
                self._queue.append(event)
                self._changed.notify()

    def report_latest(self, name: str, event: Event) -> None:
        """Queue an event that replaces a queued one of the same name, at most one per name and INTERVAL_SECONDS."""
        if self._instance:
            with self._changed:
                if name not in self._turns.not_before:
                    self._turns.release(name, 0.0)
                self._latest[name] = event
                self._changed.notify()

    def finish(self, seconds: float) -> None:
        """Report the queued events without further retries, within `seconds`."""
        with self._changed:
            self._ending.set()
            self._changed.notify()
        self._thread.join(seconds)
        if unreported := self._dropped + len(self._queue) + len(self._latest):
            message = f"{unreported:,} events were not reported to Dagster. The published data is complete"
            self._log(LogEntry(message, logging.WARNING))

    def _work(self) -> None:
        while (event := self._next()) is not None:
            if not self._store(event):
                # `finish` counts the event as unreported.
                self._queue.appendleft(event)
                return

    def _next(self) -> Event | None:
        """Wait for an event that is due; None when the reporter finishes."""
        with self._changed:
            while (event := self._due()) is None and not self._ending.is_set():
                self._changed.wait(0.2)
            return event

    def _due(self) -> Event | None:
        if self._queue:
            return self._queue.popleft()
        now = math.inf if self._ending.is_set() else time.monotonic()
        name = self._turns.acquire(now, self._latest.__contains__)
        if name is None:
            return None
        self._turns.release(name, now + INTERVAL_SECONDS)
        return self._latest.pop(name)

    def _store(self, event: Event) -> bool:
        """Store an event in Dagster with retries. Return False if the reporter finishes before that succeeds."""
        assert self._instance is not None, "events are queued only with an instance"
        failures = 0
        while True:
            try:
                self._instance.report_runless_asset_event(event)
            except Exception as error:
                failures += 1
                kind, text = type(error).__name__, redact_credentials(error).partition("\n")[0]
                problem = f"Events cannot be reported to Dagster: {text} ({kind})"
                if self._ending.is_set():
                    self._log(LogEntry(problem, logging.WARNING, error=kind))
                    return False
                seconds = backoff_seconds(failures, transient=True)
                self._log(LogEntry(f"{problem}. Retry in {seconds:.0f} s", logging.WARNING, error=kind))
                self._ending.wait(seconds)
            else:
                if failures:
                    message = f"Events are reported to Dagster again, after {pluralize(failures, 'failure')}"
                    self._log(LogEntry(message))
                return True
