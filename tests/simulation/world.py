"""The scheduler of a simulation: it decides which process runs, what time it is, and which call fails.

Each process is a greenlet. Every call to a system passes through `World.call`, where the process may lose the control,
the call may fail before or after its effect, its effect may happen after the process was refused, and the process may
be killed.
"""

from __future__ import annotations

import math
import re
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Executor, Future
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime, tzinfo
from types import SimpleNamespace
from typing import Any, TypeVar

import pyiceberg.table.metadata
import pyiceberg.table.update
from greenlet import getcurrent, greenlet
from pyiceberg.exceptions import CommitFailedException, NoSuchTableError
from pyiceberg.utils.concurrent import ExecutorFactory

import lakehouse.pipeline.batches.offsets
import lakehouse.pipeline.commits.audit
import lakehouse.pipeline.maintenance
import resources.iceberg.reservation
from tests.simulation.choices import Choices
from tests.simulation.threads import threads
from tests.support.replaceable import require_replaceable

T = TypeVar("T")

FAULTS = ("fail before", "fail after", "kill before", "kill after", "late", "delay", "clock")
"""Faults of a call: it raises an error without or after its effect; its process is killed before or after it; it raises
an error, and its effect happens later; its response takes minutes; the clock of its machine jumps."""

MISTAKES = (
    *(ArithmeticError, AssertionError, AttributeError, ImportError, LookupError, NameError, TypeError, ValueError),
    *(CommitFailedException, NoSuchTableError),
)
"""Errors with which no program ends, whatever the systems return: the project or the simulation has a defect."""

RANDOM = re.compile(
    r"(ingest|dry_run_\d+)_[0-9a-f]{12}|\bwarehouse\d+|\b\d{15,19}\b|\b[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}\b"
)
"""Names of branches and warehouses, and ids of snapshots and tables, which differ in each run."""

PAUSES = 20.0, 100.0
"""Seconds for which a process is paused; most calls take 0.1 s."""

BEGINNING = 1_800_000_000.0


class Killed(BaseException):
    """The process was killed. No code of the project catches it."""


@dataclass
class Machine:
    """The state that the threads of a program share.

    Attributes:
        skew: The difference of its clock in seconds.
        is_killed: Whether the program was killed, or its main thread has ended.
        frozen_until: Until when none of its threads runs.
    """

    skew: float = 0.0
    is_killed: bool = False
    frozen_until: float = 0.0


class Process:
    """A program, or one of its threads.

    Attributes:
        name: Its name in traces.
        machine: The machine on which it runs.
        is_thread: Whether it is a thread of a program, which continues after it.
        result: How it ended: an exception, or None.
        greenlet: Its stack.
    """

    def __init__(
        self, name: str, work: Callable[[], object], scheduler: greenlet, machine: Machine | None, is_thread: bool
    ):
        self.name, self.machine, self.is_thread = name, machine or Machine(), is_thread
        self.result: BaseException | None = None
        self.is_awaited: Callable[[], bool] | None = None
        self.deadline = self.paused_until = 0.0
        self._work = work
        self.greenlet = greenlet(self._run, scheduler)

    def is_ready(self, now: float) -> bool:
        """Return whether it is not paused, and does not wait, or what it waits for has happened."""
        if now < self._runs_from and not self.machine.is_killed:
            return False
        return self.is_awaited is None or self.machine.is_killed or self.deadline <= now or self.is_awaited()

    def next_at(self, now: float) -> float:
        """Return when it is ready at the latest, unless what it waits for happens before."""
        return self._runs_from if now < self._runs_from else self.deadline

    @property
    def _runs_from(self) -> float:
        return max(self.paused_until, self.machine.frozen_until)

    def _run(self) -> None:
        try:
            self._work()
        except (Exception, Killed) as error:
            self.result = error
        if not self.is_thread:
            self.machine.is_killed = True


