"""Readers behind a stream: each shows what was published, soon after, and never holds a batch up."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from lakehouse.config.loader import Config
from lakehouse.config.topic import Topic
from lakehouse.core.errors import is_transient
from lakehouse.core.pacing import Turns, pause
from lakehouse.readers import configured
from lakehouse.readers.reader import Publish, Reader, Registration
from resources.build import another

if TYPE_CHECKING:
    from pyiceberg.table import Table


@dataclass(frozen=True)
class Shown:
    """A system that shows a table as it was published; `hop` is the first part of its asset's key."""

    hop: str
    topic: Topic
    snapshot_id: int
    registration: Registration
    seconds: float


@dataclass(frozen=True)
class NotShown:
    """A system that could not show a topic's table, and in how many seconds it is tried again."""

    hop: str
    topic: str
    error: Exception
    seconds: float


@dataclass(frozen=True)
class Noted:
    """A table that has a new snapshot; `loaded` is the topic with the table that its records go to, and the table,
    where somebody has loaded it."""

    topic: Topic
    snapshot_id: int
    loaded: tuple[Topic, Table] | None = None


class Follower:
    """One reader, and the tables that wait to be published by it.

    Args:
        reader: The reader.
        namespace: The namespace of the tables.
        systems: Has the catalog and the reader's resource as attributes, from which connections are copied.
        tell: Takes what happened, from this one's thread.
    """

    def __init__(self, reader: Reader, namespace: str, systems: Any, tell: Callable[[Shown | NotShown], None]) -> None:
        self.reader, self.then = reader, list[Follower]()
        own = {name: another(getattr(systems, name)) for name in {"catalog", reader.resource}}
        self._namespace, self._clients, self._tell = namespace, SimpleNamespace(**own), tell
        self._session = ExitStack()
        self._publish: Publish | None = None
        self._waiting: dict[str, Noted] = {}
        self._failures: dict[str, int] = {}
        self._turns = Turns([])
        self._changed = threading.Condition()
        self._ending = False
        self._thread = threading.Thread(target=self._work, daemon=True)

    def start(self) -> None:
        self._thread.start()

    def note(self, noted: Noted) -> None:
        """Show this snapshot, or a newer one, soon."""
        name = noted.topic.name
        with self._changed:
            if name not in self._failures:
                self._failures[name] = 0
                self._turns.give_back(name, 0.0)
            self._waiting[name] = noted
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
                noted = self._waiting.pop(name)
            self._show(noted)

    def _show(self, noted: Noted) -> None:
        began, topic = time.monotonic(), noted.topic
        try:
            loaded = noted.loaded or self._clients.catalog.published(self._namespace, topic)
            registration = self._published(*loaded)
        except Exception as error:
            with self._changed:
                self._failures[topic.name] += 1
                seconds = pause(self._failures[topic.name], is_transient(error))
                self._turns.give_back(topic.name, time.monotonic() + seconds)
                if not self._ending:
                    self._waiting.setdefault(topic.name, noted)
            self._tell(NotShown(self.reader.name, topic.name, error, seconds))
            return
        with self._changed:
            self._failures[topic.name] = 0
            self._turns.give_back(topic.name, began + self.reader.min_interval_seconds)
        # What this reader does not show yet, one that follows it could not. It takes longer to load a table the more
        # snapshots it has: those that follow are spared it.
        for follower in self.then:
            follower.note(Noted(topic, noted.snapshot_id, loaded))
        self._tell(Shown(self.reader.name, topic, noted.snapshot_id, registration, time.monotonic() - began))

    def _published(self, topic: Topic, table: Table) -> Registration:
        try:
            if self._publish is None:
                self._publish = self._session.enter_context(self.reader.session(self._namespace, self._clients))
            return self._publish(topic, table)
        except Exception:
            # The session may be what is gone, or its credentials may have been rotated.
            self._publish = None
            self._session.close()
            raise


def followers(config: Config, systems: Any, tell: Callable[[Shown | NotShown], None]) -> list[Follower]:
    """A follower of each reader of the environment, with connections of its own, each after the one that it follows.

    Parameters: `systems` has the catalog and the readers' resources as attributes; `tell` as a Follower's.
    """
    found: dict[str, Follower] = {}
    for reader in configured(config):
        found[reader.name] = Follower(reader, config.namespace, systems, tell)
        if first := found.get(reader.upstream):
            first.then.append(found[reader.name])
    return list(found.values())
