"""Tables, memory and lag while `lakehouse stream` ingests at a constant rate for an hour, one line per minute.

    lakehouse up --only kafka --only registry --only s3 --only aws --only spark --only snowflake
    python benchmarks/soak.py --rate 5000 --topics 5 --minutes 60

At the end the stream gets time to catch up and is stopped. Then each table is read to verify that it contains every
offset of every partition exactly once. Measurements are written to `benchmarks/results/`, with curves as SVG.
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
from latency import PARTITIONS, prepared, produce, pyiceberg_catalog, streaming
from peers import plots

from lakehouse.cli.systems import open_clients
from lakehouse.config import loader
from lakehouse.core import polling
from lakehouse.local import stack
from lakehouse.local.home import Home
from lakehouse.pipeline.maintenance import size

MINUTE = 60
CATCH_UP_SECONDS = 300
"""Maximum time of the stream to catch up after the last record."""


@dataclass(frozen=True)
class Measurement:
    """One measurement, with the largest value of all tables unless stated otherwise."""

    minute: float
    records: int
    """Records in all topics."""
    behind: int
    """Records that are not yet in the tables."""
    data_files: int
    snapshots: int
    manifests: int
    metadata_kb: float
    file_kb: float
    """Mean size of all tables' data files."""
    stream_mb: float
    spark_mb: float


def main() -> None:
    """Stream and measure, verify the tables, and write the results."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rate", type=float, default=5_000, help="records per second, of all topics together")
    parser.add_argument("--topics", type=int, default=5)
    parser.add_argument("--minutes", type=float, default=60)
    parser.add_argument("--results", type=Path, default=Path(__file__).parent / "results")
    arguments = parser.parse_args()
    namespace = f"soak_{time.time_ns()}"
    topics = [f"{namespace}_{n}" for n in range(arguments.topics)]
    measurements: list[Measurement] = []
    with open_clients(loader.load()) as systems, tempfile.TemporaryDirectory() as folder:
        pool = prepared(systems, topics)
        with streaming(Path(folder), namespace, topics) as stream:
            seconds = arguments.minutes * MINUTE
            work = threading.Thread(target=produce, args=(systems, topics, pool, arguments.rate, seconds))
            began = time.monotonic()
            work.start()
            while work.is_alive():
                work.join(MINUTE)
                measurements.append(
                    measure(systems, namespace, topics, stream.pid, (time.monotonic() - began) / MINUTE)
                )
                print(line(measurements[-1]), flush=True)
            polling.poll(
                lambda: not measure(systems, namespace, topics, stream.pid, 0).behind,
                pause=1,
                deadline_seconds=CATCH_UP_SECONDS,
            )
        for topic in topics:
            print(verified(systems, namespace, topic), flush=True)
    arguments.results.mkdir(exist_ok=True)
    (arguments.results / "soak.json").write_text(
        json.dumps([asdict(measurement) for measurement in measurements], indent=1) + "\n"
    )
    minutes = [measurement.minute for measurement in measurements]
    for name, title in CURVES.items():
        curve = plots.curve(title, "minutes", minutes, [getattr(measurement, name) for measurement in measurements])
        (arguments.results / f"soak_{name}.svg").write_text(curve)


CURVES = {
    "data_files": "Data files of the largest table",
    "metadata_kb": "KB of metadata of the largest table",
    "behind": "Lag of all topics in records",
}


def measure(systems: Any, namespace: str, topics: list[str], stream: int, minute: float) -> Measurement:
    """Measure the tables, the topics and the processes.

    Args:
        systems: The connected systems.
        namespace: The namespace of the tables.
        topics: The names of the topics and tables.
        stream: The id of the process of the stream.
        minute: The time of the measurement.
    """
    catalog = pyiceberg_catalog()
    tables = [catalog.load_table((namespace, name)) for name in topics if catalog.table_exists((namespace, name))]
    sizes = [size(table) for table in tables if table.current_snapshot()]
    rows = sum(int(table.current_snapshot().summary["total-records"]) for table in tables if table.current_snapshot())
    # Read after the tables, so that records produced in between count as lag.
    offsets = systems.kafka.offsets(topics)
    records = sum(o.end for topic in topics for o in offsets[topic].values())
    files = sum(size.data_files for size in sizes)
    spark = next(server.resident_bytes for server in stack.status(Home.default()) if server.name == "spark")
    return Measurement(
        round(minute, 1),
        records,
        records - rows,
        max((size.data_files for size in sizes), default=0),
        max((size.snapshots for size in sizes), default=0),
        max((size.manifests for size in sizes), default=0),
        round(max((len(t.io.new_input(t.metadata_location)) / 1e3 for t in tables), default=0)),
        round(sum(size.data_bytes for size in sizes) / max(files, 1) / 1e3),
        round(psutil.Process(stream).memory_info().rss / 1e6),
        round(spark / 1e6),
    )


def line(measurement: Measurement) -> str:
    """Return a measurement as one line."""
    return "  ".join(f"{name} {value:,}" for name, value in asdict(measurement).items())


def verified(systems: Any, namespace: str, topic: str) -> str:
    """Compare a table with its topic's offsets, partition by partition.

    Raises:
        AssertionError: An offset is missing or occurs twice.
    """
    rows = pyiceberg_catalog().load_table((namespace, topic)).scan(selected_fields=("kafka_partition", "kafka_offset"))
    table = rows.to_arrow()
    partition, offset = table["kafka_partition"].to_numpy(), table["kafka_offset"].to_numpy()
    ends = systems.kafka.offsets([topic])[topic]
    for number in range(PARTITIONS):
        offsets = np.sort(offset[partition == number])
        assert np.array_equal(offsets, np.arange(ends[number].end)), f"{topic}-{number}: not every offset exactly once"
    return f"{topic}: {len(offset):,} rows, every offset exactly once"


if __name__ == "__main__":
    main()
