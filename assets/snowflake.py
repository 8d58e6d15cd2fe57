"""The asset of a Snowflake table: an Iceberg table over the Glue registration, refreshed to what Glue shows."""

import time

import dagster as dg

from assets.entry import group, topic_of
from assets.failures import explained
from assets.standing import Standing
from assets.step import asset_spec, step
from lakehouse.automation import unless_continuous
from lakehouse.config import Config
from lakehouse.errors import LakehouseError
from lakehouse.freshness import Hop
from lakehouse.lag import snapshots_behind
from lakehouse.markdown import escaped
from lakehouse.naming import snowflake_name
from lakehouse.topic import Topic
from resources.catalog import Catalog, snapshot_at
from resources.snapshots import commits, live_rows_at
from resources.snowflake import Snowflake, TableState

SAME = "same_as_iceberg"


def snowflake_asset(config: Config, entry: Topic) -> dg.AssetsDefinition:
    """`snowflake/<topic>`."""
    spec = asset_spec(
        entry,
        "snowflake",
        deps=[["glue", entry.name]],
        description=f"{entry.description} An Iceberg table in Snowflake over Glue's registration.".strip(),
        kinds={"snowflake", "iceberg"},
        automation_condition=unless_continuous(entry),
        metadata={"dagster/table_name": f"{snowflake_name(config.namespace)}.{snowflake_name(group(entry))}"},
    )

    @step(spec, pool=f"snowflake_{group(entry)}")
    def snowflake_table(
        context: dg.AssetExecutionContext, catalog: Catalog, snowflake: Snowflake
    ) -> dg.MaterializeResult:
        with explained(entry):
            topic = topic_of(entry, context)
            state = show(config, catalog.current(config.namespace, topic), catalog, snowflake)
            snapshot_id = snapshot_at(catalog, state.metadata_location)
        context.log.info(f"Snowflake shows {state.row_count:,} rows of snapshot {snapshot_id}")
        return dg.MaterializeResult(
            metadata={
                "dagster/row_count": state.row_count,
                "snapshot_id": str(snapshot_id),
                "metadata_location": state.metadata_location,
            },
            data_version=dg.DataVersion(str(snapshot_id)),
        )

    return snowflake_table


def show(config: Config, topic: Topic, catalog: Catalog, snowflake: Snowflake) -> TableState:
    """Ensure the table and everything it stands on, and refresh it; returns what it shows.

    Raises: LakehouseError when Snowflake refuses; Unreachable.
    """
    snowflake.ensure_account_objects(catalog.warehouse)
    snowflake.ensure_iceberg_table(config.namespace, topic.table, config.namespace, topic.table)
    snowflake.take_over(config.namespace, topic.table)
    snowflake.refresh(config.namespace, topic.table)
    return shown(config, topic, snowflake)


def shown(config: Config, topic: Topic, snowflake: Snowflake) -> TableState:
    """What the topic's table shows in Snowflake.

    Raises: LakehouseError when it is not there.
    """
    state = snowflake.table_state(config.namespace, topic.table)
    if state is None:
        name = f"{snowflake_name(config.namespace)}.{snowflake_name(topic.table)}"
        raise LakehouseError(f"Snowflake shows no table {name} to this role. Materialize snowflake/{topic.name}")
    return state


def snowflake_check(config: Config, topic: Topic) -> Standing:
    """Snowflake shows the published snapshot, or one newer than the topic's lag allows, with exactly its rows."""

    def same_as_iceberg(context: dg.AssetCheckExecutionContext) -> dg.AssetCheckResult:
        catalog = context.resources.catalog
        current, table = catalog.published(config.namespace, topic)
        state = shown(config, current, context.resources.snowflake)
        snapshot_id = snapshot_at(catalog, state.metadata_location)
        behind = snapshots_behind(commits(table), snapshot_id, int(time.time() * 1000))
        rows = live_rows_at(table, snapshot_id) if behind else None
        hop = Hop(topic.name, "snowflake", topic.max_lag_seconds, behind, snapshot_id)
        counted = f"; {state.row_count:,} rows, Iceberg {rows:,}" if behind else ""
        return dg.AssetCheckResult(
            check_name=SAME,
            asset_key=["snowflake", topic.name],
            passed=hop.fresh and rows == state.row_count,
            description=escaped(hop.said + counted),
            metadata={
                "snowflake_snapshot_id": str(snapshot_id),
                "iceberg_snapshot_id": str(table.metadata.current_snapshot_id),
                "snowflake_rows": state.row_count,
                "iceberg_rows": rows,
            },
        )

    said = "Snowflake shows a published snapshot, not an old one, and as many rows as Iceberg has in it."
    return Standing(SAME, said, frozenset({"catalog", "snowflake"}), same_as_iceberg)
