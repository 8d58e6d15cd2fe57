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
from lakehouse.errors import LakehouseError, UnclearState
from lakehouse.freshness import Hop
from lakehouse.lag import snapshots_behind
from lakehouse.markdown import escaped
from lakehouse.topic import Topic
from resources.aws import Glue
from resources.catalog import Catalog, snapshot_at
from resources.registrations import is_newer
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
    """Point Glue at a topic's table, unless it shows this state of the table, or a later one, already.

    Where Glue is the catalog itself, each commit is its registration, and nothing is written here.

    Args:
        config: The configuration with the namespace.
        topic: The topic, with the table that its records go to now.
        table: That table as it was loaded. Another process may have published since.
        catalog: The catalog that the table was loaded from.
        glue: Where the table is registered.

    Returns:
        The location of the metadata file that Glue shows.

    Raises:
        CommitConflict: Another process changed the registration at the same time.
        UnclearState: Glue is the catalog and does not show the table, or it shows another table of that name.
        Unreachable: Glue or S3 does not answer.
    """
    expected = glue.registration(config.namespace, topic.table)
    shown = expected.metadata_location if expected else None
    current = shown is not None and (shown == table.metadata_location or is_newer(catalog, shown, table))
    if catalog.type == "glue" and not current:
        raise UnclearState(
            f"The catalog is Glue and has {config.namespace}.{topic.table}, but the resource `glue` (region"
            f" {glue.region}, catalog {glue.catalog_id}) shows {shown or 'no such table'}. Nothing was changed. Give"
            " `glue` and `catalog` the same account and region in lakehouse.yaml"
        )
    # The registration was read after the table was loaded: its version id alone does not protect a later state.
    if shown and current and expected and expected.table_uuid in (None, str(table.metadata.table_uuid)):
        return shown
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
