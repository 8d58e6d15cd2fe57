"""A topic that Confluent's Tableflow makes a table of: its table in Glue is observed, and checked as Spark's would be.

Tableflow publishes by itself, so a check cannot keep rows from readers: it tells.
"""

from collections.abc import Iterator
from typing import Any

import dagster as dg

from assets.automation import on_upstream_change
from assets.entry import code_links, group
from assets.failures import explained
from assets.iceberg import check_results, declared_specs, table_metadata
from assets.step import asset_spec, step
from lakehouse.config.loader import Config
from lakehouse.config.topic import Metadata, Topic
from lakehouse.core.errors import ConfigError, LakehouseError
from lakehouse.pipeline import quality


def tableflow_asset(config: Config, entry: Topic) -> dg.AssetsDefinition:
    """`iceberg/<topic>`, written by Tableflow: its newest snapshot, what it holds, and what the checks find in it."""
    key = dg.AssetKey(["iceberg", entry.name])
    spec = asset_spec(
        entry,
        "iceberg",
        deps=[["kafka", entry.name]],
        description=f"{entry.description} Made by Confluent's Tableflow.".strip(),
        kinds={"iceberg", "confluent", "s3"},
        automation_condition=on_upstream_change(),
        metadata={"dagster/storage_kind": "iceberg", **code_links(config, entry)},
    )
    # Tableflow names table and metadata columns by rules of its own (Confluent, Tableflow: metadata columns).
    named = {"table_name": entry.topic, "metadata": Metadata(naming="confluent")}
    topic = entry.model_copy(update=named)

    @step(
        spec,
        pool=f"iceberg_{group(entry)}",
        resources=("catalog", "glue", "spark"),
        check_specs=declared_specs(key, entry),
    )
    def tableflow_table(
        context: dg.AssetExecutionContext, clients: Any
    ) -> Iterator[dg.AssetCheckResult | dg.MaterializeResult]:
        with explained(entry):
            catalog, database = clients.catalog, clients.glue.tableflow_database
            if not database:
                raise ConfigError(
                    f"Where Tableflow publishes '{entry.name}' is not known. Nothing was looked at. Add "
                    f"tableflow_database (the Kafka cluster's id, lkc-…) to `glue` of the environment in lakehouse.yaml"
                )
            table = catalog.load(database, topic.table)
            snapshot = table.current_snapshot() if table else None
            if table is None or snapshot is None:
                raise LakehouseError(
                    f"Tableflow has published no table '{database}.{topic.table}' yet. Nothing was changed. It does so "
                    f"minutes after the topic's first records; `lakehouse deploy plan` says whether it runs"
                )
            session = clients.spark.session(catalog.spark_settings())
            found = quality.findings(session, catalog, database, topic, entry.checks, table, snapshot.snapshot_id, {})
            context.log.info(f"{database}.{topic.table} is at snapshot {snapshot.snapshot_id}")
            yield from check_results(found)
            yield dg.MaterializeResult(
                metadata={"snapshot_id": str(snapshot.snapshot_id), **table_metadata(table, topic)},
                data_version=dg.DataVersion(str(snapshot.snapshot_id)),
            )

    return tableflow_table
