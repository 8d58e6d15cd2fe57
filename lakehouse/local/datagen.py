"""`python -m lakehouse.local.datagen`: the local stand-in for Confluent's Datagen connector.

Fills every topic with a `datagen` source: first up to `initial_records`, then at `records_per_second` until SIGTERM.
"""

from __future__ import annotations

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
from lakehouse.config.environment import environment_name
from lakehouse.config.loader import Config
from lakehouse.config.sources.datagen import Datagen
from lakehouse.config.topic import Topic
from lakehouse.local.synthetic_records import messages
from resources.build import build_resources
from resources.kafka import Kafka
from resources.schema_registry import SchemaRegistry

TICK_SECONDS = 0.2
REPORT_SECONDS = 30

log = logging.getLogger("datagen")


@dataclass
class Source:
    """One topic being filled."""

    topic: Topic
    rate: float
    messages: Iterator[tuple[bytes, bytes]]
    owed: float = 0.0
    """Records due by now and not yet sent, with the fraction that the last tick left."""
    sent: int = 0


def prepare(config: Config, topic: Topic, kafka: Kafka, registry: SchemaRegistry) -> Source:
    """Ensure the topic and its subject, as materializing `kafka/<topic>` does, and how much it lacks at the start."""
    assert isinstance(topic.source, Datagen)
    schema = config.text(topic.source.schema_file)
    kafka.ensure_topic(topic.topic, topic.partitions, topic.retention.records)
    schema_id = registry.register(topic.subject("value"), schema)
    held = sum(o.end - o.start for o in kafka.offsets([topic.topic])[topic.topic].values())
    missing = max(0, topic.source.initial_records - held)
    return Source(
        topic, topic.source.records_per_second, messages(schema, schema_id, topic.key[0]), owed=float(missing)
    )


def send(producer: Producer, source: Source) -> None:
    """Produce what is owed."""
    due = int(source.owed)
    for key, value in islice(source.messages, due):
        Kafka.enqueue(producer, source.topic.topic, key, value)
    source.owed -= due
    source.sent += due


def run(sources: list[Source], producer: Producer, stop: threading.Event) -> None:
    """Send at each source's rate until told to stop; what was produced is flushed at the end."""
    reported = before = time.monotonic()
    while not stop.is_set():
        for source in sources:
            send(producer, source)
        producer.poll(0)
        stop.wait(TICK_SECONDS)
        now = time.monotonic()
        for source in sources:
            source.owed += source.rate * (now - before)
        before = now
        if now - reported >= REPORT_SECONDS:
            reported = now
            log.info("sent so far: %s", ", ".join(f"{s.topic.name} {s.sent:,}" for s in sources))
    producer.flush()


def main() -> None:
    """Fill the topics of lakehouse.yaml."""
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
