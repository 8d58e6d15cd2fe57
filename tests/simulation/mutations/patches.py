"""The patches, in a folder for the kind of schedule that finds them, and copies of the project with one applied."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

PROJECT = Path(__file__).parents[3]
PATCHES = sorted(Path(__file__).parent.glob("*/*.patch"))
FOLDERS = "assets", "lakehouse", "resources", "spark", "tests"


def mutated_copy(patch: Path, folder: Path) -> Path:
    """Copy what the simulation runs to a folder, apply a patch there, and return the copy.

    Raises:
        subprocess.CalledProcessError: The patch does not apply.
    """
    copy = folder / "copy"
    for name in FOLDERS:
        shutil.copytree(PROJECT / name, copy / name, ignore=shutil.ignore_patterns("__pycache__"))
    subprocess.run(["git", "apply", str(patch)], cwd=copy, check=True)
    return copy
