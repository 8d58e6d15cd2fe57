"""Seconds from a record's Kafka timestamp until readers see it, while `lakehouse stream` ingests at a constant rate.

    lakehouse up --only kafka --only registry --only s3 --only aws --only spark --only snowflake
    python benchmarks/latency.py --rate 5000 --topics 5 --seconds 120

The script polls the catalog (through pyiceberg), Glue and Snowflake for the current metadata file of each table; a
record is visible when the table of that file contains its offset. Results are too high by up to one polling interval.
Records of the warm-up are not counted.
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

from lakehouse.cli.systems import open_clients
from lakehouse.config import loader
from lakehouse.config.discovery import config_path
from lakehouse.core.polling import poll
from lakehouse.local.servers.synthetic_records import messages
from resources.kafka.kafka import Kafka
from tools.repository import PROJECT

DISTINCT = 5_000
PARTITIONS = 6
POLL_SECONDS = {"iceberg": 0.25, "glue": 0.5, "snowflake": 1.0}
"""Polling interval of each reader in seconds, for all topics."""
CATCH_UP_SECONDS = 900
"""Maximum time until the tables have the last record."""
SETTLE_SECONDS = 30
"""Time after that in which the other readers show it; one that does not has an infinite latency."""


def main() -> None:
    """Stream and produce for the given time, and print the latencies."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rate", type=float, default=5_000, help="records per second, of all topics together")
    parser.add_argument("--topics", type=int, default=5)
    parser.add_argument("--warm-up", type=float, default=60, help="seconds that are not counted")
    parser.add_argument("--seconds", type=float, default=120)
    arguments = parser.parse_args()
    namespace = f"latency_{time.time_ns()}"
    topics = [f"{namespace}_{n}" for n in range(arguments.topics)]
    with open_clients(loader.load()) as systems, tempfile.TemporaryDirectory() as folder:
        pool = prepared(systems, topics)
        session = systems.snowflake.keep_session()
        with streaming(Path(folder), namespace, topics), session, watched(systems, namespace, topics) as locations:
            produce(systems, topics, pool, arguments.rate, arguments.warm_up)
            began = time.time()
            produce(systems, topics, pool, arguments.rate, arguments.seconds)
            ended = time.time()
            # Otherwise the slowest records would be missing from the result.
            wait_until_ingested(systems, namespace, topics)
            time.sleep(SETTLE_SECONDS)
        measured = {reader: latencies(seen, namespace, began, ended) for reader, seen in locations.items()}
        report(measured, arguments.rate)


def prepared(systems: Any, topics: list[str]) -> list[tuple[bytes, bytes]]:
    """Create the topics and return stock trades as messages."""
    schema = (PROJECT / "schemas/stock_trades.avsc").read_text()
    for topic in topics:
        systems.kafka.ensure_topic(topic, PARTITIONS)
        schema_id = systems.schema_registry.register(f"{topic}-value", schema)
    return list(islice(messages(schema, schema_id, "userid"), DISTINCT))


@contextmanager
def streaming(folder: Path, namespace: str, topics: list[str], *options: str) -> Iterator[subprocess.Popen[bytes]]:
    """Run `lakehouse stream`, with further options, in a separate process."""
    environments = yaml.safe_load(config_path().read_text())["environments"]
    file = folder / "lakehouse.yaml"
    declared = {topic: {"key": "userid"} for topic in topics}
    file.write_text(yaml.safe_dump({"namespace": namespace, "topics": declared, "environments": environments}))
    command = [str(Path(sys.executable).with_name("lakehouse")), "stream", *options]
    stream = subprocess.Popen(command, env={**os.environ, "LAKEHOUSE_CONFIG": str(file)}, stdout=subprocess.DEVNULL)
    try:
        yield stream
    finally:
        stream.send_signal(signal.SIGTERM)
        stream.wait()


