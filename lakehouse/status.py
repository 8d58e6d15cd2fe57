"""How far each topic has come: topic → Iceberg → Glue → Snowflake and REST catalog."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from assets.hops import hops_of, measure
from assets.ingestion import stored
from lakehouse.config import Config
from lakehouse.freshness import Hop
from lakehouse.topic import Topic


@dataclass(frozen=True)
class TopicStatus:
    """One topic's chain. Offsets are sums over partitions; None stands for what does not exist yet."""

    topic: str
    end_offset: int | None = None
    ingested_offset: int | None = None
    hops: tuple[Hop, ...] = ()


def status(config: Config, systems: Any) -> list[TopicStatus]:
    """The status of every declared topic, and of those that routes found.

    Raises: Unreachable when a system does not answer.
    """
    topics = [*config.topics.values(), *config.routed(systems.kafka.topics() if config.routes else ())]
    return [_of(config, topic, systems) for topic in topics]


def _of(config: Config, topic: Topic, systems: Any) -> TopicStatus:
    if topic.topic not in systems.kafka.describe([topic.topic]):
        return TopicStatus(topic.name)
    _, _, last = stored(systems.catalog, config.namespace, topic)
    return TopicStatus(
        topic=topic.name,
        end_offset=sum(offsets.end for offsets in systems.kafka.offsets([topic.topic])[topic.topic].values()),
        ingested_offset=sum(last.end.values()) if last else 0,
        hops=tuple(measure(hop, config, topic, systems) for hop in hops_of(config, topic)),
    )
