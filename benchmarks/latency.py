"""Seconds from a record's Kafka timestamp until readers see it, while `lakehouse stream` takes a steady rate.

    lakehouse up --only kafka --only registry --only s3 --only aws --only spark --only snowflake
    python benchmarks/latency.py --rate 5000 --topics 5 --seconds 120

Readers are of this script: pyiceberg through the catalog, Glue and Snowflake are asked again and again which metadata
file they show, and a record is seen when that file's table holds its offset. What is told is too high by up to the time
between two questions. Records of the warm-up are not counted.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import cycle, islice
from pathlib import Path
from typing import Any

import numpy as np
import yaml
from pyiceberg.catalog import load_catalog
from pyiceberg.exceptions import NoSuchTableError
from pyiceberg.table import StaticTable
from rich.console import Console
from rich.table import Table

from lakehouse.cli.systems import connected
from lakehouse.config import loader
from lakehouse.local.synthetic_records import messages
from resources.kafka import Kafka

DISTINCT = 5_000
PARTITIONS = 6
ASKED_EVERY = {"iceberg": 0.25, "glue": 0.5, "snowflake": 1.0}
"""Seconds between two questions to each about all topics."""
SETTLE_SECONDS = 30


def main() -> None:
    """Stream and produce for a while, then tell."""
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--rate", type=float, default=5_000, help="records a second, of all topics together")
    arguments.add_argument("--topics", type=int, default=5)
    arguments.add_argument("--warm-up", type=float, default=60, help="seconds that are not counted")
    arguments.add_argument("--seconds", type=float, default=120)
    given = arguments.parse_args()
    namespace = f"latency_{time.time_ns()}"
    topics = [f"{namespace}_{n}" for n in range(given.topics)]
    with connected(loader.load()) as systems, tempfile.TemporaryDirectory() as folder:
        pool = prepared(systems, topics)
        own_session = systems.snowflake.staying()
        with streaming(Path(folder), namespace, topics), own_session, watched(systems, namespace, topics) as seen:
            produce(systems, topics, pool, given.rate, given.warm_up)
            began = time.time()
            produce(systems, topics, pool, given.rate, given.seconds)
            ended = time.time()
            time.sleep(SETTLE_SECONDS)
        report({hop: latencies(found, namespace, began, ended) for hop, found in seen.items()}, given.rate)


def prepared(systems: Any, topics: list[str]) -> list[tuple[bytes, bytes]]:
    """Make the topics; returns stock trades as messages."""
    schema = (loader.PROJECT / "schemas/stock_trades.avsc").read_text()
    for topic in topics:
        systems.kafka.ensure_topic(topic, PARTITIONS)
        schema_id = systems.schema_registry.register(f"{topic}-value", schema)
    return list(islice(messages(schema, schema_id, "userid"), DISTINCT))


@contextmanager
def streaming(folder: Path, namespace: str, topics: list[str]) -> Iterator[subprocess.Popen[bytes]]:
    """`lakehouse stream` in a process of its own."""
    environments = yaml.safe_load(loader.config_path().read_text())["environments"]
    file = folder / "lakehouse.yaml"
    declared = {topic: {"key": "userid"} for topic in topics}
    file.write_text(yaml.safe_dump({"namespace": namespace, "topics": declared, "environments": environments}))
    command = [str(Path(sys.executable).with_name("lakehouse")), "stream"]
    stream = subprocess.Popen(command, env={**os.environ, "LAKEHOUSE_CONFIG": str(file)}, stdout=subprocess.DEVNULL)
    try:
        yield stream
    finally:
        stream.send_signal(signal.SIGTERM)
        stream.wait()


def produce(systems: Any, topics: list[str], pool: list[tuple[bytes, bytes]], rate: float, seconds: float) -> None:
    """Produce at a rate, to all topics in turn."""
    producer, began, number = systems.kafka.producer(), time.monotonic(), 0
    trades = cycle(pool)
    while (passed := time.monotonic() - began) < seconds:
        while number < passed * rate:
            Kafka.enqueue(producer, topics[number % len(topics)], str(number).encode(), next(trades)[1])
            number += 1
        producer.poll(0)
        time.sleep(0.01)
    producer.flush()


Seen = dict[str, list[tuple[float, str]]]
"""By topic, when which metadata file was first seen, in order."""


@contextmanager
def watched(systems: Any, namespace: str, topics: list[str]) -> Iterator[dict[str, Seen]]:
    """What readers see while the body runs, by hop."""
    catalog = own_catalog()
    glue = systems.glue.client()

    def in_iceberg(topic: str) -> str | None:
        try:
            return catalog.load_table((namespace, topic)).metadata_location
        except NoSuchTableError:
            return None

    def in_glue(topic: str) -> str | None:
        try:
            return glue.get_table(DatabaseName=namespace, Name=topic)["Table"]["Parameters"]["metadata_location"]
        except glue.exceptions.EntityNotFoundException:
            return None

    def in_snowflake(topic: str) -> str | None:
        state = systems.snowflake.table_state(namespace, topic)
        return state.metadata_location if state else None

    seen: dict[str, Seen] = {hop: {topic: [] for topic in topics} for hop in ASKED_EVERY}
    stopping = threading.Event()
    asked = {"iceberg": in_iceberg, "glue": in_glue, "snowflake": in_snowflake}
    threads = [threading.Thread(target=watch, args=(ask, hop, seen[hop], stopping)) for hop, ask in asked.items()]
    for thread in threads:
        thread.start()
    try:
        yield seen
    finally:
        stopping.set()
        for thread in threads:
            thread.join()


def own_catalog() -> Any:
    """The catalog by pyiceberg alone."""
    settings = {"s3.endpoint": os.environ["AWS_ENDPOINT_URL_S3"], "s3.region": os.environ["AWS_REGION"]}
    return load_catalog("lake", type="sql", uri=os.environ["ICEBERG_CATALOG_URI"], **settings)


def watch(ask: Callable[[str], str | None], hop: str, seen: Seen, stopping: threading.Event) -> None:
    """Ask about each topic again and again."""
    while not stopping.wait(ASKED_EVERY[hop]):
        for topic, found in seen.items():
            location = ask(topic)
            if location and (not found or found[-1][1] != location):
                found.append((time.time(), location))


def latencies(seen: Seen, namespace: str, began: float, ended: float) -> np.ndarray:
    """Seconds from each record's timestamp, of those in a span of time, until it was first seen."""
    catalog, found = own_catalog(), [np.empty(0)]
    for topic, locations in seen.items():
        columns = ("kafka_partition", "kafka_offset", "kafka_timestamp")
        rows = catalog.load_table((namespace, topic)).scan(selected_fields=columns).to_arrow()
        partition, offset, stamp = (rows[name].to_numpy() for name in columns)
        produced = stamp.astype("datetime64[ms]").astype(np.int64) / 1000
        at = np.full(len(partition), np.inf)
        for when, location in reversed(locations):
            for p, end in position(location).items():
                at[(partition == p) & (offset < end)] = when
        counted = (produced >= began) & (produced < ended)
        found.append((at - produced)[counted])
    return np.concatenate(found)


