"""`python -m lakehouse.local.servers.datagen_process`: the local replacement of Confluent's Datagen connector.

It produces to every topic with a `datagen` source: first up to `initial_records`, then at `records_per_second`, until
SIGTERM.
"""

import logging
import signal
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice

import dagster as dg
from confluent_kafka import Producer

from lakehouse.config import loader
from lakehouse.config.discovery import environment_name
from lakehouse.config.model import Config, Topic
from lakehouse.config.sources import Datagen
from lakehouse.local.servers.synthetic_records import headers, messages
from resources.build import build_resources
from resources.kafka.kafka import Kafka
from resources.schema_registry import SchemaRegistry

TICK_SECONDS = 0.2
REPORT_SECONDS = 30

log = logging.getLogger("datagen")


@dataclass
class RecordSource:
    """Records to produce to one topic."""

    topic: Topic
    rate: float
    messages: Iterator[tuple[bytes, bytes]]
    due: float = 0.0
    """Number of records that are due and not yet sent; fractions carry over to the next tick."""
    sent: int = 0
    produced_before: int = 0
    """Number of records that earlier processes produced."""


def prepare(config: Config, topic: Topic, kafka: Kafka, registry: SchemaRegistry) -> RecordSource:
    """Ensure that the topic and its subject exist, as materializing `<topic>/kafka` does.

    Returns:
        The source; the records that the topic has less than `initial_records` are due.
    """
    assert isinstance(topic.source, Datagen)
    schema = config.text(topic.source.schema_file)
    kafka.ensure_topic(topic.topic, topic.partitions, topic.retention.records)
    schema_id = registry.register(topic.subject("value"), schema)
    offsets = kafka.offsets([topic.topic])[topic.topic].values()
    missing = max(0, topic.source.initial_records - sum(range_.end - range_.start for range_ in offsets))
    return RecordSource(
        topic,
        topic.source.records_per_second,
        messages(schema, schema_id, topic.source.message_key(topic)),
        due=float(missing),
        produced_before=sum(range_.end for range_ in offsets),
    )


def send(producer: Producer, source: RecordSource) -> None:
    """Produce the records that are due."""
    due = int(source.due)
    # The connector counts its starts. Here the topic only shows whether there was an earlier one.
    generation, first = int(source.produced_before > 0), source.produced_before + source.sent
    for iteration, (key, value) in enumerate(islice(source.messages, due), first):
        Kafka.enqueue(producer, source.topic.topic, key, value, headers(generation, iteration))
    source.due -= due
    source.sent += due


def run(sources: list[RecordSource], producer: Producer, stop: threading.Event) -> None:
    """Produce at each source's rate until `stop` is set, and flush at the end."""
    reported = before = time.monotonic()
    while not stop.is_set():
        for source in sources:
            send(producer, source)
        producer.poll(0)
        stop.wait(TICK_SECONDS)
        now = time.monotonic()
        for source in sources:
            source.due += source.rate * (now - before)
        before = now
        if now - reported >= REPORT_SECONDS:
            reported = now
            log.info("sent so far: %s", ", ".join(f"{s.topic.name} {s.sent:,}" for s in sources))
    producer.flush()


def main() -> None:
    """Produce to the topics of lakehouse.yaml."""
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s")
    stop = threading.Event()
    for signal_ in (signal.SIGTERM, signal.SIGINT):
        signal.signal(signal_, lambda *_: stop.set())
    config = loader.load()
    with dg.build_resources(build_resources(config, environment_name())) as systems:
        sources = [
            prepare(config, topic, systems.kafka, systems.schema_registry)
            for topic in config.topics.values()
            if isinstance(topic.source, Datagen)
        ]
        run(sources, systems.kafka.producer(), stop)


if __name__ == "__main__":
    main()
