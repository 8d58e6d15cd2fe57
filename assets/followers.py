"""Glue and Snowflake behind a stream: each shows what was published, soon after, and never holds a batch up."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any

from assets.failures import heals
from assets.glue import point_at
from assets.snowflake import show
from lakehouse.config import Config
from lakehouse.pacing import Turns, pause
from lakehouse.topic import Topic
from resources.build import another

REFRESH_SECONDS = 3.0
"""How far apart Snowflake's refreshes of a table begin, which cost credits: a commit that comes meanwhile is shown with
the next."""


@dataclass(frozen=True)
class Shown:
    """A system that shows a table as it was published; `hop` is the first part of its asset's key."""

    hop: str
    topic: Topic
    snapshot_id: int
    metadata: dict[str, object]
    seconds: float


@dataclass(frozen=True)
class NotShown:
    """A system that could not show a topic's table, and in how many seconds it is tried again."""

    hop: str
    topic: str
    error: Exception
    seconds: float


class Follower:
    """One system that shows tables, and what waits to be shown by it.

    Parameters: `act` shows a topic's table and returns metadata; `tell` takes what happened, from this one's thread;
    `apart` are the seconds from the beginning of one showing of a table to the next.
    """

    def __init__(
        self,
        hop: str,
        act: Callable[[Topic], dict[str, object]],
        tell: Callable[[Shown | NotShown], None],
        apart: float = 0.0,
    ) -> None:
        self.hop, self._act, self._tell, self._apart = hop, act, tell, apart
        self._waiting: dict[str, tuple[Topic, int]] = {}
        self._failures: dict[str, int] = {}
        self._turns = Turns([])
        self._changed = threading.Condition()
        self._ending = False
        self._thread = threading.Thread(target=self._work, daemon=True)

    def start(self) -> None:
        self._thread.start()

    def note(self, topic: Topic, snapshot_id: int) -> None:
        """Show this snapshot, or a newer one, soon."""
        with self._changed:
            if topic.name not in self._failures:
                self._failures[topic.name] = 0
                self._turns.give_back(topic.name, 0.0)
            self._waiting[topic.name] = topic, snapshot_id
            self._changed.notify()

    def end(self, seconds: float | None) -> None:
        """Show what still waits, once more where it fails; for so long at most, where a time is given."""
        with self._changed:
            self._ending = True
            self._changed.notify()
        self._thread.join(seconds)

    def _work(self) -> None:
        while True:
            with self._changed:
                if self._ending:
                    self._turns.not_before.clear()
                name = self._turns.take(time.monotonic(), self._waiting.__contains__)
                if name is None:
                    if self._ending:
                        return
                    self._changed.wait(0.2)
                    continue
                topic, snapshot_id = self._waiting.pop(name)
            self._show(topic, snapshot_id)

    def _show(self, topic: Topic, snapshot_id: int) -> None:
        began = time.monotonic()
        try:
            metadata = self._act(topic)
        except Exception as error:
            with self._changed:
                self._failures[topic.name] += 1
                seconds = pause(self._failures[topic.name], heals(error))
                self._turns.give_back(topic.name, time.monotonic() + seconds)
                if not self._ending:
                    self._waiting.setdefault(topic.name, (topic, snapshot_id))
            self._tell(NotShown(self.hop, topic.name, error, seconds))
            return
        with self._changed:
            self._failures[topic.name] = 0
            self._turns.give_back(topic.name, began + self._apart)
        self._tell(Shown(self.hop, topic, snapshot_id, metadata, time.monotonic() - began))


def followers(config: Config, systems: Any, tell: Callable[[Shown | NotShown], None]) -> tuple[Follower, Follower]:
    """Glue, and Snowflake behind it, with connections of their own.

    Parameters: `systems` has catalog, glue and snowflake as attributes; `tell` as a Follower's.
    """
    catalog, glue, ready = another(systems.catalog), another(systems.glue), set[str]()
    snowflake, seen_by_snowflake = another(systems.snowflake), another(systems.catalog)
    # Loading a table takes longer the more snapshots it has: Snowflake follows Glue, and is spared it.
    now: dict[str, Topic] = {}

    def registered(topic: Topic) -> dict[str, object]:
        now[topic.name], table = catalog.published(config.namespace, topic)
        return {"metadata_location": point_at(config, now[topic.name], table, catalog, glue)}

    session = ExitStack()

    def refreshed(topic: Topic) -> dict[str, object]:
        current = now[topic.name]
        try:
            if not ready:
                session.enter_context(snowflake.staying())
            if current.table in ready:
                snowflake.refresh(config.namespace, current.table)
                return {}
            state = show(config, current, seen_by_snowflake, snowflake)
        except Exception:
            # The session may be what is gone, or its key may have been rotated.
            ready.clear()
            session.close()
            raise
        ready.add(current.table)
        return {"dagster/row_count": state.row_count}

    def told(what: Shown | NotShown) -> None:
        # What Glue does not show yet, Snowflake could not.
        if isinstance(what, Shown):
            second.note(what.topic, what.snapshot_id)
        tell(what)

    second = Follower("snowflake", refreshed, tell, REFRESH_SECONDS)
    return Follower("glue", registered, told), second
