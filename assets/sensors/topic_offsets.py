"""Sensors: topics move without Dagster, and somebody has to tell it."""

import json
from collections.abc import Collection, Mapping

import dagster as dg

from assets.entry import partitions
from assets.kafka import data_version, offset_metadata
from lakehouse.config.loader import Config
from lakehouse.config.topic import Topic
from lakehouse.core.errors import reason, trace
from resources.catalog import Catalog
from resources.kafka import Kafka, Offsets
from resources.pauses import pauses
from resources.readable import readable


def topic_offsets_sensor(config: Config) -> dg.SensorDefinition:
    """Reports each topic whose end offsets moved, as a materialization of `kafka/<topic>` without a run.

    A materialization and not an observation: only the former drives automation conditions of what is downstream. A new
    topic that a route matches becomes a partition of the route's assets.
    """

    @dg.sensor(
        name="topic_offsets",
        description="Reports topics that moved. A tick that stored events shows as skipped: it requests no run.",
        minimum_interval_seconds=30,
        default_status=dg.DefaultSensorStatus.RUNNING,
    )
    def topic_offsets(context: dg.SensorEvaluationContext, kafka: Kafka, catalog: Catalog) -> dg.SensorResult:
        seen: dict[str, str] = json.loads(context.cursor or "{}")
        entries: list[tuple[Topic, str | None, str]] = [(topic, None, topic.topic) for topic in config.topics.values()]
        for route, name, found in config.matched(kafka.topics() if config.routes else ()):
            if isinstance(found, Topic):
                entries.append((route, name, name))
            else:
                context.log.error(f"Topic '{name}' is left out. {found}")
        paused = _paused(context, catalog, config.namespace)
        # What is reported drives automation. The tick after a pause reports what came meanwhile.
        entries = [one for one in entries if (one[1] or one[0].name) not in paused]
        there, unread = readable(kafka, sorted({topic for _, _, topic in entries}))
        for topic, error in unread.items():
            message = f"Topic '{topic}' is left out, and looked at again by the next tick: {reason(error)}"
            context.log.error(f"{message}\n{trace(error)}")
        events, new = [], []
        for entry, partition, topic in entries:
            version = _news(seen, partition or entry.name, there.get(topic, {}))
            if version is None:
                continue
            events.append(
                dg.AssetMaterialization(
                    asset_key=["kafka", entry.name],
                    partition=partition,
                    metadata=offset_metadata(there[topic]),
                    tags={"dagster/data_version": version},
                )
            )
            if partition and (known := partitions(entry)):
                new.append(known.build_add_request([partition]))
        return dg.SensorResult(asset_events=events, dynamic_partitions_requests=new, cursor=json.dumps(seen))

    return topic_offsets


def _paused(context: dg.SensorEvaluationContext, catalog: Catalog, namespace: str) -> Collection[str]:
    """The paused topics; none while the catalog does not answer, where runs look again."""
    try:
        return pauses(catalog, namespace)
    except Exception as error:
        context.log.error(f"Which topics are paused is not known: {reason(error)}\n{trace(error)}")
        return ()


def _news(seen: dict[str, str], name: str, offsets: Mapping[int, Offsets]) -> str | None:
    """The topic's data version, where it holds anything and moved since `seen`, which then has it."""
    version = data_version(dict(offsets)).value
    if seen.get(name) == version or not any(o.end > o.start for o in offsets.values()):
        return None
    seen[name] = version
    return version
