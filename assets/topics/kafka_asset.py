"""The asset of a Kafka topic. Materializing it creates the topic, its subjects and its content; else it is external."""

from collections.abc import Mapping
from pkgutil import resolve_name
from typing import Any

import dagster as dg

from assets.asset_factory import asset_spec, table_op
from assets.automation import on_upstream_change
from assets.entry import code_links, group
from assets.failures import dagster_failures
from assets.freshness_checks import idle_policy
from assets.topics import confluent_state
from lakehouse.config.loader import Config
from lakehouse.config.topic import Topic
from lakehouse.core.errors import Paused
from lakehouse.pipeline.clients import CLIENTS, Clients
from lakehouse.pipeline.table_location import source_resources
from resources.by_key import Resources, resource_of
from resources.confluent.confluent_cloud import ConfluentCloud
from resources.iceberg.pauses import require_unpaused
from resources.kafka.kafka import Offsets

REQUESTED = frozenset({"dagster/from_automation_condition", "dagster/sensor_name"})
"""Tags of runs that no person started: those of automation conditions, and of sensors."""


def topic_asset(config: Config, entry: Topic) -> dg.AssetsDefinition | dg.AssetSpec:
    """Return the asset `kafka/<topic>`; for a topic that others create, an external asset that the sensor reports."""
    source = entry.source
    spec = asset_spec(
        entry,
        "kafka",
        deps=[["iceberg", source.upstream]] if source.upstream else [],
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
            if source.writes:
                try:
                    require_unpaused(resources.catalog, config.namespace, entry.name)
                except Paused as error:
                    if REQUESTED.isdisjoint(context.run.tags):
                        raise
                    # Every change of the source requests a run: failures would send an alert for each.
                    context.log.info(str(error))
                    return None
            resources.kafka.ensure_topic(entry.topic, entry.partitions, entry.retention.records)
            produced = resolve_name(source.producer)(config, entry, Clients.of(resources)) if source.producer else None
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
    key = dg.AssetKey(["iceberg", source])
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
