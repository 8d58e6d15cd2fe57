"""Where a table's position comes from when its snapshots do not say: the configuration, or somebody's decision."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from assets.staging import Staging
from lakehouse.batch import DECISION, TOKEN, Batch, Log
from lakehouse.config import Topic
from resources.kafka import Kafka

if TYPE_CHECKING:
    from assets.ingestion import Systems


def at(log: Log, kafka: Kafka, where: str) -> Batch:
    """A position, as a batch that ends there and holds nothing.

    Parameters: `where` is `earliest`, `latest`, a time (ISO 8601 with offset) or offsets as `0:12,1:40`.
    Raises: ValueError when it is none of these; Unreachable.
    """
    match where:
        case "earliest":
            end = dict(log.start)
        case "latest":
            end = dict(log.end)
        case _ if ":" in where and "T" not in where:
            end = dict(log.start) | {int(p): int(o) for p, o in (pair.split(":") for pair in where.split(","))}
        case _:
            end = kafka.offsets_at(log.topic, int(datetime.fromisoformat(where).timestamp() * 1000))
    return Batch(log.cluster_id, log.topic, log.topic_id, end, end)


def record(systems: Systems, namespace: str, topic: Topic, position: Batch, reason: str) -> None:
    """Write into the table that the next batch begins where `position` ends, and why: a snapshot without rows.

    Raises: CommitConflict when another writer publishes at the same time; SchemaError; Unreachable.
    """
    from assets.codecs import formats
    from assets.ingestion import ensure_table
    from spark.write import Target, nothing

    catalog = systems.catalog
    spark = systems.spark.session(catalog.spark_settings())
    table = ensure_table(catalog, namespace, topic, formats(systems.schema_registry, topic))
    base = table.current_snapshot()
    staging = Staging(catalog, spark, namespace)
    branch = staging.branch(topic.table)
    decision = {"reason": reason, "at": datetime.now(UTC).isoformat(timespec="seconds")}
    with staging.undisturbed(topic.table, branch):
        nothing(
            spark, Target(namespace, topic.table, branch, {TOKEN: position.to_json(), DECISION: json.dumps(decision)})
        )
    catalog.publish(table.refresh(), branch, base.snapshot_id if base else None)
