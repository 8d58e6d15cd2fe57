"""The asset of a table's dead letters. Materializing it decodes them again and adds those that succeed as rows."""

import dagster as dg

from assets.asset_factory import asset_spec, table_op
from assets.entry import group, topic_of
from assets.failures import dagster_failures
from lakehouse.config.loader import Config
from lakehouse.config.topic import Topic
from lakehouse.core.tables.table_ref import TableRef
from lakehouse.pipeline.clients import CLIENTS, Clients
from resources.by_key import Resources


def dead_letters_asset(config: Config, entry: Topic) -> dg.AssetsDefinition:
    """Return the asset `dead_letters/<topic>`.

    It is materialized manually, after the producer, the schema or the registry was repaired.
    """
    spec = asset_spec(
        entry,
        "dead_letters",
        deps=[["iceberg", entry.name]],
        description=f"Records of {entry.name} that could not be decoded or that a check quarantined. `lakehouse "
        f"dead-letters` lists them. To decode them again, remove the reason, then materialize this asset.",
        kinds={"iceberg", "spark"},
        metadata={"dagster/table_name": str(TableRef(config.namespace, group(entry)).dead_letters)},
    )

    @table_op(spec, pool=f"iceberg_{group(entry)}", resources=CLIENTS)
    def dead_letters(context: dg.AssetExecutionContext, resources: Resources) -> dg.MaterializeResult:
        from lakehouse.pipeline.replay import redrive

        with dagster_failures(entry):
            topic = topic_of(entry, context)
            result = redrive(config.namespace, topic, Clients.of(resources))
        context.log.info(result.describe())
        if result.recovered:
            # Only a materialization of the table triggers the assets downstream of it.
            partition = context.partition_key if context.has_partition_key else None
            key = ["iceberg", entry.name]
            metadata = {"redriven": result.recovered}
            context.log_event(dg.AssetMaterialization(key, partition=partition, metadata=metadata))
        return dg.MaterializeResult(metadata={"attempted": result.attempted, "recovered": result.recovered})

    return dead_letters
