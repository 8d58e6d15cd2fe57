"""Time to load the definitions of many topics, as in Dagster's code server. No server is needed.

    python benchmarks/definitions.py --topics 1000

Each round is a separate process. The time of Python's imports, which is independent of the topics, is not included.
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
    """Load generated topics and print the median time."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--topics", type=int, default=1_000)
    parser.add_argument("--rounds", type=int, default=5)
    arguments = parser.parse_args()
    environments = yaml.safe_load(loader.config_path().read_text())["environments"]
    topics = {f"topic_{number}": {"key": "id"} for number in range(arguments.topics)}
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, "lakehouse.yaml")
        file.write_text(yaml.safe_dump({"namespace": "many", "topics": topics, "environments": environments}))
        environment = {**os.environ, "LAKEHOUSE_CONFIG": str(file), "PYTHONWARNINGS": "ignore"}
        seconds = []
        for _ in range(arguments.rounds):
            loaded = subprocess.run([sys.executable, "-c", LOAD], env=environment, capture_output=True, check=True)
            load_seconds, assets, checks = loaded.stdout.split()
            seconds.append(float(load_seconds))
    spread = f"{min(seconds):.1f} to {max(seconds):.1f} s"
    counts = f"{arguments.topics:,} topics, {int(assets):,} assets, {int(checks):,} checks"
    print(f"{counts}: {statistics.median(seconds):.1f} s ({spread})")


if __name__ == "__main__":
    main()
