"""Run many schedules on all cores, and report: `python -m tests.simulation.simulate SEEDS FIRST KIND`."""

from __future__ import annotations

import gc
import math
import os
import signal
import sys
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from multiprocessing import get_context
from multiprocessing.pool import Pool

from tests.simulation.choices import Choices, shrink
from tests.simulation.kinds import KINDS
from tests.simulation.schedules.schedule import Outcome, run, simulation
from tests.simulation.world import FAULTS

BLOCK = 5
"""Number of schedules per task of a worker: at the end, the other workers wait for one task."""

BLOCKS = 200
"""Number of tasks of a worker, which collects no garbage: it has 0.7 MB per schedule, and ends instead."""

SHOWN = 20
"""Number of missing pairs in the report."""

PROGRESS_SECONDS = 10
"""Seconds between two reports of the progress."""

MAX_SECONDS = 60
"""CPU time in seconds after which a schedule is called endless; the longest take two."""

_entered: list[ExitStack] = []

Task = tuple[str, Sequence[int]]
"""A kind of schedule and seeds."""


class Endless(BaseException):
    """A schedule does not end. No code of the project catches it."""


@dataclass
class Result:
    """The result of some schedules of a kind.

    Attributes:
        schedules: Their number.
        violations: The broken promises by seed.
        covered: Number of calls by operation and fault.
        seconds: CPU time.
    """

    schedules: int = 0
    violations: dict[int, str] = field(default_factory=dict)
    covered: Counter[tuple[str, str]] = field(default_factory=Counter)
    seconds: float = 0

    def add(self, other: Result) -> None:
        """Add the result of other schedules."""
        self.schedules += other.schedules
        self.violations |= other.violations
        self.covered += other.covered
        self.seconds += other.seconds

    @property
    def faults(self) -> int:
        """Number of faults."""
        return sum(count for (_, fault), count in self.covered.items() if fault != "none")


def run_block(task: Task) -> tuple[str, Result]:
    """Run the schedules of a task."""
    kind, seeds = task
    result, began = Result(len(seeds)), time.process_time()
    signal.signal(signal.SIGVTALRM, _end)
    for seed in seeds:
        signal.setitimer(signal.ITIMER_VIRTUAL, MAX_SECONDS)
        try:
            outcome = run(Choices(seed), KINDS[kind])
        except Endless:
            result.violations[seed] = f"the schedule does not end within {MAX_SECONDS} s of CPU time"
            continue
        result.covered.update(outcome.world.covered)
        if outcome.violation:
            result.violations[seed] = outcome.violation
    signal.setitimer(signal.ITIMER_VIRTUAL, 0)
    result.seconds = time.process_time() - began
    return kind, result


def workers() -> Pool:
    """Return a process for each core, which begins with all modules and with results that do not change."""
    with simulation():
        for schedule in KINDS.values():
            run(Choices(0), schedule)
    return get_context("fork").Pool(os.cpu_count(), _begin, maxtasksperchild=BLOCKS)


def _begin() -> None:
    gc.disable()
    # For the life of the worker.
    _entered.append(simulation())


def _end(*_: object) -> None:
    raise Endless


def tasks(kinds: Sequence[str], first: int, count: int) -> Iterator[Task]:
    """Yield the tasks for `count` seeds of each kind."""
    for start in range(first, first + count, BLOCK):
        for kind in kinds:
            yield kind, range(start, min(start + BLOCK, first + count))


def shrunk(kind: str, seed: int) -> Outcome:
    """Return the simplest schedule that breaks the same promise as that of a seed."""
    schedule = KINDS[kind]
    with simulation():
        outcome = run(Choices(seed), schedule)
        promise = outcome.violation[:20]
        breaks = lambda drawn: run(Choices(None, drawn), schedule).violation[:20] == promise  # noqa: E731
        return run(Choices(None, shrink(outcome.drawn, breaks)), schedule)


