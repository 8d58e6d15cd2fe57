"""How far each topic has come: topic → Iceberg → Glue → Snowflake."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Any

from assets.ingestion import measure_lag
from lakehouse.config import Config, Topic
from lakehouse.lag import Behind, Lag, snapshots_behind
from resources.catalog import commits, last_batch, snapshot_at


@dataclass(frozen=True)
class Shown:
    """A snapshot that Glue or Snowflake shows, and how far that is behind Iceberg (None: it was never published)."""

    snapshot_id: int | None
    behind: Behind | None


@dataclass(frozen=True)
class TopicStatus:
    """One topic's chain. Offsets are sums over partitions; None stands for what does not exist yet."""

    topic: str
    end_offset: int | None = None
    ingested_offset: int | None = None
    lag: Lag | None = None
    iceberg_snapshot_id: int | None = None
    glue: Shown | None = None
    snowflake: Shown | None = None


def status(config: Config, systems: Any) -> list[TopicStatus]:
    """The status of every declared topic, and of those that routes found.

    Raises: Unreachable when a system does not answer.
    """
    topics = [*config.topics.values(), *config.routed(systems.kafka.topics() if config.routes else ())]
    return [_of(config, topic, systems, int(time.time() * 1000)) for topic in topics]


def _of(config: Config, topic: Topic, systems: Any, now_ms: int) -> TopicStatus:
    if topic.topic not in systems.kafka.describe([topic.topic]):
        return TopicStatus(topic.name)
    end = sum(offsets.end for offsets in systems.kafka.offsets([topic.topic])[topic.topic].values())
    lag = measure_lag(systems.kafka, systems.catalog, config.namespace, [topic], now_ms)[topic.name]
    topic = systems.catalog.current(config.namespace, topic)
    table = systems.catalog.load(config.namespace, topic.table)
    if table is None or table.current_snapshot() is None:
        return TopicStatus(topic.name, end, 0, lag)
    history, last = commits(table), last_batch(table)

    def shown(metadata_location: str) -> Shown:
        snapshot_id = snapshot_at(systems.catalog, metadata_location)
        return Shown(snapshot_id, snapshots_behind(history, snapshot_id, now_ms))

    registration = systems.glue.registration(config.namespace, topic.table)
    in_snowflake = systems.snowflake.table_state(config.namespace, topic.table) if registration else None
    return TopicStatus(
        topic=topic.name,
        end_offset=end,
        ingested_offset=sum(last.end.values()) if last else 0,
        lag=lag,
        iceberg_snapshot_id=history[0][0],
        glue=shown(registration.metadata_location) if registration else None,
        snowflake=shown(in_snowflake.metadata_location) if in_snowflake else None,
    )