class World:
    """The systems, processes, clock and faults of one schedule.

    Attributes:
        choices: Decides everything.
        events: What happened.
        covered: Number of occurrences by operation and fault.
        fault_percent: The probability of a fault per call.
        rare_factor: How much more probable it is for an operation that is called seldom.
        switch_percent: The probability that another process runs before a call.
        faults: The faults that occur.
        pause_percent: The probability that a process is paused before a call, while others run.
        interrupt_percent: The probability that the schedule is asked to act between two calls of a process.
        interrupted: The process between whose calls it is asked to act; None if it is not asked.
        processes: The processes that have not ended.
        current: The process that runs; None in the scheduler.
        mistake: An error of an oracle, which `step` raises: a program that calls it could catch it.
    """

    def __init__(self, choices: Choices):
        self.choices = choices
        self.events: list[str] = []
        self.covered: Counter[tuple[str, str]] = Counter()
        self.fault_percent = self.switch_percent = self.pause_percent = self.interrupt_percent = 0
        self.rare_factor = 1
        self.interrupted: Process | None = None
        self.faults: Sequence[str] = FAULTS
        self.processes: list[Process] = []
        self.current: Process | None = None
        self.mistake: Exception | None = None
        self._calls: Counter[str] = Counter()
        self._total_calls = 0
        self._names: dict[str, str] = {}
        self._now = BEGINNING
        self._scheduler = getcurrent()

    # Time

    def now(self) -> float:
        """Return the time that the clock of the present process's machine shows, in seconds since the epoch."""
        process = self.current
        return self._now + (process.machine.skew if process else 0.0)

    def monotonic(self) -> float:
        """Return the time without the skews of clocks, in seconds."""
        return self._now

    def advance(self, seconds: float) -> None:
        """Let time pass."""
        self._now += seconds

    # Processes

    def start(self, name: str, work: Callable[[], object]) -> Process:
        """Start a program on a machine of its own."""
        return self._start(name, work, None)

    def start_thread(self, name: str, work: Callable[[], object]) -> Process:
        """Start a thread of the present program."""
        assert self.current is not None
        return self._start(f"{self.current.name} {name}", work, self.current.machine)

    def _start(self, name: str, work: Callable[[], object], machine: Machine | None) -> Process:
        process = Process(name, work, self._scheduler, machine, machine is not None)
        self.processes.append(process)
        return process

    def wait(self, is_awaited: Callable[[], bool], seconds: float = math.inf) -> bool:
        """Suspend the present thread until something has happened.

        Args:
            is_awaited: Returns whether it has happened.
            seconds: The maximum time to wait.

        Returns:
            Whether it has happened.
        """
        process, deadline = self.current, self._now + seconds
        assert process is not None
        while not (happened := is_awaited()) and self._now < deadline:
            process.is_awaited, process.deadline = is_awaited, deadline
            self._suspend(process)
        process.is_awaited = None
        return happened

    def ready(self) -> list[Process]:
        """Return the processes that can run; if all wait, time passes until the first one need not.

        Raises:
            AssertionError: They wait for each other.
        """
        if not (ready := [process for process in self.processes if process.is_ready(self._now)]):
            self._now = min((process.next_at(self._now) for process in self.processes), default=self._now)
            assert self._now < math.inf, "the processes wait for each other"
            ready = [process for process in self.processes if process.is_ready(self._now)]
        return ready

    def step(self, process: Process) -> None:
        """Run a process until it passes the control on, or ends."""
        self.current = process
        process.greenlet.switch()
        self.current = None
        if self.mistake:
            raise self.mistake
        if process.greenlet.dead:
            self.processes.remove(process)
            if process.result is not None:
                self.record(f"{process.name} ended: {_short(process.result)}")
                is_killed = isinstance(process.result, Killed)
                if isinstance(process.result, MISTAKES) or (process.is_thread and not is_killed):
                    raise process.result

    def judge(self, oracle: Callable[..., None], *observed: Any) -> None:
        """Call an oracle inside of a call to a system."""
        try:
            oracle(*observed)
        except Exception as error:
            self.mistake = error
            if not self.current:
                raise

    def end_pauses(self) -> None:
        """Pause no process any more."""
        self.pause_percent = 0
        for process in self.processes:
            process.paused_until = process.machine.frozen_until = 0.0

    def record(self, event: str) -> None:
        """Add an event to the trace."""
        self.events.append(event)

    @property
    def trace(self) -> list[str]:
        """The events, one line each, with short names for what has another name in each run."""
        return [self.named(event)[:200] for event in self.events]

    def named(self, text: str) -> str:
        """Return a text with short names for branches, snapshots and tables."""
        return RANDOM.sub(lambda name: self._names.setdefault(name[0], f"#{len(self._names)}"), text)

    # Calls

    def call(self, operation: str, effect: Callable[[], T], error: Callable[[str], Exception]) -> T:
        """Perform a call to a system, as the schedule decides.

        Args:
            operation: Its name, such as `catalog.commit`.
            effect: What it does.
            error: Returns the error that the client raises if the system does not answer.
        """
        process = self.current
        if process is None:
            return effect()
        self._pass_on(process, self.switch_percent)
        if self.pause_percent and self.choices.happens(self.pause_percent):
            process.paused_until = self._now + self.choices.of(PAUSES)
            self._suspend(process)
        if self.interrupt_percent and self.choices.happens(self.interrupt_percent):
            self.interrupted = process
            self._suspend(process)
        percent = self.fault_percent
        if self.rare_factor > 1:
            self._calls[operation] += 1
            self._total_calls += 1
            # The operation has less than a hundredth of all calls.
            percent *= self.rare_factor if self._calls[operation] * 100 <= self._total_calls else 1
        fault = self.choices.of(self.faults) if self.choices.happens(percent) else ""
        self.covered[operation, fault or "none"] += 1
        self.record(f"{process.name}: {operation}{f' [{fault}]' if fault else ''}")
        self.advance(0.1)
        if not fault:
            return effect()
        match fault:
            case "fail before":
                raise error("the request was lost")
            case "kill before":
                self._kill(process)
            case "late":
                self.start(f"late {operation}", lambda: _ignore_errors(effect))
                raise error("the request timed out")
            case "clock":
                process.machine.skew += self.choices.of((-20.0, 20.0, -3600.0, 40.0))
        result = effect()
        match fault:
            case "fail after":
                raise error("the response was lost")
            case "kill after":
                self._kill(process)
            case "delay":
                self.advance(self.choices.of((60.0, 7200.0, 200_000.0)))
                self._pass_on(process, 100)
        return result

    def _pass_on(self, process: Process, percent: int) -> None:
        if process.machine.is_killed:
            raise Killed
        if self.choices.happens(percent):
            self._suspend(process)

    def _suspend(self, process: Process) -> None:
        self._scheduler.switch()
        if process.machine.is_killed:
            raise Killed

    def _kill(self, process: Process) -> None:
        process.machine.is_killed = True
        raise Killed


