"""Time to load the definitions of many topics, as in Dagster's code server. No server is needed.

    python benchmarks/definitions.py --topics 1000
    python benchmarks/definitions.py --against ../other-checkout

With another checkout, both builds load the same topics in turn, each in its own environment. Each round is a separate
process. The time of Python's imports, which is independent of the topics, is not included.
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
from builds import print_comparison, python_of

from lakehouse.config.discovery import config_path
from tools.repository import PROJECT

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
    parser.add_argument("--against", type=Path, metavar="CHECKOUT", help="another build, which has a .venv")
    arguments = parser.parse_args()
    builds = {"this": (Path(sys.executable), PROJECT)}
    if arguments.against:
        checkout = arguments.against.resolve()
        builds["other"] = python_of(checkout), checkout
    environments = yaml.safe_load(config_path().read_text())["environments"]
    topics = {f"topic_{number}": {"key": "id"} for number in range(arguments.topics)}
    seconds: dict[str, list[float]] = {name: [] for name in builds}
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, "lakehouse.yaml")
        file.write_text(yaml.safe_dump({"namespace": "many", "topics": topics, "environments": environments}))
        environment = {**os.environ, "LAKEHOUSE_CONFIG": str(file), "PYTHONWARNINGS": "ignore"}
        for number in range(arguments.rounds):
            for name in list(builds)[:: -1 if number % 2 else 1]:
                python, project = builds[name]
                command = [str(python), "-P", "-c", LOAD]
                loaded = subprocess.run(command, env=environment, cwd=project, capture_output=True, check=True)
                load_seconds, assets, checks = loaded.stdout.split()
                seconds[name].append(float(load_seconds))
    print(f"{arguments.topics:,} topics, {int(assets):,} assets, {int(checks):,} checks")
    if arguments.against:
        print_comparison("s", {"definitions": seconds}, checkout)
    else:
        low, middle, high = min(seconds["this"]), statistics.median(seconds["this"]), max(seconds["this"])
        print(f"{middle:.1f} s ({low:.1f} to {high:.1f} s)")


if __name__ == "__main__":
    main()
