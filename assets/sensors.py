"""Sensors: topics move without Dagster, and somebody has to tell it."""

import json

import dagster as dg

from assets.kafka import data_version, offset_metadata
from lakehouse.config import Config
from resources.kafka import Kafka


def topic_offsets_sensor(config: Config) -> dg.SensorDefinition:
    """Reports each topic whose end offsets moved, as a materialization of `kafka/<topic>` without a run.

    A materialization and not an observation: only the former drives automation conditions of what is downstream.
    """

    @dg.sensor(
        name="topic_offsets",
        description="Reports topics that moved. A tick that stored events shows as skipped: it requests no run.",
        minimum_interval_seconds=30,
        default_status=dg.DefaultSensorStatus.RUNNING,
    )
    def topic_offsets(context: dg.SensorEvaluationContext, kafka: Kafka) -> dg.SensorResult:
        seen: dict[str, str] = json.loads(context.cursor or "{}")
        events = []
        there = kafka.offsets(list(kafka.describe([topic.topic for topic in config.topics.values()])))
        for topic, offsets in ((t.name, there[t.topic]) for t in config.topics.values() if t.topic in there):
            version = data_version(offsets).value
            if any(o.end > o.start for o in offsets.values()) and seen.get(topic) != version:
                seen[topic] = version
                events.append(
                    dg.AssetMaterialization(
                        asset_key=["kafka", topic],
                        metadata=offset_metadata(offsets),
                        tags={"dagster/data_version": version},
                    )
                )
        return dg.SensorResult(asset_events=events, cursor=json.dumps(seen))

    return topic_offsets
