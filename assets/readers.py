"""The asset of a table in a reader, and the check that compares it with the published table (lakehouse.readers)."""

import time
from typing import Any

import dagster as dg

from assets.automation import unless_continuous
from assets.entry import group, topic_of
from assets.failures import explained
from assets.standing import Standing
from assets.step import asset_spec, step
from lakehouse.config.loader import Config
from lakehouse.config.topic import Topic
from lakehouse.core.lag import snapshots_behind
from lakehouse.core.markdown import escaped
from lakehouse.readers.freshness import Hop
from lakehouse.readers.reader import Reader, Registration
from resources.snapshots import commits, live_rows_at


def reader_asset(config: Config, entry: Topic, reader: Reader) -> dg.AssetsDefinition:
    """Return the asset `<reader>/<topic>`."""
    spec = asset_spec(
        entry,
        reader.name,
        deps=[[reader.upstream, entry.name]],
        description=f"{entry.description} {reader.description}".strip(),
        kinds=set(reader.kinds),
        automation_condition=unless_continuous(entry),
        metadata={"dagster/table_name": reader.table_name(config.namespace, group(entry))},
    )

    @step(spec, pool=f"{reader.name}_{group(entry)}", resources=("catalog", reader.resource))
    def publication(context: dg.AssetExecutionContext, clients: Any) -> dg.MaterializeResult:
        with explained(entry):
            topic, table = clients.catalog.published(config.namespace, topic_of(entry, context))
            published = reader.publish(config.namespace, topic, table, clients)
        name = reader.table_name(config.namespace, topic.table)
        context.log.info(f"{reader.label} shows {name} at snapshot {published.snapshot_id}")
        return dg.MaterializeResult(
            metadata=metadata(published), data_version=dg.DataVersion(str(published.snapshot_id))
        )

    return publication


def metadata(published: Registration) -> dict[str, Any]:
    """Return what Dagster shows of a publication."""
    rows = {} if published.rows is None else {"dagster/row_count": published.rows}
    return {
        "metadata_location": published.metadata_location,
        "snapshot_id": str(published.snapshot_id),
        **rows,
    }


def reader_check(config: Config, topic: Topic, reader: Reader) -> Standing:
    """Return the check that a reader exposes a published snapshot, no older than the topic's lag allows.

    Where the reader counts rows, they are as many as the snapshot has.
    """

    def compare(context: dg.AssetCheckExecutionContext) -> dg.AssetCheckResult:
        clients = context.resources
        current, table = clients.catalog.published(config.namespace, topic)
        found = reader.require(config.namespace, current, clients, count=True)
        behind = snapshots_behind(commits(table), found.snapshot_id, int(time.time() * 1000))
        hop = Hop(topic.name, reader.name, topic.max_lag_seconds, behind, found.snapshot_id)
        expected = None
        if found.rows is not None and found.snapshot_id is not None and behind:
            expected = live_rows_at(table, found.snapshot_id)
        counts, counted = {}, ""
        if found.rows is not None:
            counts = {f"{reader.name}_rows": found.rows, "iceberg_rows": expected}
            counted = f"; {found.rows:,} rows, Iceberg {expected:,}" if behind else ""
        return dg.AssetCheckResult(
            check_name=reader.check,
            asset_key=[reader.name, topic.name],
            passed=hop.fresh and expected == found.rows,
            description=escaped(hop.said + counted),
            metadata={
                f"{reader.name}_snapshot_id": str(found.snapshot_id),
                "iceberg_snapshot_id": str(table.metadata.current_snapshot_id),
                "metadata_location": found.metadata_location,
                **counts,
            },
        )

    needs = frozenset({"catalog", reader.resource})
    return Standing(reader.check, reader.check_description, needs, compare, blocking=reader.is_blocking)
