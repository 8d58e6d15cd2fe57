"""Production of the content of a topic by this project, as its source in lakehouse.yaml declares it."""

from pkgutil import resolve_name
from typing import Any

from lakehouse.config.model import Config, Topic
from lakehouse.pipeline.clients import Clients
from resources.iceberg.pauses import require_unpaused


def produce(config: Config, topic: Topic, clients: Clients) -> Any:
    """Create a topic unless it exists, and return the result of its source's producer; None if it has none.

    Raises:
        Paused: The topic is paused, and its producer writes records.
    """
    source = topic.source
    if source.writes:
        require_unpaused(clients.catalog, config.namespace, topic)
    clients.kafka.ensure_topic(topic.topic, topic.partitions, topic.retention.records)
    return resolve_name(source.producer)(config, topic, clients) if source.producer else None
