"""A source: lines of lakehouse.yaml, each a record."""

from typing import Literal

from lakehouse.config.sources import Source


class Lines(Source):
    """Writes each line once."""

    type: Literal["lines"]
    producer = "lakehouse_plugins.source:write"
    writes = True
    lines: tuple[str, ...]


def write(config, topic, clients):
    """Produce the lines that the topic does not hold."""
    held = sum(offsets.end for offsets in clients.kafka.offsets([topic.topic])[topic.topic].values())
    producer = clients.kafka.producer()
    for line in topic.source.lines[held:]:
        producer.produce(topic.topic, line.encode())
    producer.flush()
