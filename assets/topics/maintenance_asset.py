"""The asset that compacts a table, expires its snapshots and deletes orphans (lakehouse.pipeline.maintenance)."""

from dataclasses import asdict
from typing import Any

import dagster as dg

from assets.asset_factory import asset_spec, table_op
from assets.entry import group, topic_of
from assets.failures import dagster_failures
from lakehouse.config.loader import Config
from lakehouse.config.topic import Topic
from lakehouse.core.tables import naming
from resources.by_key import Resources


def maintenance_asset(config: Config, entry: Topic) -> dg.AssetsDefinition:
    """Return the asset `maintenance/<topic>`, which shares the writer's pool, so that only one of them runs."""
    spec = asset_spec(
        entry,
        "maintenance",
        deps=[["iceberg", entry.name]],
        description=f"Compacts {group(entry)}, expires its snapshots and deletes orphan files.",
        kinds={"iceberg", "spark"},
    )

    @table_op(spec, pool=f"iceberg_{group(entry)}", resources=("catalog", "spark"))
    def maintenance(context: dg.AssetExecutionContext, resources: Resources) -> dg.MaterializeResult:
        from lakehouse.pipeline.maintenance import maintain

        metadata: dict[str, Any] = {}
        with dagster_failures(entry):
            topic = topic_of(entry, context)
            for result in maintain(config.namespace, topic, resources.catalog, resources.spark):
                context.log.info(
                    f"{result.table}: {', '.join(result.actions) or 'nothing to do'} ({result.seconds:.1f} s)"
                )
                if result.table.endswith(naming.DEAD_LETTERS):
                    continue
                metadata |= {f"{name}_before": n for name, n in asdict(result.before).items()}
                metadata |= {name: n for name, n in asdict(result.after).items()}
                metadata |= {"actions": list(result.actions), "seconds": round(result.seconds, 2)}
        return dg.MaterializeResult(metadata=metadata)

    return maintenance