def _ignore_errors(effect: Callable[[], object]) -> None:
    with suppress(Exception):
        effect()


def _short(error: BaseException) -> str:
    return f"{type(error).__name__} {error}".strip()


class InlineExecutor(Executor):
    """A pool without threads, since the scheduler owns all of them."""

    def __init__(self, max_workers: int):
        pass

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        """Run a function."""
        future: Future[Any] = Future()
        future.set_result(fn(*args, **kwargs))
        return future

    def map(self, fn: Callable[..., Any], *iterables: Iterable[Any], **limits: Any) -> Iterator[Any]:
        """Run a function for each element."""
        return map(fn, *iterables)


@contextmanager
def simulated_time(world: World) -> Iterator[None]:
    """Let the project and pyiceberg read the simulated clock."""

    class SimulatedDatetime(datetime):
        @classmethod
        def now(cls, tz: tzinfo | None = None) -> datetime:  # type: ignore[override]
            return datetime.fromtimestamp(world.now(), tz or UTC)

    clock: dict[Any, dict[str, Any]] = {
        time: {
            "time": world.now,
            "time_ns": lambda: int(world.now() * 1e9),
            "monotonic": world.monotonic,
            "sleep": world.advance,
        },
        pyiceberg.table.update: {"datetime": SimulatedDatetime},
        pyiceberg.table.metadata: {"datetime": SimpleNamespace(datetime=SimulatedDatetime)},
        lakehouse.pipeline.commits.audit: {"ThreadPoolExecutor": InlineExecutor},
        ExecutorFactory: {"get_or_create": lambda: InlineExecutor(1)},
        lakehouse.pipeline.maintenance: {"datetime": SimulatedDatetime},
        resources.iceberg.reservation: {"threading": threads(world)},
        lakehouse.pipeline.batches.offsets: {"datetime": SimulatedDatetime},
    }
    with replaced(clock):
        yield


@contextmanager
def replaced(names: dict[Any, dict[str, Any]]) -> Iterator[None]:
    """Replace names of modules and classes, or remove them, so that they are inherited."""
    for owner, values in names.items():
        for name in values:
            require_replaceable(owner, name)
    before = {owner: {name: vars(owner).get(name, INHERITED) for name in values} for owner, values in names.items()}
    try:
        _set(names)
        yield
    finally:
        _set(before)


def _set(names: dict[Any, dict[str, Any]]) -> None:
    for owner, values in names.items():
        for name, value in values.items():
            if value is not INHERITED:
                setattr(owner, name, value)
            elif name in vars(owner):
                delattr(owner, name)


INHERITED = object()
"""The value of a name that a module or class does not have itself."""
