"""Time of one run that ingests many small topics into new, audited and published tables.

    lakehouse up --only kafka --only registry --only s3 --only spark
    python benchmarks/fan_in.py --topics 100 --records 1000 --workers 2

The first topics warm up Spark and are not counted. For comparison, some topics are ingested one after another by
`ingest`, as a separate run of each would.
"""

from __future__ import annotations

import argparse
import time
from itertools import islice
from typing import Any

from lakehouse.cli.systems import open_clients
from lakehouse.config import loader
from lakehouse.config.model import Config, Topic
from lakehouse.local.servers.synthetic_records import messages
from lakehouse.pipeline.clients import Clients
from lakehouse.pipeline.ingestion import ingest
from lakehouse.streaming.stream import WORKERS, Stream
from lakehouse.streaming.stream_events import Commit
from resources.kafka.kafka import Kafka
from tools.repository import PROJECT

WARM_UP = 10
ALONE = 10
"""Number of topics that are ingested one after another, for comparison."""


def main() -> None:
    """Produce the records and measure both ways of ingestion."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--topics", type=int, default=100)
    parser.add_argument("--records", type=int, default=1_000, help="records in each topic")
    parser.add_argument("--partitions", type=int, default=6, help="partitions of each topic")
    parser.add_argument("--workers", type=int, default=WORKERS)
    arguments = parser.parse_args()
    with open_clients(loader.load()) as resources:
        systems = Clients.of(resources)
        topics = filled_topics(systems, arguments.topics + WARM_UP + ALONE, arguments.records, arguments.partitions)
        warm, alone, rest = topics[:WARM_UP], topics[WARM_UP : WARM_UP + ALONE], topics[WARM_UP + ALONE :]
        ingest_together(warm, systems, arguments.workers)
        began = time.monotonic()
        for topic in alone:
            list(ingest("fan_in", topic, systems))
        seconds_per_topic = (time.monotonic() - began) / len(alone)
        seconds, records = ingest_together(rest, systems, arguments.workers)
        print(f"one after another: {seconds_per_topic:.2f} s per topic")
        rate = seconds / len(rest)
        print(f"together: {len(rest)} topics, {records:,} records in {seconds:.1f} s, {rate:.2f} s per topic")


def filled_topics(systems: Any, count: int, records: int, partitions: int) -> list[Topic]:
    """Return `count` new topics with `records` stock trades each."""
    schema = (PROJECT / "schemas/stock_trades.avsc").read_text()
    prefix, producer = f"fan_in_{time.time_ns()}", systems.kafka.producer()
    topics = [Topic(name=f"{prefix}_{number}", key=("userid",)) for number in range(count)]
    for topic in topics:
        systems.kafka.ensure_topic(topic.name, partitions)
        schema_id = systems.schema_registry.register(f"{topic.name}-value", schema)
    trades = list(islice(messages(schema, schema_id, "userid"), records))
    for topic in topics:
        for number, (_, value) in enumerate(trades):
            Kafka.enqueue(producer, topic.name, str(number).encode(), value)
    producer.flush()
    return topics


def ingest_together(topics: list[Topic], systems: Clients, workers: int) -> tuple[float, int]:
    """Ingest topics by one stream that stops at their ends, and return its seconds and the number of records."""
    config = Config(namespace="fan_in", topics={topic.name: topic for topic in topics}, environments={})
    began = time.monotonic()
    stream = Stream(config, topics, systems, once=True, workers=workers)
    records = sum(event.published.counts.consumed for event in stream.run() if isinstance(event, Commit))
    assert not stream.errors, stream.errors
    return time.monotonic() - began, records


if __name__ == "__main__":
    main()
