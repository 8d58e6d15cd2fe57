"""Threads of a simulated program, and the locks, events and queues between them."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Sequence
from functools import partial
from queue import Empty
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import lakehouse.streaming.publishers
import lakehouse.streaming.scheduler
import lakehouse.streaming.stream
from lakehouse.streaming.stream_events import Event

if TYPE_CHECKING:
    from tests.simulation.world import Process, World

FILES_PER_COMPACTION = 2
"""Number of data files after which a stream merges small ones: a schedule has few."""


class MemoryThread:
    """The methods of threading.Thread that the project uses."""

    def __init__(
        self,
        world: World,
        target: Callable[..., object],
        args: Sequence[Any] = (),
        name: str = "",
        daemon: bool = False,
    ):
        self._world, self._target, self._process = world, partial(target, *args), None

    _process: Process | None

    def start(self) -> None:
        """Start the thread. Outside of programs, where every call is performed at once, it never runs."""
        if self._world.current is None:
            return
        owner = getattr(self._target.func, "__self__", self._target.func)
        self._process = self._world.start_thread(type(owner).__name__, self._target)

    def is_alive(self) -> bool:
        """Return whether the thread was started, and has not ended."""
        return self._process in self._world.processes

    def join(self, timeout: float | None = None) -> None:
        """Wait until the thread ends."""
        if self.is_alive():
            self._world.wait(lambda: not self.is_alive(), math.inf if timeout is None else timeout)


class MemoryEvent:
    """The methods of threading.Event that the project uses."""

    def __init__(self, world: World):
        self._world, self._is_set = world, False

    def set(self) -> None:
        """Release all threads that wait."""
        self._is_set = True

    def is_set(self) -> bool:
        """Return whether the event was set."""
        return self._is_set

    def wait(self, timeout: float | None = None) -> bool:
        """Wait until the event is set."""
        return self._world.wait(self.is_set, math.inf if timeout is None else timeout)


class MemoryCondition:
    """The methods of threading.Condition with a reentrant lock that the project uses."""

    def __init__(self, world: World):
        self._world = world
        self._owner: Process | None = None
        self._depth = self._notified = 0

    def __enter__(self) -> bool:
        self._acquire(1)
        return True

    def __exit__(self, *error: object) -> None:
        self._depth -= 1
        if not self._depth:
            self._owner = None

    def wait(self, timeout: float | None = None) -> bool:
        """Release the lock until another thread notifies this one."""
        depth, self._owner, self._depth, before = self._depth, None, 0, self._notified
        happened = False
        try:
            awaited = lambda: self._notified != before  # noqa: E731
            happened = self._world.wait(awaited, math.inf if timeout is None else timeout)
        finally:
            self._acquire(depth)
        return happened

    def wait_for(self, predicate: Callable[[], bool], timeout: float) -> bool:
        """Release the lock until the predicate is true."""
        deadline = self._world.monotonic() + timeout
        while not (is_true := predicate()) and (left := deadline - self._world.monotonic()) > 0:
            self.wait(left)
        return is_true

    def notify_all(self) -> None:
        """Wake all threads that wait."""
        self._notified += 1

    notify = notify_all

    def _acquire(self, depth: int) -> None:
        process = self._world.current
        if self._owner not in (None, process):
            self._world.wait(lambda: self._owner in (None, process))
        self._owner, self._depth = process, self._depth + depth


class MemoryQueue:
    """The methods of queue.Queue that the project uses."""

    def __init__(self, world: World, on_put: Callable[[Any], None], maxsize: int):
        self._world, self._maxsize, self._on_put, self._items = world, maxsize, on_put, deque[Any]()

    def put(self, item: Any) -> None:
        """Append an item; wait while the queue is full."""
        self._world.wait(lambda: len(self._items) < self._maxsize)
        self._on_put(item)
        self._items.append(item)

    def get(self, timeout: float) -> Any:
        """Remove and return the first item.

        Raises:
            Empty: There was none until the time-out.
        """
        if not self._world.wait(lambda: bool(self._items), timeout):
            raise Empty
        return self._items.popleft()

    def empty(self) -> bool:
        """Return whether there is no item."""
        return not self._items


def threads(world: World) -> SimpleNamespace:
    """Return what replaces the module `threading` in a module of the project."""
    primitives = {"Thread": MemoryThread, "Event": MemoryEvent, "Condition": MemoryCondition}
    return SimpleNamespace(**{name: partial(primitive, world) for name, primitive in primitives.items()})


def threads_in_memory(world: World, on_event: Callable[[Event], None]) -> dict[Any, dict[str, Any]]:
    """Return what is replaced in the modules of streams, by module and name."""
    memory = threads(world)
    return {
        lakehouse.streaming.stream: {"threading": memory, "Queue": partial(MemoryQueue, world, on_event)},
        lakehouse.streaming.publishers: {"threading": memory},
        lakehouse.streaming.scheduler: {"FILES_PER_COMPACTION": FILES_PER_COMPACTION},
    }
