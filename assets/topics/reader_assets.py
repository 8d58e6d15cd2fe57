"""The asset of a table in a reader, and the check that compares it with the published table (lakehouse.readers)."""

import time

import dagster as dg

from assets.asset_factory import asset_spec, table_op
from assets.automation import unless_continuous
from assets.batch_results import registration_metadata
from assets.check_definition import CheckDefinition
from assets.entry import group, topic_of
from assets.failures import dagster_failures
from lakehouse.config.loader import Config
from lakehouse.config.topic import Topic
from lakehouse.core.offsets.lag import snapshots_behind
from lakehouse.core.tables.table_ref import TableRef
from lakehouse.core.text.markdown import escaped
from lakehouse.pipeline.table_location import table_of, table_resources
from lakehouse.readers.freshness import StageLag
from lakehouse.readers.reader import Reader
from resources.by_key import Resources
from resources.iceberg.catalog import published_table
from resources.iceberg.snapshots import commits, live_rows_at


def reader_asset(config: Config, entry: Topic, reader: Reader) -> dg.AssetsDefinition:
    """Return the asset `<reader>/<topic>`."""
    spec = asset_spec(
        entry,
        reader.name,
        deps=[[reader.upstream, entry.name]],
        description=f"{entry.description} {reader.description}".strip(),
        kinds=set(reader.kinds),
        automation_condition=unless_continuous(entry),
        metadata={"dagster/table_name": reader.table_name(TableRef(config.namespace, group(entry)))},
    )

    @table_op(
        spec,
        pool=f"{reader.name}_{group(entry)}",
        resources={"catalog", reader.resource, *table_resources(config, entry)},
    )
    def publication(context: dg.AssetExecutionContext, resources: Resources) -> dg.MaterializeResult:
        with dagster_failures(entry):
            topic = topic_of(entry, context)
            ref, table = resources.catalog.chain(table_of(config, topic, resources)).require_published()
            registration = reader.publish_tables(topic, ref, table, resources)
        context.log.info(f"{reader.label} shows {reader.table_name(ref)} at snapshot {registration.snapshot_id}")
        return dg.MaterializeResult(
            metadata=registration_metadata(registration), data_version=dg.DataVersion(str(registration.snapshot_id))
        )

    return publication


def reader_check(config: Config, topic: Topic, reader: Reader) -> CheckDefinition:
    """Return the check that a reader exposes a published snapshot within the topic's maximum lag.

    If the reader counts rows, the check also compares the count with that of the snapshot.
    """

    def compare(context: dg.AssetCheckExecutionContext) -> dg.AssetCheckResult:
        resources = context.resources
        ref, _ = resources.catalog.chain(table_of(config, topic, resources)).require_published()
        registration = reader.require(topic, ref, resources, count=True)
        # The table is loaded after the reader answered, because a snapshot may be published meanwhile.
        table = published_table(resources.catalog, ref)
        behind = snapshots_behind(commits(table), registration.snapshot_id, int(time.time() * 1000))
        lag = StageLag(topic.name, reader.name, topic.max_lag_seconds, behind, registration.snapshot_id)
        expected = None
        if registration.rows is not None and registration.snapshot_id is not None and behind:
            with resources.catalog.translate_errors():
                expected = live_rows_at(table, registration.snapshot_id)
        counts, comparison = {}, ""
        if registration.rows is not None:
            counts = {f"{reader.name}_rows": registration.rows, "iceberg_rows": expected}
            comparison = f"; {registration.rows:,} rows, Iceberg {expected:,}" if expected is not None else ""
        return dg.AssetCheckResult(
            check_name=reader.check,
            asset_key=[reader.name, topic.name],
            passed=lag.is_fresh and expected == registration.rows,
            description=escaped(lag.description + comparison),
            metadata={
                f"{reader.name}_snapshot_id": str(registration.snapshot_id),
                "iceberg_snapshot_id": str(table.metadata.current_snapshot_id),
                "metadata_location": registration.metadata_location,
                **counts,
            },
        )

    needs = frozenset({"catalog", reader.resource}) | table_resources(config, topic)
    return CheckDefinition(reader.check, reader.check_description, needs, compare, blocking=reader.is_blocking)