def produce(systems: Any, topics: list[str], pool: list[tuple[bytes, bytes]], rate: float, seconds: float) -> None:
    """Produce at `rate` records per second, to all topics in turn."""
    producer, began, number = systems.kafka.producer(), time.monotonic(), 0
    trades = cycle(pool)
    while (passed := time.monotonic() - began) < seconds:
        while number < passed * rate:
            Kafka.enqueue(producer, topics[number % len(topics)], str(number).encode(), next(trades)[1])
            number += 1
        producer.poll(0)
        time.sleep(0.01)
    producer.flush()


def wait_until_ingested(systems: Any, namespace: str, topics: list[str]) -> None:
    """Wait until the tables have all records of the topics."""
    catalog, offsets = pyiceberg_catalog(), systems.kafka.offsets(topics)

    def is_ingested(topic: str) -> bool:
        try:
            location = catalog.load_table((namespace, topic)).metadata_location
        except NoSuchTableError:
            return False
        ends = position(location)
        return all(ends.get(p, 0) >= one.end for p, one in offsets[topic].items())

    for topic in topics:
        assert poll(lambda topic=topic: is_ingested(topic), pause=0.5, deadline_seconds=CATCH_UP_SECONDS), topic


Seen = dict[str, list[tuple[float, str]]]
"""Times at which metadata files were first seen, with their locations, in order, by topic."""


@contextmanager
def watched(systems: Any, namespace: str, topics: list[str]) -> Iterator[dict[str, Seen]]:
    """Collect the metadata files that readers see while the body runs, by reader."""
    catalog = pyiceberg_catalog()
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

    seen: dict[str, Seen] = {reader: {topic: [] for topic in topics} for reader in POLL_SECONDS}
    stopping = threading.Event()
    lookups = {"iceberg": in_iceberg, "glue": in_glue, "snowflake": in_snowflake}
    threads = [threading.Thread(target=watch, args=(look_up, r, seen[r], stopping)) for r, look_up in lookups.items()]
    for thread in threads:
        thread.start()
    try:
        yield seen
    finally:
        stopping.set()
        for thread in threads:
            thread.join()


def pyiceberg_catalog() -> Any:
    """Return the catalog as plain pyiceberg loads it, without lakehouse."""
    settings = {"s3.endpoint": os.environ["AWS_ENDPOINT_URL_S3"], "s3.region": os.environ["AWS_REGION"]}
    return load_catalog("lake", type="sql", uri=os.environ["ICEBERG_CATALOG_URI"], **settings)


def watch(look_up: Callable[[str], str | None], reader: str, seen: Seen, stopping: threading.Event) -> None:
    """Record the metadata files of each topic that a reader sees, until `stopping` is set."""
    while not stopping.wait(POLL_SECONDS[reader]):
        for topic, locations in seen.items():
            location = look_up(topic)
            if location and (not locations or locations[-1][1] != location):
                locations.append((time.time(), location))


def latencies(seen: Seen, namespace: str, began: float, ended: float) -> np.ndarray:
    """Return the seconds until each record was first seen, of records with timestamps from `began` to `ended`."""
    catalog, delays = pyiceberg_catalog(), [np.empty(0)]
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
        delays.append((at - produced)[counted])
    return np.concatenate(delays)


def position(location: str) -> dict[int, int]:
    """Return the next offset by partition that the table of a metadata file stores (docs/exactly-once.md)."""
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
    """Print percentiles of the latencies by reader."""
    table = Table("seen in", "records", "p50 s", "p95 s", "p99 s", "max s", "never", title=f"{rate:,.0f} records/s")
    for reader, seconds in measured.items():
        finite = seconds[np.isfinite(seconds)]
        cells = [f"{value:.2f}" for value in np.percentile(finite, [50, 95, 99, 100])] if len(finite) else 4 * ["-"]
        table.add_row(reader, f"{len(seconds):,}", *cells, f"{len(seconds) - len(finite):,}")
    Console().print(table)


if __name__ == "__main__":
    main()