def first_violation(kind: str, count: int) -> tuple[int, str] | None:
    """Return the first seed below `count` whose schedule breaks a promise, with the promise; None if there is none."""
    with workers() as pool:
        for _, result in pool.imap(run_block, tasks([kind], 0, count)):
            if result.violations:
                return min(result.violations.items())
    return None


def report(results: dict[str, Result], seconds: float) -> None:
    """Print the speed, and what was covered.

    Args:
        results: The results by kind.
        seconds: The elapsed time.
    """
    total = Result()
    for kind, result in results.items():
        calls = sum(result.covered.values())
        print(
            f"{kind}: {result.schedules:,} schedules, {result.seconds / result.schedules * 1000:.1f} ms of CPU time, "
            f"{calls / result.schedules:.0f} calls and {result.faults / result.schedules:.1f} faults each"
        )
        total.add(result)
    calls = sum(total.covered.values())
    speed = (
        f"{total.schedules / seconds:,.1f} schedules, {calls / seconds:,.0f} calls and {total.faults / seconds:,.0f}"
    )
    print(f"{total.schedules:,} schedules in {seconds:,.0f} s on {os.cpu_count()} cores: {speed} faults per second")
    operations = sorted({operation for operation, _ in total.covered})
    print(f"{'operation':32}" + "".join(f"{fault:>12}" for fault in ("none", *FAULTS)))
    for operation in operations:
        print(f"{operation:32}" + "".join(f"{total.covered[operation, fault]:12,}" for fault in ("none", *FAULTS)))
    missing = [f"{o} + {fault}" for o in operations for fault in FAULTS if not total.covered[o, fault]]
    shown = ", ".join(missing[:SHOWN]) + (", …" if len(missing) > SHOWN else "")
    covered = len(operations) * len(FAULTS) - len(missing)
    print(f"Pairs of operation and fault: {covered} covered, {len(missing)} missing: {shown or 'none'}")
    print("Not covered by any schedule: see tests/simulation/README.md, What it cannot show")


def simulate(kinds: Sequence[str], first: int, count: int) -> int:
    """Run schedules, print the report, and return 1 if a promise was broken."""
    results = {kind: Result() for kind in kinds}
    with workers() as pool:
        began = reported = time.monotonic()
        for kind, result in pool.imap_unordered(run_block, tasks(kinds, first, count)):
            results[kind].add(result)
            for seed, violation in result.violations.items():
                print(f"{kind}, seed {seed}: {violation}", file=sys.stderr, flush=True)
            if time.monotonic() - reported >= PROGRESS_SECONDS:
                reported = time.monotonic()
                finished = sum(one.schedules for one in results.values())
                failed = sum(len(one.violations) for one in results.values())
                print(f"{finished:,} of {count * len(kinds):,} schedules, {failed} failed", file=sys.stderr, flush=True)
    report(results, time.monotonic() - began)
    failures = [(kind, seed, text) for kind in kinds for seed, text in sorted(results[kind].violations.items())]
    for kind, seed, violation in failures[:10]:
        print(f"\n{kind}, seed {seed}: {violation}")
    if failures:
        kind, seed, _ = failures[0]
        print(f"\n{len(failures)} schedules failed. The simplest schedule of {kind} for seed {seed}:")
        print("\n".join(shrunk(kind, seed).world.trace))
    return 1 if failures else 0


def main(arguments: Sequence[str]) -> int:
    """Run what the arguments name, and return the exit code."""
    match arguments:
        case ["--trace", seed, kind]:
            with simulation():
                print("\n".join(run(Choices(int(seed)), KINDS[kind]).world.trace))
            return 0
        case ["--until-violation", seeds, kind]:
            violation = first_violation(kind, int(seeds))
            print(f"{violation[0]} {violation[1]}" if violation else "none")
            return 0
        case [seeds, first, "all"]:
            return simulate(list(KINDS), int(first), math.ceil(int(seeds) / len(KINDS)))
        case [seeds, first, kind]:
            return simulate([kind], int(first), int(seeds))
    print(__doc__)
    return 2


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
