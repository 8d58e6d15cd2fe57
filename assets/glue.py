"""The asset of a Glue registration: the published metadata of a table, where Athena and Snowflake find it."""

import time
from typing import TYPE_CHECKING

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
from lakehouse.topic import Topic
from resources.aws import Glue
from resources.catalog import Catalog, snapshot_at
from resources.snapshots import commits

if TYPE_CHECKING:
    from pyiceberg.table import Table

REGISTRATION = "points_at_published_snapshot"


def registration_asset(config: Config, entry: Topic) -> dg.AssetsDefinition:
    """`glue/<topic>`. The metadata that is registered has the audited snapshot as its main."""
    spec = asset_spec(
        entry,
        "glue",
        deps=[["iceberg", entry.name]],
        description=f"{entry.description} Registered in the AWS Glue Data Catalog.".strip(),
        kinds={"glue", "iceberg"},
        automation_condition=unless_continuous(entry),
        metadata={"dagster/table_name": f"{config.namespace}.{group(entry)}"},
    )

    @step(spec, pool=f"glue_{group(entry)}")
    def glue_registration(context: dg.AssetExecutionContext, catalog: Catalog, glue: Glue) -> dg.MaterializeResult:
        with explained(entry):
            topic = topic_of(entry, context)
            registered = register(config, topic, catalog, glue)
            snapshot_id = snapshot_at(catalog, registered)
        context.log.info(f"Glue table {config.namespace}.{topic.table} points at snapshot {snapshot_id}")
        return dg.MaterializeResult(
            metadata={"metadata_location": registered, "snapshot_id": str(snapshot_id)},
            data_version=dg.DataVersion(str(snapshot_id)),
        )

    return glue_registration


def register(config: Config, topic: Topic, catalog: Catalog, glue: Glue) -> str:
    """Point Glue at the published metadata of the topic's table; returns the metadata location.

    Raises: LakehouseError when nothing was published yet; CommitConflict; Unreachable.
    """
    return point_at(config, *catalog.published(config.namespace, topic), catalog, glue)


def point_at(config: Config, topic: Topic, table: "Table", catalog: Catalog, glue: Glue) -> str:
    """Point Glue at the metadata of a topic's table as it was loaded; returns the metadata location.

    Raises: CommitConflict; Unreachable.
    """
    expected = glue.registration(config.namespace, topic.table)
    if expected is None:
        glue.ensure_database(config.namespace, f"{catalog.warehouse}/{config.namespace}")
    registration = glue.register(
        config.namespace,
        topic.table,
        metadata_location=table.metadata_location,
        schema=table.schema(),
        table_uuid=str(table.metadata.table_uuid),
        location=table.location(),
        comment=topic.description,
        expected=expected,
    )
    return registration.metadata_location


def registration_check(config: Config, topic: Topic) -> Standing:
    """Glue shows a published snapshot, and not one that is older than the topic's lag allows."""

    def points_at_published_snapshot(context: dg.AssetCheckExecutionContext) -> dg.AssetCheckResult:
        catalog = context.resources.catalog
        current, table = catalog.published(config.namespace, topic)
        found = context.resources.glue.registration(config.namespace, current.table)
        if found is None:
            name = f"{config.namespace}.{current.table}"
            raise LakehouseError(f"Glue has no table {name}. Materialize glue/{topic.name}")
        shown = snapshot_at(catalog, found.metadata_location)
        behind = snapshots_behind(commits(table), shown, int(time.time() * 1000))
        hop = Hop(topic.name, "glue", topic.max_lag_seconds, behind, shown)
        return dg.AssetCheckResult(
            check_name=REGISTRATION,
            asset_key=["glue", topic.name],
            passed=hop.fresh,
            description=escaped(hop.said),
            metadata={
                "glue_snapshot_id": str(shown),
                "iceberg_snapshot_id": str(table.metadata.current_snapshot_id),
                "metadata_location": found.metadata_location,
            },
        )

    said = "Glue's metadata_location is of a snapshot that passed its audit, and not of an old one."
    needs = frozenset({"catalog", "glue"})
    return Standing(REGISTRATION, said, needs, points_at_published_snapshot, blocking=True)
