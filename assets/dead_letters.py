"""The asset of a table's dead letters. Materializing it decodes them again: what decodes now becomes rows."""

from typing import Any

import dagster as dg

from assets.entry import group, topic_of
from assets.failures import explained
from assets.step import asset_spec, step
from lakehouse.config.loader import Config
from lakehouse.config.topic import Topic
from lakehouse.core import naming
from lakehouse.pipeline.clients import CLIENTS, Clients
from lakehouse.pipeline.replay import redrive


def dead_letters_asset(config: Config, entry: Topic) -> dg.AssetsDefinition:
    """`dead_letters/<topic>`. It is materialized by hand, after the producer, the schema or the registry was mended."""
    spec = asset_spec(
        entry,
        "dead_letters",
        deps=[["iceberg", entry.name]],
        description=f"Records of {entry.name} that could not be decoded, or fail a check that quarantines them: "
        f"`lakehouse dead-letters` lists them. When the reason is gone, materialize this to try them again.",
        kinds={"iceberg", "spark"},
        metadata={"dagster/table_name": f"{config.namespace}.{naming.dead_letter_table(group(entry))}"},
    )

    @step(spec, pool=f"iceberg_{group(entry)}", resources=CLIENTS)
    def dead_letters(context: dg.AssetExecutionContext, clients: Any) -> dg.MaterializeResult:
        with explained(entry):
            topic = topic_of(entry, context)
            done = redrive(config.namespace, topic, Clients.of(clients))
        context.log.info(f"{done.tried:,} dead letters decoded again, {done.landed:,} are rows now")
        if done.landed:
            # What is downstream of the table follows the table's own materializations.
            partition = context.partition_key if context.has_partition_key else None
            key = ["iceberg", entry.name]
            context.log_event(dg.AssetMaterialization(key, partition=partition, metadata={"redriven": done.landed}))
        return dg.MaterializeResult(metadata={"tried": done.tried, "landed": done.landed})

    return dead_letters
