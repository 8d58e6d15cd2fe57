"""The asset of a Kafka topic. Materializing it ensures the topic and its subjects; for a derived topic, its content."""

from collections.abc import Mapping

import dagster as dg

from assets.derivation import derive
from assets.entry import code_links, group, partitions, topic_of
from assets.failures import RETRY, explained
from assets.freshness import idle_policy
from assets.ingestion import Systems
from lakehouse.automation import on_upstream_change
from lakehouse.config import Config, Datagen, Derived, Topic
from lakehouse.errors import LakehouseError
from resources.catalog import Catalog
from resources.kafka import Kafka, Offsets
from resources.schema_registry import SchemaRegistry
from resources.spark import Spark


def topic_asset(config: Config, entry: Topic) -> dg.AssetsDefinition:
    """`kafka/<topic>`."""
    derived = isinstance(entry.source, Derived)

    @dg.asset(
        key=["kafka", entry.name],
        deps=[["iceberg", entry.source.from_topic]] if isinstance(entry.source, Derived) else [],
        description=entry.description,
        group_name=group(entry),
        kinds={"kafka", entry.value_format} | ({"spark"} if derived else set()),
        pool=f"kafka_{group(entry)}",
        partitions_def=partitions(entry),
        owners=entry.owners,
        retry_policy=RETRY,
        automation_condition=on_upstream_change() if derived else None,
        freshness_policy=idle_policy(entry),
        metadata=code_links(config, entry),
    )
    def kafka_topic(
        context: dg.AssetExecutionContext,
        kafka: Kafka,
        schema_registry: SchemaRegistry,
        spark: Spark,
        catalog: Catalog,
    ) -> dg.MaterializeResult:
        metadata: dict[str, object] = {}
        with explained():
            topic = topic_of(entry, context)
            match topic.source:
                case Datagen(schema_file=file):
                    kafka.ensure_topic(topic.topic, topic.partitions)
                    schema_registry.register(topic.subject("value"), config.text(file))
                case Derived(from_topic=source):
                    kafka.ensure_topic(topic.topic, topic.partitions)
                    produced = derive(config, topic, Systems(kafka, schema_registry, spark, catalog))
                    context.log.info(f"{topic.name}: {produced.messages:,} messages computed and produced")
                    metadata["messages"] = produced.messages
                    metadata["source_snapshot_id"] = str(produced.source_snapshot_id)
                    if produced.lineage:
                        metadata["dagster/column_lineage"] = _lineage(source, produced.lineage)
                case _ if topic.topic not in kafka.describe([topic.topic]):
                    raise LakehouseError(
                        f"Topic '{topic.topic}' is declared in lakehouse.yaml and does not exist at "
                        f"{kafka.bootstrap_servers}. Nothing was created. Create it, or give it a source"
                    )
            offsets = kafka.offsets([topic.topic])[topic.topic]
        return dg.MaterializeResult(metadata=metadata | offset_metadata(offsets), data_version=data_version(offsets))

    return kafka_topic


def _lineage(source: str, columns: Mapping[str, list[str]]) -> dg.TableColumnLineage:
    key = dg.AssetKey(["iceberg", source])
    return dg.TableColumnLineage(
        {name: [dg.TableColumnDep(key, one) for one in made] for name, made in columns.items()}
    )


def offset_metadata(offsets: dict[int, Offsets]) -> dict[str, object]:
    """What the UI shows and plots of a topic: how many offsets it holds, and where each partition ends."""
    return {
        "offsets": sum(o.end - o.start for o in offsets.values()),
        "end_offsets": {str(partition): o.end for partition, o in sorted(offsets.items())},
    }


def data_version(offsets: dict[int, Offsets]) -> dg.DataVersion:
    """A topic's data version: its end offsets, such as `0:120,1:98`."""
    return dg.DataVersion(",".join(f"{partition}:{o.end}" for partition, o in sorted(offsets.items())))
