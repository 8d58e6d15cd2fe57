"""Report the seeds until the simulation finds mutations: `python -m tests.simulation.mutations [SEEDS [NAME …]]`."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

from tests.simulation.mutations.patches import PATCHES, mutated_copy


def search(patch: Path, seeds: int) -> str:
    """Return the first seed below `seeds` that finds a mutation, with the broken promise; `none` if none does."""
    with TemporaryDirectory() as folder:
        copy = mutated_copy(patch, Path(folder))
        command = [sys.executable, "-m", "tests.simulation.simulate", "--until-violation", str(seeds)]
        command += [patch.parent.name]
        return subprocess.run(command, cwd=copy, capture_output=True, check=True, text=True).stdout.strip()


def main(arguments: Sequence[str]) -> int:
    """Search each mutation, and return 1 if one was not found."""
    seeds = int(arguments[0]) if arguments else 10_000
    missed = 0
    names = arguments[1:] or [patch.stem for patch in PATCHES]
    for patch in (patch for patch in PATCHES if patch.stem in names):
        seed, _, violation = search(patch, seeds).partition(" ")
        is_missed = seed == "none"
        missed += is_missed
        result = f"not found in {seeds:,} seeds" if is_missed else f"found after {int(seed) + 1:,} seeds: {violation}"
        print(f"{patch.parent.name} {patch.stem}: {result}", flush=True)
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
