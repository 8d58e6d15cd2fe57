"""The asset of a registration in a REST catalog, such as Polaris: there only where an environment names one."""

import time

import dagster as dg

from assets.entry import group, topic_of
from assets.failures import explained
from assets.glue import REGISTRATION
from assets.standing import Standing
from assets.step import asset_spec, step
from lakehouse.automation import on_upstream_change
from lakehouse.config import Config
from lakehouse.errors import LakehouseError, UnclearState
from lakehouse.lag import snapshots_behind
from lakehouse.markdown import escaped
from lakehouse.topic import Topic
from resources.catalog import Catalog
from resources.rest_catalog import Registered, RestCatalog
from resources.snapshots import commits

SYSTEM = "rest_catalog"
"""The system of an environment that makes these assets."""


def rest_asset(config: Config, entry: Topic) -> dg.AssetsDefinition:
    """`rest/<topic>`. The metadata that is registered has the audited snapshot as its main."""
    spec = asset_spec(
        entry,
        "rest",
        deps=[["iceberg", entry.name]],
        description=f"{entry.description} Registered in an Iceberg REST catalog.".strip(),
        kinds={"iceberg"},
        automation_condition=on_upstream_change(),
        metadata={"dagster/table_name": f"{config.namespace}.{group(entry)}"},
    )

    @step(spec, pool=f"rest_{group(entry)}")
    def rest_registration(
        context: dg.AssetExecutionContext, catalog: Catalog, rest_catalog: RestCatalog
    ) -> dg.MaterializeResult:
        with explained(entry):
            shown = publish(config, topic_of(entry, context), catalog, rest_catalog)
        return dg.MaterializeResult(
            metadata={"metadata_location": shown.metadata_location, "snapshot_id": str(shown.snapshot_id)},
            data_version=dg.DataVersion(str(shown.snapshot_id)),
        )

    return rest_registration


def publish(config: Config, topic: Topic, catalog: Catalog, rest_catalog: RestCatalog) -> Registered:
    """Show the published metadata of the topic's table in the REST catalog; returns what it shows then.

    Raises: LakehouseError when nothing was published yet, or the catalog refuses; UnclearState when it shows what this
    table never was; CommitConflict; Unreachable.
    """
    topic, table = catalog.published(config.namespace, topic)
    shown = rest_catalog.registered(config.namespace, topic.table)
    ours = str(table.metadata.table_uuid)
    if shown and shown.table_uuid == ours:
        files = {table.metadata_location, *(entry.metadata_file for entry in table.metadata.metadata_log)}
        snapshots = {None, *(snapshot.snapshot_id for snapshot in table.metadata.snapshots)}
        # No server compares before it moves a table: what somebody committed there would be lost without a word.
        if shown.metadata_location not in files and shown.snapshot_id not in snapshots:
            raise UnclearState(
                f"The REST catalog shows {config.namespace}.{topic.table} at snapshot {shown.snapshot_id}, which the "
                f"table does not have: somebody wrote through that catalog, or it is older than all history kept. It "
                f"was left untouched. Drop the table there, without purge, and materialize rest/{topic.name} again"
            )
    return rest_catalog.publish(
        config.namespace, topic.table, metadata_location=table.metadata_location, table_uuid=ours, expected=shown
    )


def rest_check(config: Config, topic: Topic) -> Standing:
    """The REST catalog shows a published snapshot, and not one that is older than the topic's lag allows."""

    def points_at_published_snapshot(context: dg.AssetCheckExecutionContext) -> dg.AssetCheckResult:
        catalog = context.resources.catalog
        current, table = catalog.published(config.namespace, topic)
        shown = context.resources.rest_catalog.registered(config.namespace, current.table)
        if shown is None:
            raise LakehouseError(
                f"The REST catalog has no table {config.namespace}.{current.table}. Materialize rest/{topic.name}"
            )
        behind = snapshots_behind(commits(table), shown.snapshot_id, int(time.time() * 1000))
        said = behind.said() if behind else f"snapshot {shown.snapshot_id} was never published"
        return dg.AssetCheckResult(
            check_name=REGISTRATION,
            asset_key=["rest", topic.name],
            passed=behind is not None and behind.seconds <= topic.max_lag_seconds,
            description=escaped(f"Iceberg → REST catalog: {said}"),
            metadata={
                "rest_snapshot_id": str(shown.snapshot_id),
                "iceberg_snapshot_id": str(table.metadata.current_snapshot_id),
                "metadata_location": shown.metadata_location,
            },
        )

    said = "The REST catalog shows a snapshot that passed its audit, and not an old one."
    return Standing(REGISTRATION, said, frozenset({"catalog", SYSTEM}), points_at_published_snapshot, blocking=True)
