"""What becomes of tables, memory and lag while `lakehouse stream` takes a steady rate for an hour; a line a minute.

    lakehouse up --only kafka --only registry --only s3 --only aws --only spark --only snowflake
    python benchmarks/soak.py --rate 5000 --topics 5 --minutes 60

At the end the stream is given time to take what is left, and is ended; then each table is read by itself: every offset
of every partition must be there, once. What was seen is written to `benchmarks/results/`, with curves as SVG.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import threading
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import psutil
from latency import PARTITIONS, own_catalog, prepared, produce, streaming
from peers import plots

from lakehouse.cli.systems import connected
from lakehouse.config import loader
from lakehouse.core import polling
from lakehouse.local import stack
from lakehouse.local.home import Home
from lakehouse.pipeline.maintenance import size

MINUTE = 60
LEFT_SECONDS = 300
"""How long the stream may take for what is left when nothing comes any more."""


@dataclass(frozen=True)
class Seen:
    """One look at everything: of tables the largest, or all together where it says so."""

    minute: float
    records: int
    """In all topics so far."""
    behind: int
    """Of those, not in the tables."""
    data_files: int
    snapshots: int
    manifests: int
    metadata_kb: float
    file_kb: float
    """Mean size of all tables' data files."""
    stream_mb: float
    spark_mb: float


def main() -> None:
    """Stream, look, verify, draw."""
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--rate", type=float, default=5_000, help="records a second, of all topics together")
    arguments.add_argument("--topics", type=int, default=5)
    arguments.add_argument("--minutes", type=float, default=60)
    arguments.add_argument("--results", type=Path, default=Path(__file__).parent / "results")
    given = arguments.parse_args()
    namespace = f"soak_{time.time_ns()}"
    topics = [f"{namespace}_{n}" for n in range(given.topics)]
    seen: list[Seen] = []
    with connected(loader.load()) as systems, tempfile.TemporaryDirectory() as folder:
        pool = prepared(systems, topics)
        with streaming(Path(folder), namespace, topics) as stream:
            seconds = given.minutes * MINUTE
            work = threading.Thread(target=produce, args=(systems, topics, pool, given.rate, seconds))
            began = time.monotonic()
            work.start()
            while work.is_alive():
                work.join(MINUTE)
                seen.append(look(systems, namespace, topics, stream.pid, (time.monotonic() - began) / MINUTE))
                print(told(seen[-1]), flush=True)
            polling.poll(
                lambda: not look(systems, namespace, topics, stream.pid, 0).behind,
                pause=1,
                deadline_seconds=LEFT_SECONDS,
            )
        for topic in topics:
            print(verified(systems, namespace, topic), flush=True)
    given.results.mkdir(exist_ok=True)
    (given.results / "soak.json").write_text(json.dumps([asdict(one) for one in seen], indent=1) + "\n")
    minutes = [one.minute for one in seen]
    for name, title in CURVES.items():
        curve = plots.curve(title, "minutes", minutes, [getattr(one, name) for one in seen])
        (given.results / f"soak_{name}.svg").write_text(curve)


CURVES = {
    "data_files": "Data files, of the table with most",
    "metadata_kb": "KB of metadata, of the table with most",
    "behind": "Records that wait, of all topics",
}


def look(systems: Any, namespace: str, topics: list[str], stream: int, minute: float) -> Seen:
    """What there is now. Parameters: `stream` is the process that streams."""
    catalog = own_catalog()
    held = [name for name in topics if catalog.table_exists((namespace, name))]
    tables = [catalog.load_table((namespace, name)) for name in held]
    sizes = [size(table) for table in tables if table.current_snapshot()]
    rows = sum(int(table.current_snapshot().summary["total-records"]) for table in tables if table.current_snapshot())
    # Asked after the tables: what came in between waits, too.
    offsets = systems.kafka.offsets(topics)
    there = sum(o.end for topic in topics for o in offsets[topic].values())
    files = sum(one.data_files for one in sizes)
    spark = next(server.resident_bytes for server in stack.status(Home.default()) if server.name == "spark")
    return Seen(
        round(minute, 1),
        there,
        there - rows,
        max((one.data_files for one in sizes), default=0),
        max((one.snapshots for one in sizes), default=0),
        max((one.manifests for one in sizes), default=0),
        round(max((len(t.io.new_input(t.metadata_location)) / 1e3 for t in tables), default=0)),
        round(sum(one.data_bytes for one in sizes) / max(files, 1) / 1e3),
        round(psutil.Process(stream).memory_info().rss / 1e6),
        round(spark / 1e6),
    )


def told(seen: Seen) -> str:
    """A look as a line."""
    return "  ".join(f"{name} {value:,}" for name, value in asdict(seen).items())


def verified(systems: Any, namespace: str, topic: str) -> str:
    """Compare a table with its topic's offsets, partition by partition.

    Raises: AssertionError when an offset is missing or there twice.
    """
    rows = own_catalog().load_table((namespace, topic)).scan(selected_fields=("kafka_partition", "kafka_offset"))
    table = rows.to_arrow()
    partition, offset = table["kafka_partition"].to_numpy(), table["kafka_offset"].to_numpy()
    ends = systems.kafka.offsets([topic])[topic]
    for number in range(PARTITIONS):
        there = np.sort(offset[partition == number])
        assert np.array_equal(there, np.arange(ends[number].end)), f"{topic}-{number}: not every offset, once"
    return f"{topic}: {len(offset):,} rows, every offset once"


if __name__ == "__main__":
    main()
