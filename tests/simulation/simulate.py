"""Run many schedules on all cores, and report: `python -m tests.simulation.simulate SEEDS [FIRST [KIND]]`."""

from __future__ import annotations

import os
import sys
import time
from collections import Counter
from collections.abc import Sequence
from functools import partial
from multiprocessing import get_context

from tests.simulation.choices import Choices, shrink
from tests.simulation.kinds import KINDS
from tests.simulation.schedule import Outcome, run, simulation
from tests.simulation.world import FAULTS

BLOCK = 20
"""Number of schedules per task of a worker."""


def run_block(kind: str, seeds: Sequence[int]) -> tuple[dict[int, str], Counter[tuple[str, str]]]:
    """Run the schedules of a kind for some seeds, and return the violations by seed, and what was covered."""
    violations, covered = {}, Counter[tuple[str, str]]()
    with simulation():
        for seed in seeds:
            outcome = run(Choices(seed), KINDS[kind])
            covered += outcome.world.covered
            if outcome.violation:
                violations[seed] = outcome.violation
    return violations, covered


def shrunk(kind: str, seed: int) -> Outcome:
    """Return the simplest schedule that breaks the same promise as that of a seed."""
    schedule = KINDS[kind]
    with simulation():
        outcome = run(Choices(seed), schedule)
        promise = outcome.violation[:20]
        breaks = lambda drawn: run(Choices(None, drawn), schedule).violation[:20] == promise  # noqa: E731
        return run(Choices(None, shrink(outcome.drawn, breaks)), schedule)


def first_violation(count: int) -> tuple[int, str] | None:
    """Return the first seed below `count` whose schedule breaks a promise, with the promise; None if there is none."""
    blocks = [range(start, min(start + BLOCK, count)) for start in range(0, count, BLOCK)]
    with get_context("spawn").Pool(os.cpu_count()) as pool:
        for violations, _ in pool.imap(partial(run_block, "ingestion"), blocks):
            if violations:
                return min(violations.items())
    return None


def main(arguments: Sequence[str]) -> int:
    """Run schedules, print the report, and return 1 if a promise was broken."""
    if arguments[0] == "--trace":
        with simulation():
            kind = arguments[2] if len(arguments) > 2 else "ingestion"
            print("\n".join(run(Choices(int(arguments[1])), KINDS[kind]).world.trace))
        return 0
    if arguments[0] == "--until-violation":
        violation = first_violation(int(arguments[1]))
        print(f"{violation[0]} {violation[1]}" if violation else "none")
        return 0
    count, first = int(arguments[0]), int(arguments[1]) if len(arguments) > 1 else 0
    kind = arguments[2] if len(arguments) > 2 else "ingestion"
    blocks = [range(start, min(start + BLOCK, first + count)) for start in range(first, first + count, BLOCK)]
    violations: dict[int, str] = {}
    covered: Counter[tuple[str, str]] = Counter()
    began = time.monotonic()
    with get_context("spawn").Pool(os.cpu_count()) as pool:
        for violations_of_block, pairs in pool.imap_unordered(partial(run_block, kind), blocks):
            violations |= violations_of_block
            covered += pairs
    seconds = time.monotonic() - began
    operations = sorted({operation for operation, _ in covered})
    speed = f"{count / seconds:,.1f} per second on {os.cpu_count()} cores"
    print(f"{count:,} schedules of {kind} in {seconds:,.0f} s: {speed}")
    print(f"{'operation':32}" + "".join(f"{fault:>12}" for fault in ("none", *FAULTS)))
    for operation in operations:
        print(f"{operation:32}" + "".join(f"{covered[operation, fault]:12,}" for fault in ("none", *FAULTS)))
    missing = [f"{o} + {fault}" for o in operations for fault in FAULTS if not covered[o, fault]]
    print(f"Pairs of operation and fault: {len(operations) * len(FAULTS) - len(missing)}, missing: {missing or 'none'}")
    print("Not covered by any schedule: see tests/simulation/README.md, What it cannot show")
    for seed, violation in sorted(violations.items())[:10]:
        print(f"\nseed {seed}: {violation}")
    if violations:
        seed = min(violations)
        outcome = shrunk(kind, seed)
        print(f"\n{len(violations)} of {count} schedules failed. The simplest schedule for seed {seed}:")
        print("\n".join(outcome.world.trace))
    return 1 if violations else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
