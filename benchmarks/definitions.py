"""Seconds in which the definitions of many topics load, as Dagster's code server does it; nothing has to run.

    python benchmarks/definitions.py --topics 1000

Each round is a process of its own. What Python needs to import comes on top, once for any number of topics.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

import yaml

from lakehouse.config import loader

LOAD = """
import time
from lakehouse.definitions import defs
began = time.monotonic()
graph = defs().get_repository_def().asset_graph
print(time.monotonic() - began, len(graph.get_all_asset_keys()), len(graph.asset_check_keys))
"""


def main() -> None:
    """Declare topics, load them, print the median."""
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--topics", type=int, default=1_000)
    arguments.add_argument("--rounds", type=int, default=5)
    given = arguments.parse_args()
    environments = yaml.safe_load(loader.config_path().read_text())["environments"]
    topics = {f"topic_{number}": {"key": "id"} for number in range(given.topics)}
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, "lakehouse.yaml")
        file.write_text(yaml.safe_dump({"namespace": "many", "topics": topics, "environments": environments}))
        environment = {**os.environ, "LAKEHOUSE_CONFIG": str(file), "PYTHONWARNINGS": "ignore"}
        seconds = []
        for _ in range(given.rounds):
            loaded = subprocess.run([sys.executable, "-c", LOAD], env=environment, capture_output=True, check=True)
            took, assets, checks = loaded.stdout.split()
            seconds.append(float(took))
    spread = f"{min(seconds):.1f} to {max(seconds):.1f} s"
    said = f"{given.topics:,} topics, {int(assets):,} assets, {int(checks):,} checks"
    print(f"{said}: {statistics.median(seconds):.1f} s ({spread})")


if __name__ == "__main__":
    main()
