"""The asset of a Kafka topic, and the sensor that reports new offsets, which producers write without Dagster.

Materializing the asset creates the topic, its subjects and its content; else it is external.
"""

import json
from collections.abc import Collection, Mapping
from typing import Any

import dagster as dg

from assets.entry import code_links, group, on_upstream_change, partitions
from assets.factories import asset_spec, dagster_failures, table_op
from assets.freshness import idle_policy
from assets.topics import confluent_state
from lakehouse.config.model import Config, Topic
from lakehouse.core.errors import Paused, reason, trace
from lakehouse.pipeline.clients import CLIENTS, Clients
from lakehouse.pipeline.production import produce
from lakehouse.pipeline.table_location import source_resources
from resources.confluent.confluent_cloud import ConfluentCloud
from resources.iceberg.catalog import Catalog
from resources.iceberg.pauses import pauses
from resources.kafka.kafka import Kafka, Offsets
from resources.kafka.offsets import readable_offsets
from resources.protocols import Resources, resource_of

REQUESTED = frozenset({"dagster/from_automation_condition", "dagster/sensor_name"})
"""Tags of runs that no person started: those of automation conditions, and of sensors."""


def topic_asset(config: Config, entry: Topic) -> dg.AssetsDefinition | dg.AssetSpec:
    """Return the asset `<topic>/kafka`; for a topic that others create, an external asset that the sensor reports."""
    source = entry.source
    spec = asset_spec(
        entry,
        "kafka",
        deps=[[source.upstream, "iceberg"]] if source.upstream else [],
        description=entry.description,
        kinds={"kafka", entry.value_format} | ({"spark"} if source.upstream else set()),
        automation_condition=on_upstream_change() if source.upstream else None,
        freshness_policy=idle_policy(entry),
        metadata=code_links(config, entry),
    )
    if source.is_external:
        return spec

    cloud = confluent_state.needed(config) if source.connector(entry.name) else frozenset()

    needs = {*CLIENTS, *cloud, *source_resources(config, entry)}

    @table_op(spec, pool=f"kafka_{group(entry)}", resources=needs, may_skip=source.writes)
    def kafka_topic(context: dg.AssetExecutionContext, resources: Resources) -> dg.MaterializeResult | None:
        metadata: dict[str, Any] = {}
        with dagster_failures(entry, *_sources(config, entry)):
            try:
                produced = produce(config, entry, Clients.of(resources))
            except Paused as error:
                if REQUESTED.isdisjoint(context.run.tags):
                    raise
                # Every change of the source requests a run: failures would send an alert for each.
                context.log.info(str(error))
                return None
            if produced:
                context.log.info(f"{entry.name}: {produced.messages:,} messages were computed and produced")
                metadata["messages"] = produced.messages
                metadata["source_snapshot_id"] = str(produced.source_snapshot_id)
                if produced.lineage:
                    metadata["dagster/column_lineage"] = _lineage(source.upstream, produced.lineage)
            offsets = resources.kafka.offsets([entry.topic])[entry.topic]
            if cloud:
                confluent = resource_of(resources, confluent_state.RESOURCE, ConfluentCloud)
                metadata |= confluent_state.connector_state(confluent, entry).metadata
        return dg.MaterializeResult(metadata=metadata | offset_metadata(offsets), data_version=data_version(offsets))

    return kafka_topic


def _sources(config: Config, entry: Topic) -> list[Topic]:
    return [config.topic(entry.source.upstream)] if entry.source.upstream else []


def _lineage(source: str, columns: Mapping[str, list[str]]) -> dg.TableColumnLineage:
    key = dg.AssetKey([source, "iceberg"])
    return dg.TableColumnLineage(
        {name: [dg.TableColumnDep(key, column) for column in inputs] for name, inputs in columns.items()}
    )


def offset_metadata(offsets: dict[int, Offsets]) -> dict[str, Any]:
    """Return the metadata of a topic: the number of offsets in its log and the end offset of each partition."""
    return {
        "offsets": sum(o.end - o.start for o in offsets.values()),
        "end_offsets": {str(partition): o.end for partition, o in sorted(offsets.items())},
    }


def data_version(offsets: dict[int, Offsets]) -> dg.DataVersion:
    """Return a topic's data version, which consists of its end offsets, such as `0:120,1:98`."""
    return dg.DataVersion(",".join(f"{partition}:{o.end}" for partition, o in sorted(offsets.items())))


def topic_offsets_sensor(config: Config) -> dg.SensorDefinition:
    """Return the sensor that reports each topic with new end offsets as a materialization of `<topic>/kafka`.

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
        paused = pauses(catalog, config.namespace)
        # Reports trigger automation, so paused topics are excluded. The first tick after a pause reports their offsets.
        entries: list[tuple[Topic, str | None, str]] = [
            (topic, None, topic.topic) for topic in config.topics.values() if topic.table not in paused
        ]
        for route, name, topic_or_fault in config.match_routes(kafka.topics() if config.routes else ()):
            if not isinstance(topic_or_fault, Topic):
                context.log.error(f"Topic '{name}' is skipped. {topic_or_fault}")
            elif topic_or_fault.table not in paused:
                entries.append((route, name, name))
        requests = [
            dg.RunRequest(asset_selection=[dg.AssetKey([name, "kafka"])], tags={"lakehouse/reason": "resumed"})
            for name, topic in config.topics.items()
            if topic.source.upstream and _is_resumed(versions, topic.table, paused)
        ]
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
                    asset_key=[entry.name, "kafka"],
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


def _is_resumed(versions: dict[str, str], table: str, paused: Collection[str]) -> bool:
    """Return whether the derived topic of a table was paused in the last tick and is not any more, and note in
    `versions` if it is.

    The changes of its source during the pause requested runs that did nothing.
    """
    key = f"{table}/paused"  # no topic has a slash in its name
    if table in paused:
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
