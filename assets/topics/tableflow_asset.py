"""The asset of a table that Confluent's Tableflow writes. It observes and checks the table in its catalog.

Tableflow publishes without this project, so a failed check reports rows but cannot withhold them from readers.
"""

from collections.abc import Iterator

import dagster as dg

from assets.asset_factory import asset_spec, table_op
from assets.automation import on_upstream_change
from assets.batch_results import check_results
from assets.entry import code_links, group
from assets.failures import dagster_failures
from assets.topics import confluent_state
from assets.topics.iceberg_asset import declared_specs, table_metadata
from lakehouse.config.loader import Config
from lakehouse.config.topic import Topic
from lakehouse.core.errors import LakehouseError
from lakehouse.pipeline.table_location import catalog_of, table_of, table_resources
from resources.by_key import Resources, find_resource
from resources.confluent.confluent_cloud import ConfluentCloud


def tableflow_asset(config: Config, entry: Topic) -> dg.AssetsDefinition:
    """Return the asset `iceberg/<topic>` of a table by Tableflow, with the declared checks on its newest snapshot."""
    key = dg.AssetKey(["iceberg", entry.name])
    spec = asset_spec(
        entry,
        "iceberg",
        deps=[["kafka", entry.name]],
        description=f"{entry.description} Written by Confluent's Tableflow.".strip(),
        kinds={"iceberg", "confluent", "s3"},
        automation_condition=on_upstream_change(),
        metadata={"dagster/storage_kind": "iceberg", **code_links(config, entry)},
    )
    cloud = confluent_state.needed(config)

    @table_op(
        spec,
        pool=f"iceberg_{group(entry)}",
        resources={"catalog", "spark", *table_resources(config, entry), *cloud},
        check_specs=declared_specs(key, entry),
    )
    def tableflow_table(
        context: dg.AssetExecutionContext, resources: Resources
    ) -> Iterator[dg.AssetCheckResult | dg.MaterializeResult]:
        from lakehouse.pipeline.commits import column_checks

        with dagster_failures(entry):
            catalog = catalog_of(entry, resources)
            ref = table_of(config, entry, resources)
            table = catalog.load(ref)
            snapshot = table.current_snapshot() if table else None
            if table is None or snapshot is None:
                raise LakehouseError(
                    f"Tableflow has published no table '{'.'.join(ref.identifier)}' yet. Nothing was changed. It "
                    f"publishes minutes after the topic's first records; `lakehouse deploy plan` shows its state"
                )
            session = resources.spark.session(catalog.spark_settings())
            results = column_checks.run_checks(session, catalog, entry, entry.checks, table, snapshot.snapshot_id, {})
            context.log.info(f"{ref} is at snapshot {snapshot.snapshot_id}")
            yield from check_results(results)
            confluent = find_resource(resources, confluent_state.RESOURCE, ConfluentCloud)
            state = confluent_state.tableflow_state(confluent, entry).metadata if confluent else {}
            yield dg.MaterializeResult(
                metadata={"snapshot_id": str(snapshot.snapshot_id), **table_metadata(table, entry), **state},
                data_version=dg.DataVersion(str(snapshot.snapshot_id)),
            )

    return tableflow_table
