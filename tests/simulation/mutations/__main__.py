"""Report the seeds until the simulation finds mutations: `python -m tests.simulation.mutations [SEEDS [NAME …]]`."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

from tests.simulation.mutations.patches import PATCHES, PROJECT, mutated_copy

SIMULATE = sys.executable, "-m", "tests.simulation.simulate"


def search(patch: Path, seeds: int) -> str:
    """Return the first seed below `seeds` that finds a mutation, with the broken promise; `none` if none does."""
    with TemporaryDirectory() as folder:
        copy = mutated_copy(patch, Path(folder))
        command = [*SIMULATE, "--until-violation", str(seeds), patch.parent.name]
        return subprocess.run(command, cwd=copy, capture_output=True, check=True, text=True).stdout.strip()


def fails_unchanged(seed: str, kind: str) -> bool:
    """Return whether a seed breaks a promise of the project without a mutation, too."""
    return subprocess.run([*SIMULATE, "1", seed, kind], cwd=PROJECT, capture_output=True, check=False).returncode != 0


def main(arguments: Sequence[str]) -> int:
    """Search each mutation, and return 1 if one was not found."""
    seeds = int(arguments[0]) if arguments else 10_000
    missed = 0
    names = arguments[1:] or [patch.stem for patch in PATCHES]
    for patch in (patch for patch in PATCHES if patch.stem in names):
        seed, _, violation = search(patch, seeds).partition(" ")
        is_found = seed != "none" and not fails_unchanged(seed, patch.parent.name)
        missed += not is_found
        if is_found:
            result = f"found after {int(seed) + 1:,} seeds: {violation}"
        elif violation:
            result = f"not searched after seed {seed}, which fails without the mutation: {violation}"
        else:
            result = f"not found in {seeds:,} seeds"
        print(f"{patch.parent.name} {patch.stem}: {result}", flush=True)
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
