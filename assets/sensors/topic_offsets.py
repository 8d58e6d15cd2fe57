"""The sensor that reports new offsets of topics, which producers write without Dagster."""

import json
from collections.abc import Collection, Mapping

import dagster as dg

from assets.entry import partitions
from assets.topics.kafka_asset import data_version, offset_metadata
from lakehouse.config.loader import Config
from lakehouse.config.topic import Topic
from lakehouse.core.errors import reason, trace
from resources.iceberg.catalog import Catalog
from resources.iceberg.pauses import pauses
from resources.kafka.kafka import Kafka, Offsets
from resources.kafka.readable_offsets import readable_offsets


def topic_offsets_sensor(config: Config) -> dg.SensorDefinition:
    """Return the sensor that reports each topic with new end offsets as a materialization of `kafka/<topic>`.

    It does not report observations, because only materializations trigger the automation conditions of assets
    downstream. A new topic that a route matches becomes a partition of the route's assets. A derived topic that was
    paused gets a run, because nothing else computes it until its source changes again. A tick fails if the catalog,
    which knows the paused topics, does not respond: a report of a paused topic would start no run after the pause.
    """

    @dg.sensor(
        name="topic_offsets",
        # Requested runs select derived topics.
        asset_selection=dg.AssetSelection.all(),
        description="Records new offsets of topics. A tick without a run for a resumed topic shows as skipped.",
        minimum_interval_seconds=30,
        default_status=dg.DefaultSensorStatus.RUNNING,
    )
    def topic_offsets(context: dg.SensorEvaluationContext, kafka: Kafka, catalog: Catalog) -> dg.SensorResult:
        versions: dict[str, str] = json.loads(context.cursor or "{}")
        entries: list[tuple[Topic, str | None, str]] = [(topic, None, topic.topic) for topic in config.topics.values()]
        for route, name, topic_or_fault in config.match_routes(kafka.topics() if config.routes else ()):
            if isinstance(topic_or_fault, Topic):
                entries.append((route, name, name))
            else:
                context.log.error(f"Topic '{name}' is skipped. {topic_or_fault}")
        paused = pauses(catalog, config.namespace)
        requests = [
            dg.RunRequest(asset_selection=[dg.AssetKey(["kafka", name])], tags={"lakehouse/reason": "resumed"})
            for name, topic in config.topics.items()
            if topic.source.upstream and _is_resumed(versions, name, paused)
        ]
        # Reports trigger automation, so paused topics are excluded. The first tick after a pause reports their offsets.
        entries = [one for one in entries if (one[1] or one[0].name) not in paused]
        readable, unreadable = readable_offsets(kafka, sorted({topic for _, _, topic in entries}))
        offsets = {topic: read.partitions for topic, read in readable.items()}
        for topic, error in unreadable.items():
            message = f"Topic '{topic}' is skipped, and the next tick reads it again: {reason(error)}"
            context.log.error(f"{message}\n{trace(error)}")
        events, partition_requests = [], []
        for entry, partition, topic in entries:
            version = _new_version(versions, partition or entry.name, offsets.get(topic, {}))
            if version is None:
                continue
            events.append(
                dg.AssetMaterialization(
                    asset_key=["kafka", entry.name],
                    partition=partition,
                    metadata=offset_metadata(offsets[topic]),
                    tags={"dagster/data_version": version},
                )
            )
            if partition and (definition := partitions(entry)):
                partition_requests.append(definition.build_add_request([partition]))
        return dg.SensorResult(
            asset_events=events,
            run_requests=requests,
            dynamic_partitions_requests=partition_requests,
            cursor=json.dumps(versions),
        )

    return topic_offsets


def _is_resumed(versions: dict[str, str], name: str, paused: Collection[str]) -> bool:
    """Return whether a derived topic was paused in the last tick and is not any more, and note in `versions` if it is.

    The changes of its source during the pause requested runs that did nothing.
    """
    key = f"{name}/paused"  # no topic has a slash in its name
    if name in paused:
        versions[key] = "yes"
        return False
    return versions.pop(key, None) is not None


def _new_version(versions: dict[str, str], name: str, offsets: Mapping[int, Offsets]) -> str | None:
    """Return the data version of a topic that has records and a changed version, and store it in `versions`."""
    version = data_version(dict(offsets)).value
    if versions.get(name) == version or not any(o.end > o.start for o in offsets.values()):
        return None
    versions[name] = version
    return version
