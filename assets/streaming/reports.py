"""What a stream tells Dagster, by a thread of its own: one that is slow, or gone for a while, holds nothing up."""

from __future__ import annotations

import math
import threading
import time
from collections import deque
from collections.abc import Callable

import dagster as dg
from dagster import AssetCheckEvaluation

from lakehouse.core.pacing import Turns, pause

APART_SECONDS = 30.0
"""How far apart a table's events of one system are, of those that come again and again: Dagster keeps them for good."""

MOST_WAITING = 10_000
"""Events that wait for a Dagster that is gone, of about 2 KB; the oldest are dropped then."""

Event = dg.AssetMaterialization | AssetCheckEvaluation


class Reporter:
    """Reports events that belong to no run, and tries again until Dagster takes them.

    Parameters: `instance` is the Dagster that is told, where there is one; `say` takes sentences of a log.
    """

    def __init__(self, instance: dg.DagsterInstance | None, say: Callable[[str], None]):
        self._instance, self._say = instance, say
        self._each: deque[Event] = deque(maxlen=MOST_WAITING)
        self._dropped = 0
        self._newest: dict[str, Event] = {}
        self._turns = Turns([])
        self._changed = threading.Condition()
        self._ending = threading.Event()
        self._thread = threading.Thread(target=self._work, daemon=True)

    def start(self) -> None:
        self._thread.start()

    def each(self, event: Event) -> None:
        """Report this event soon."""
        if self._instance:
            with self._changed:
                self._dropped += len(self._each) == MOST_WAITING
                self._each.append(event)
                self._changed.notify()

    def newest(self, of: str, event: Event) -> None:
        """Report this event, or one of the same name that comes after it: the first soon, the last in any case."""
        if self._instance:
            with self._changed:
                if of not in self._turns.not_before:
                    self._turns.give_back(of, 0.0)
                self._newest[of] = event
                self._changed.notify()

    def end(self, seconds: float) -> None:
        """Report what still waits, once more where Dagster does not take it; for so long at most."""
        with self._changed:
            self._ending.set()
            self._changed.notify()
        self._thread.join(seconds)
        if left := self._dropped + len(self._each) + len(self._newest):
            self._say(f"Dagster was not told of {left:,} events. The tables have all that was published")

    def _work(self) -> None:
        while (event := self._taken()) is not None:
            if not self._reported(event):
                # It counts among those that Dagster was not told of.
                self._each.appendleft(event)
                return

    def _taken(self) -> Event | None:
        """The event that is to be reported now; None at the end."""
        with self._changed:
            while (event := self._due()) is None and not self._ending.is_set():
                self._changed.wait(0.2)
            return event

    def _due(self) -> Event | None:
        if self._each:
            return self._each.popleft()
        now = math.inf if self._ending.is_set() else time.monotonic()
        name = self._turns.take(now, self._newest.__contains__)
        if name is None:
            return None
        self._turns.give_back(name, now + APART_SECONDS)
        return self._newest.pop(name)

    def _reported(self, event: Event) -> bool:
        """Whether Dagster took the event, however long that took; False when all is ending and it still does not."""
        assert self._instance is not None, "without an instance no event is taken in"
        failures = 0
        while True:
            try:
                self._instance.report_runless_asset_event(event)
            except Exception as error:
                failures += 1
                said = (
                    f"Dagster does not take what happened: {str(error).partition(chr(10))[0]} ({type(error).__name__})"
                )
                if self._ending.is_set():
                    self._say(said)
                    return False
                seconds = pause(failures, transient=True)
                self._say(f"{said}. It is told again in {seconds:.0f} s")
                self._ending.wait(seconds)
            else:
                if failures:
                    self._say(f"Dagster is told again, after {failures} failures")
                return True