def position(location: str) -> dict[int, int]:
    """The next offset by partition, as the table in a metadata file says (docs/exactly-once.md)."""
    settings = {"s3.endpoint": os.environ["AWS_ENDPOINT_URL_S3"], "s3.region": os.environ["AWS_REGION"]}
    metadata = StaticTable.from_metadata(location, settings).metadata
    snapshots = {snapshot.snapshot_id: snapshot for snapshot in metadata.snapshots}
    current = snapshots.get(metadata.current_snapshot_id)
    while current is not None:
        if token := current.summary.additional_properties.get("lakehouse.batch"):
            return {int(p): end for p, end in json.loads(token)["end"].items()}
        current = snapshots.get(current.parent_snapshot_id)
    return {}


def report(measured: dict[str, np.ndarray], rate: float) -> None:
    """Print percentiles."""
    table = Table("seen in", "records", "p50 s", "p95 s", "p99 s", "max s", "never", title=f"{rate:,.0f} records/s")
    for hop, seconds in measured.items():
        there = seconds[np.isfinite(seconds)]
        shown = [f"{value:.2f}" for value in np.percentile(there, [50, 95, 99, 100])] if len(there) else 4 * ["-"]
        table.add_row(hop, f"{len(seconds):,}", *shown, f"{len(seconds) - len(there):,}")
    Console().print(table)


if __name__ == "__main__":
    main()
