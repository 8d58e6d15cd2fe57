"""How far each topic has come: topic → Iceberg → Glue → Snowflake and REST catalog."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import Any

from lakehouse.config.loader import Config
from lakehouse.config.topic import Topic
from lakehouse.core.errors import reason, trace
from lakehouse.pipeline.ingestion import stored
from lakehouse.readers.freshness import Hop
from lakehouse.readers.hops import hops_of, measure

_LOG = logging.getLogger(__name__)


@dataclass(frozen=True)
class TopicStatus:
    """One topic's chain. Offsets are sums over partitions; None stands for what does not exist yet."""

    topic: str
    end_offset: int | None = None
    ingested_offset: int | None = None
    hops: tuple[Hop, ...] = ()
    failure: str = ""
    """Why nothing is known of the topic, if so."""


def status(config: Config, systems: Any) -> list[TopicStatus]:
    """The status of every declared topic, and of those that routes found.

    One that cannot be read keeps no other from being shown.

    Raises: Unreachable when Kafka does not answer.
    """
    # One question for all: a Kafka that does not answer would be waited for once a topic.
    there = systems.kafka.topics()
    found = [_of(config, topic, systems) for topic in [*config.topics.values(), *config.routed(there)]]
    faults = ((name, fault) for _, name, fault in config.matched(there) if not isinstance(fault, Topic))
    return [*found, *(TopicStatus(name, failure=str(fault)) for name, fault in faults)]


def _of(config: Config, topic: Topic, systems: Any) -> TopicStatus:
    def hops() -> tuple[Hop, ...]:
        return tuple(measure(hop, config, topic, systems) for hop in hops_of(config, topic))

    try:
        _, _, last = stored(systems.catalog, config.namespace, topic)
        is_made_here = not topic.source.is_external
        if last is None and is_made_here and topic.topic not in systems.kafka.describe([topic.topic]):
            return TopicStatus(topic.name)
        end_offset = sum(offsets.end for offsets in systems.kafka.offsets([topic.topic])[topic.topic].values())
    except Exception as error:
        if found := trace(error):
            _LOG.error("The status of %s is not known. %s", topic.name, found)
        return TopicStatus(topic.name, hops=hops(), failure=reason(error))
    return TopicStatus(topic.name, end_offset, sum(last.end.values()) if last else 0, hops())
